"""What K malicious clients can do to the expected loss of a record, at most (PROTOCOL §8; paper, Theorem 2).

Every valid update has norm at most C, so with or without K more clients the run's outputs are close in the sense of
differential privacy at client level, with noise σ̃ in units of C: √2·σ·R'/C, or what noise mode and unit make of it
(``Params.noise_over_bound``). For a loss in [0, B] with expectation L
over clean runs, its expectation L' over attacked runs satisfies, for every ε ∈ ℝ,

    L' ≤ e^ε·L + B·δ(ε),      L' ≥ e^-ε·(L − B·δ(ε)),

where δ is the hockey-stick divergence of the two runs. What is certified is this expectation over the randomness of
training, for each record by itself: not the one model that a run happened to give.

Four bounds on δ: the paper's, which rests on the central limit theorem and is too small to be a bound; and three
rigorous ones, of which the smallest counts: direct accounting of how many of the K are selected in a round, the group
property of a single client's privacy, and 1 − w at every ε ≥ 0, where w = (1 − q)^(K·T) is the probability that none
of them is ever selected. (The attacked run is w·clean + (1 − w)·other, so both divergences are at most 1 − w.)

The K attackers come on top of the honest clients of the clean run, and the sum is divided by a public constant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from precad.privacy.accounting import gdp_delta
from precad.privacy.groups import MAX_GROUP, Curve, direct_delta, generic_delta
from precad.privacy.terms import SAMPLER_DISTANCE, Mechanism

FORGERY = 2.0**-55
"""The probability that one false submission is accepted (docs/security.md, Theorem 1)."""

_INTERVAL = 4e-3  # coarse, and so pessimistic: the bounds grow by less than a percent
_LITTLE_NOISE = 1 / 6  # one attacker moves the sum by six standard deviations: whoever is selected is seen
_SAMPLER = 2.0**33 * SAMPLER_DISTANCE  # 2·d numbers a round, for the largest d there is
_EPSILONS = np.concatenate([np.linspace(0, 2, 31), np.linspace(2.2, 6, 20), np.linspace(6.5, 16, 20)])


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
    """σ̃: all noise in a sum over the bound C. A smaller one weakens the bound."""

    def __post_init__(self) -> None:
        if type(self.malicious) is not int or not 1 <= self.malicious <= MAX_GROUP:
            raise ValueError(
                f"the number of malicious clients K must be a whole number in [1, {MAX_GROUP}], got {self.malicious}"
            )
        if not (math.isfinite(self.noise) and self.noise > 0):
            raise ValueError(f"the noise must be a finite number above 0, got {self.noise}")
        if type(self.rounds) is not int or self.rounds < 1:
            raise ValueError(f"the number of rounds must be a whole number of at least 1, got {self.rounds}")
        Mechanism(1.0, self.client_rate, self.rounds)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the expected loss L' under attack, in [0, B]."""

    lower: float
    upper: float
    vacuous: bool
    """Whether the upper bound says nothing: it is B, or nearly."""


def rigorous(threat: Threat, clean_loss: float, largest_loss: float = 1.0) -> Bounds:
    """The certificate: the smallest δ there is, the sampler's distance, and the chance of a forged proof.

    The clean run is within T·2d·η of one with exact noise, the attacked run within that and K·T forgeries.
    """
    _check_loss(clean_loss, largest_loss)
    sampler = threat.rounds * _SAMPLER
    attacked = largest_loss * (sampler + threat.malicious * threat.rounds * FORGERY)
    divergence = cache(_divergence(threat))
    least = max(0.0, clean_loss - largest_loss * sampler)
    most = min(largest_loss, clean_loss + largest_loss * sampler)
    lower = _bounds(divergence, least, largest_loss).lower - attacked
    upper = min(largest_loss, _bounds(divergence, most, largest_loss).upper + attacked)
    return Bounds(max(0.0, lower), upper, upper > 0.999 * largest_loss)


def as_in_the_paper(threat: Threat, clean_loss: float, largest_loss: float = 1.0) -> Bounds:
    """Theorem 2: group privacy of the asymptotic μ = q·√(T·(e^{1/σ̃²} − 1)). Too small to be a bound.

    The paper takes ε ≥ 0; any real ε is as valid, and gives bounds that are at least as close.
    """
    _check_loss(clean_loss, largest_loss)
    if threat.noise < 0.045:  # μ is astronomical: the bound is B
        return Bounds(0.0, largest_loss, True)
    mu = threat.malicious * threat.client_rate * math.sqrt(threat.rounds * math.expm1(threat.noise**-2))
    return _bounds(lambda epsilon: gdp_delta(mu, epsilon), clean_loss, largest_loss)


@dataclass(frozen=True)
class CertifiedAccuracy:
    """What is certified of a test set, with confidence 1 − α over the clean runs that were measured."""

    confidence: float
    runs: int
    accuracy_kept: float
    """1 − x, x the largest error of a clean run."""
    probability: float
    """An attacked run releases a model of accuracy ≥ 1 − x with at least this probability, over its own randomness."""
    expected_accuracy: float
    """The expected accuracy of an attacked run's model is at least this."""


def certified_accuracy(threat: Threat, errors: Sequence[float], confidence: float) -> CertifiedAccuracy:
    """What K attackers leave of the accuracy on one fixed test set, from the test errors of independent clean runs.

    The runs share data, split and test set and differ in the randomness of training alone (sampling and noise). With M
    of them and x their largest error, P(a clean run errs on more than x) ≤ 1 − α^{1/M} with confidence 1 − α (Wilks,
    1941). "Errs on more than x" is a loss of 0 or 1, so :func:`rigorous` bounds its probability u under attack; the
    expected accuracy is at least (1 − x)·(1 − u). This holds for the randomness of training, whatever the attackers
    send; it says nothing of other test sets, nor of single records: for those, use :func:`rigorous` record by record.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must be in (0, 1), such as 0.99; got {confidence}")
    if not errors:
        raise ValueError("give the test error of at least one clean run; 100 and more make the statement strong")
    for error in errors:
        if not 0 <= error <= 1:
            raise ValueError(f"a test error must be in [0, 1], got {error}")
    worst = max(errors)
    exceeds = 1 - (1 - confidence) ** (1 / len(errors))
    attacked = rigorous(threat, exceeds).upper
    return CertifiedAccuracy(confidence, len(errors), 1 - worst, 1 - attacked, (1 - worst) * (1 - attacked))


def check_applies(*, normalise: str, validation: str, protocol: str = "precad") -> None:
    """Refuse a run that has no certificate, and say why."""
    if protocol != "precad":
        raise ValueError(f"there is no certificate with protocol = {protocol}: it is a property of precad's rounds")
    if validation == "none":
        raise ValueError(
            "there is no certificate with validation = none: one malicious client can set the sum to anything; "
            "use proof or triples"
        )
    if normalise == "realised":
        raise ValueError(
            "there is no certificate with normalise = realised: attackers change the number that every update, and "
            "the noise, is divided by; use constant"
        )


def _divergence(threat: Threat) -> Curve:
    """δ(ε), ε ≥ 0, between the runs with and without the attackers, the larger of both directions."""
    missed = math.log1p(-threat.client_rate) if threat.client_rate < 1 else -math.inf
    selected = -math.expm1(threat.malicious * threat.rounds * missed)
    if threat.noise < _LITTLE_NOISE:
        return lambda _epsilon: selected
    mechanism = Mechanism(threat.noise, threat.client_rate, threat.rounds)
    interval = min(0.1, max(_INTERVAL, 0.01 * threat.malicious / threat.noise))
    direct = direct_delta(mechanism, threat.malicious, interval)
    if threat.malicious == 1:
        return lambda epsilon: min(selected, direct(epsilon))
    generic = generic_delta(direct_delta(mechanism, 1, interval), threat.malicious)
    return lambda epsilon: min(selected, direct(epsilon), generic(epsilon))


def _bounds(delta: Curve, loss: float, largest: float) -> Bounds:
    """Optimise over ε ∈ ℝ; at −ε the divergence is 1 − e^-ε·(1 − δ'(ε)) with δ' of the other direction."""
    lower, upper = _on_grid(delta, _EPSILONS, loss, largest)
    best = int(np.argmin(upper))
    finer = np.linspace(_EPSILONS[max(0, best - 1)], _EPSILONS[min(best + 1, len(_EPSILONS) - 1)], 11)
    least = min(largest, float(upper[best]), float(_on_grid(delta, finer, loss, largest)[1].min()))
    return Bounds(max(0.0, float(lower.max())), least, least > 0.999 * largest)


def _on_grid(
    delta: Curve, epsilons: NDArray[np.float64], loss: float, largest: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A lower and an upper bound for each ε, the better of ε and −ε."""
    deltas = np.array([delta(epsilon) for epsilon in epsilons.tolist()])
    grown, shrunk = np.exp(epsilons), np.exp(-epsilons)
    lower = np.maximum(shrunk * (loss - largest * deltas), largest - grown * (largest - loss) - largest * deltas)
    upper = np.minimum(grown * loss + largest * deltas, largest - shrunk * (largest * (1 - deltas) - loss))
    return lower, upper


def _check_loss(clean_loss: float, largest_loss: float) -> None:
    if not (math.isfinite(largest_loss) and largest_loss > 0):
        raise ValueError(f"the largest loss must be a finite number above 0, got {largest_loss}")
    if not 0 <= clean_loss <= largest_loss:
        raise ValueError(f"the clean loss must be in [0, {largest_loss}], got {clean_loss}")
