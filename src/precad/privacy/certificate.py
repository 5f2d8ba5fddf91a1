"""What K malicious clients can do to the expected loss of a record, at most (PROTOCOL §8; paper, Theorem 2).

Every valid update has norm at most C, so with or without K more clients the run's outputs are close in the sense of
differential privacy at client level, with noise σ̃ = √2·σ·R'/C in units of C. For a loss in [0, B] with expectation L
over clean runs, its expectation L' over attacked runs satisfies, for every ε ∈ ℝ,

    L' ≤ e^ε·L + B·δ(ε),      L' ≥ e^-ε·(L − B·δ(ε)),

where δ is the hockey-stick divergence of the two runs. What is certified is this expectation over the randomness of
training, for each record by itself: not the one model that a run happened to give.

Three bounds on δ: the paper's, which rests on the central limit theorem and is too small to be a bound; and two
rigorous ones, of which the smaller counts: direct accounting of how many of the K are selected in a round, and the
group property of a single client's privacy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from precad.privacy.accounting import Mechanism, PldAccountant, gdp_delta

FORGERY = 2.0**-55
"""The probability that one false submission is accepted (docs/security.md, Theorem 1)."""

_INTERVAL = 4e-3  # coarse, and so pessimistic: the bounds grow by less than a percent
_EPSILONS = np.concatenate([np.linspace(0, 4, 161), np.linspace(4.1, 16, 120)])


@dataclass(frozen=True, kw_only=True)
class Threat:
    """A run and its attackers."""

    malicious: int
    """K, the number of malicious clients."""
    rounds: int
    """T."""
    client_rate: float
    """q."""
    noise: float
    """σ̃ = √2·σ·R'/C: the noise of both servers over the bound C."""

    def __post_init__(self) -> None:
        if type(self.malicious) is not int or self.malicious < 1:
            raise ValueError(
                f"the number of malicious clients K must be a whole number of at least 1, got {self.malicious}"
            )
        if not (math.isfinite(self.noise) and self.noise > 0):
            raise ValueError(f"the noise must be a finite number above 0, got {self.noise}")
        Mechanism(1.0, self.client_rate, self.rounds)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the expected loss L' under attack, in [0, B]."""

    lower: float
    upper: float
    vacuous: bool
    """Whether the upper bound says nothing: it is B, or nearly."""


def rigorous(threat: Threat, clean_loss: float, largest_loss: float = 1.0) -> Bounds:
    """The certificate: the smaller of direct accounting and group privacy, and the chance of a forged proof."""
    _check_loss(clean_loss, largest_loss)
    direct, single = _direct(threat), _single(threat)
    forged = threat.malicious * threat.rounds * FORGERY

    def delta(epsilon: float) -> float:
        return min(1.0, direct(epsilon), _group_delta(single, threat.malicious, epsilon)) + forged

    return _bounds(delta, clean_loss, largest_loss)


def as_in_the_paper(threat: Threat, clean_loss: float, largest_loss: float = 1.0) -> Bounds:
    """Theorem 2: group privacy of the asymptotic μ = q·√(T·(e^{1/σ̃²} − 1)). Too small to be a bound."""
    _check_loss(clean_loss, largest_loss)
    exponent = threat.noise**-2
    if exponent > 500:  # μ is astronomical: the bound is B
        return Bounds(0.0, largest_loss, True)
    mu = threat.malicious * threat.client_rate * math.sqrt(threat.rounds * math.expm1(exponent))
    return _bounds(lambda epsilon: gdp_delta(mu, epsilon), clean_loss, largest_loss)


def least_noise(threat: Threat, clean_loss: float, wanted: float, largest_loss: float = 1.0) -> float:
    """The least σ̃, to three digits, from which on the rigorous upper bound is below ``wanted``."""
    if not clean_loss < wanted <= largest_loss:
        raise ValueError(
            f"the bound wanted must be in ({clean_loss}, {largest_loss}], above the clean loss; got {wanted}"
        )

    def keeps(noise: float) -> bool:
        return rigorous(replace(threat, noise=noise), clean_loss, largest_loss).upper < wanted

    high = max(1.0, threat.malicious * threat.client_rate * math.sqrt(threat.rounds))
    while not keeps(high):
        high *= 2
    low = high / 2
    while keeps(low):
        low, high = low / 2, low
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _bounds(delta: Callable[[float], float], loss: float, largest: float) -> Bounds:
    """Optimise over ε ∈ ℝ; at −ε the divergence is 1 − e^-ε·(1 − δ'(ε)) with δ' of the other direction."""
    upper, lower = largest, 0.0
    for epsilon in _EPSILONS.tolist():
        d = delta(epsilon)
        upper = min(
            upper, math.exp(epsilon) * loss + largest * d, largest - math.exp(-epsilon) * (largest * (1 - d) - loss)
        )
        lower = max(
            lower,
            math.exp(-epsilon) * (loss - largest * d),
            largest - math.exp(epsilon) * (largest - loss) - largest * d,
        )
    return Bounds(float(lower), float(upper), bool(upper > 0.999 * largest))


def _direct(threat: Threat) -> Callable[[float], float]:
    """δ(ε) when Binomial(K, q) of the attackers are selected in each round, each moving the sum by C, all one way."""
    if threat.malicious == 1:
        return _single(threat)
    if _hopeless(threat.malicious * threat.client_rate, threat):
        return lambda _epsilon: 1.0
    return _mixture(threat).get_delta_for_epsilon  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _mixture(threat: Threat) -> pld.PrivacyLossDistribution:
    counts = range(threat.malicious + 1)
    weights = stats.binom.pmf(counts, threat.malicious, threat.client_rate)
    single = pld.from_mixture_gaussian_mechanism(
        threat.noise,
        sensitivities=[float(count) for count in counts],
        sampling_probs=(weights / weights.sum()).tolist(),
        value_discretization_interval=_INTERVAL,
    )
    return single.self_compose(threat.rounds)


def _single(threat: Threat) -> Callable[[float], float]:
    """δ(ε) of one attacker."""
    if _hopeless(threat.client_rate, threat):
        return lambda _epsilon: 1.0
    mechanism = Mechanism(threat.noise, threat.client_rate, threat.rounds)
    return lambda epsilon: PldAccountant(interval=_INTERVAL).delta(mechanism, epsilon)


def _hopeless(shift: float, threat: Threat) -> bool:
    """Whether two runs differ by so much that no accountant need be asked: many standard deviations in all."""
    return shift * math.sqrt(threat.rounds) / threat.noise > 40 or threat.noise < 0.05


def _group_delta(single: Callable[[float], float], size: int, epsilon: float) -> float:
    """(ε/K, δ) for one is (ε, δ·(e^ε − 1)/(e^{ε/K} − 1)) for K (Vadhan, 2017, Lemma 2.2)."""
    share = epsilon / size
    factor = size if epsilon == 0 else math.expm1(epsilon) / math.expm1(share)
    return single(share) * factor


def _check_loss(clean_loss: float, largest_loss: float) -> None:
    if not 0 <= clean_loss <= largest_loss:
        raise ValueError(f"the clean loss must be in [0, {largest_loss}], got {clean_loss}")
