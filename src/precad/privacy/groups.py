"""What K records or clients together lose: the privacy of a group, rigorous.

Two bounds, of which the smaller counts. *Direct*: each of the K is in a sample independently of the others, so in each
round Binomial(K, rate) of them move the sum, at worst all one way: a mixture of Gaussians, composed (shifts of full
length along one line dominate all others: Choquette-Choo et al., *Privacy Amplification for Matrix Mechanisms*, 2024).
It is proven for members that take part in the same rounds, such as records of one client; at rate 1 for all, since
rounds apart are further from the worst. *Generic*: K times one step to a neighbour (Vadhan, *The Complexity of
Differential Privacy*, 2017, Lemma 2.2), which holds for every accountant, and whenever the members take part.
"""

import math
from collections.abc import Callable
from functools import lru_cache, reduce

from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from precad.privacy.accounting import Accountant, PldAccountant
from precad.privacy.terms import Composition, Mechanism, Mechanisms

MAX_GROUP = 1000
"""Larger groups are not accounted for: no privacy is left for them, and the mixture has as many parts as members."""
MAX_EPSILON = 500.0
"""An ε above this is no promise, and is given as infinity."""

Curve = Callable[[float], float]
"""δ as a function of ε."""


def direct_delta(mechanism: Mechanisms, size: int, interval: float) -> Curve:
    """δ(ε) when Binomial(K, rate) of the group are in each sample, each moving the sum by 1, all one way."""
    _check_size(size)
    if mechanism.hopeless(size):
        return lambda _epsilon: 1.0
    if size == 1 or all(part.rate == 1 for part in mechanism.parts):
        whole = Composition.of(
            Mechanism(part.noise_multiplier / size, part.rate, part.steps) for part in mechanism.parts
        )
        return lambda epsilon: PldAccountant(interval=interval).delta(whole, epsilon)
    return _mixture(mechanism, size, interval).get_delta_for_epsilon  # type: ignore[no-any-return]


def generic_delta(single: Curve, size: int) -> Curve:
    """(ε/K, δ) for one is (ε, δ·(e^ε − 1)/(e^{ε/K} − 1)) for K."""
    _check_size(size)

    def delta(epsilon: float) -> float:
        share = epsilon / size
        factor = size if epsilon == 0 else math.expm1(epsilon) / math.expm1(share)
        return min(1.0, single(share) * factor)

    return delta


def group_epsilon(accountant: Accountant, mechanism: Mechanisms, size: int, delta: float) -> float:
    """An ε, a little above the least, for which a group of ``size`` has (ε, δ); infinite above :data:`MAX_EPSILON`.

    A rigorous accountant only; direct accounting is tried beside the generic bound if it is the PLD accountant.
    """
    if not accountant.rigorous:
        raise ValueError(f"the {accountant.name} accountant is no bound: it has no rigorous group privacy")
    _check_size(size)
    if size == 1:
        return accountant.epsilon(mechanism, delta)
    if mechanism.steps == 0:
        return 0.0
    curves = [generic_delta(lambda epsilon: accountant.delta(mechanism, epsilon), size)]
    if isinstance(accountant, PldAccountant):
        # Each loss is of the order of rate·K/σ; a coarser grid is faster, and its figure a bound too.
        width = max(min(0.02, 0.4 * part.rate) * size / part.noise_multiplier for part in mechanism.parts)
        curves.append(direct_delta(mechanism, size, max(accountant.interval, width)))
    return min(_epsilon(curve, delta) for curve in curves)


@lru_cache(maxsize=64)
def _mixture(mechanism: Mechanisms, size: int, interval: float) -> pld.PrivacyLossDistribution:
    repeated = (
        _once(part.noise_multiplier, part.rate, size, interval).self_compose(part.steps) for part in mechanism.parts
    )
    return reduce(pld.PrivacyLossDistribution.compose, repeated)


@lru_cache(maxsize=64)
def _once(sigma: float, rate: float, size: int, interval: float) -> pld.PrivacyLossDistribution:
    counts = range(size + 1)
    weights = stats.binom.pmf(counts, size, rate)
    return pld.from_mixture_gaussian_mechanism(
        sigma,
        sensitivities=[float(count) for count in counts],
        sampling_probs=(weights / weights.sum()).tolist(),
        value_discretization_interval=interval,
    )


def _epsilon(curve: Curve, delta: float) -> float:
    """By bisection: δ falls as ε grows."""
    low, high = 0.0, 1.0
    if curve(low) <= delta:
        return low
    while curve(high) > delta:
        low, high = high, 2 * high
        if high > MAX_EPSILON:
            return math.inf
    while high - low > 1e-5 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def _check_size(size: int) -> None:
    if type(size) is not int or not 1 <= size <= MAX_GROUP:
        raise ValueError(f"the size of a group K must be a whole number in [1, {MAX_GROUP}], got {size}")
