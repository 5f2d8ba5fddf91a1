"""Accountants: from what an adversary sees to (ε, δ) (PROTOCOL §7, §7a; paper, Theorem 1).

Neighbouring data sets differ in one record (or client) that is replaced by a null one, whose gradient is zero. What an
adversary sees of it is a Poisson-subsampled Gaussian mechanism, composed: a ``Mechanism``; of several runs, a
``Composition`` of them. The figure of a run is :func:`precad.privacy.epsilon.epsilon`, that of several
:func:`precad.privacy.epsilon.total`; nothing else enforces a budget.

**The paper's figure against clients only is not valid for records** (Theorem 1, case 2): all records of a client share
one selection, so the sampling of clients never amplifies a record. :func:`paper_clients_epsilon` computes it, for
comparison.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Protocol

import dp_accounting
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, special

from precad.privacy.terms import Mechanism, Mechanisms

_ORDERS = (*range(2, 64), 128, 256, 512, 1024)  # whole ones: exact sums, where others are slow and may not converge


class Accountant(Protocol):
    """One way to turn a mechanism into (ε, δ)."""

    name: str
    rigorous: bool
    """Whether the figure is a proven bound. Only such an accountant may enforce a budget."""

    def epsilon(self, mechanism: Mechanisms, delta: float) -> float:
        """The ε of this mechanism at δ."""

    def delta(self, mechanism: Mechanisms, epsilon: float) -> float:
        """The δ of this mechanism at ε."""


@dataclass(frozen=True)
class PldAccountant:
    """Privacy loss distributions, by Google's library: rigorous, and tight to four digits."""

    interval: float = 5e-4
    """The grid of privacy losses. Each is rounded against us, so on a coarser grid the figure is a bound too.

    Every ε of a run is on this one; groups and certificates need many δ(ε), and say which coarser one they take. It is
    widened by 1/(2σ)² where σ < ½: losses, and ε, are larger there.
    """
    replace_one: bool = False
    """Neighbours differ in one record exchanged for another, not for a null one."""
    name = "pld"
    rigorous = True

    def epsilon(self, mechanism: Mechanisms, delta: float) -> float:
        """The least ε, on a grid, for which the mechanism is (ε, δ)-DP; infinite if :attr:`Mechanism.hopeless`."""
        _check_delta(delta)
        if mechanism.steps == 0 or mechanism.hopeless():
            return math.inf if mechanism.steps else 0.0
        return float(_composed(mechanism, self.interval, self.replace_one).get_epsilon_for_delta(delta))

    def delta(self, mechanism: Mechanisms, epsilon: float) -> float:
        """An upper bound on δ at ε."""
        if mechanism.steps == 0 or mechanism.hopeless():
            return 1.0 if mechanism.steps else 0.0
        return float(_composed(mechanism, self.interval, self.replace_one).get_delta_for_epsilon(epsilon))


EXCHANGED = PldAccountant(replace_one=True)
"""For comparison: what it costs where a record may be exchanged for another."""


@dataclass(frozen=True)
class RdpAccountant:
    """Rényi differential privacy, by Google's library: rigorous, and less tight."""

    name = "rdp"
    rigorous = True

    def epsilon(self, mechanism: Mechanisms, delta: float) -> float:
        """The ε of the best order."""
        _check_delta(delta)
        return float(_composed_rdp(mechanism).get_epsilon(delta)) if mechanism.steps else 0.0

    def delta(self, mechanism: Mechanisms, epsilon: float) -> float:
        """The δ of the best order."""
        return float(_composed_rdp(mechanism).get_delta(epsilon)) if mechanism.steps else 0.0


@dataclass(frozen=True)
class GdpAccountant:
    """The paper's accountant: μ-GDP by the central limit theorem. Asymptotic, and too small: never a bound."""

    name = "gdp"
    rigorous = False

    def mu(self, mechanism: Mechanisms) -> float:
        """μ = p·√(T·(e^{1/σ²} − 1)) (paper, Theorem 1); of several mechanisms, the root of the sum of their squares."""
        return math.hypot(
            *(part.rate * math.sqrt(part.steps * math.expm1(part.noise_multiplier**-2)) for part in mechanism.parts)
        )

    def epsilon(self, mechanism: Mechanisms, delta: float) -> float:
        """The ε at which :meth:`delta` falls to δ."""
        return gdp_epsilon(self.mu(mechanism), delta)

    def delta(self, mechanism: Mechanisms, epsilon: float) -> float:
        """δ(ε) of μ-GDP (paper, equation 3)."""
        return gdp_delta(self.mu(mechanism), epsilon)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), without overflow."""
    if mu == 0:
        return 0.0
    upper = special.ndtr(-epsilon / mu + mu / 2)
    return float(upper - math.exp(min(700.0, epsilon + special.log_ndtr(-epsilon / mu - mu / 2))))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The ε at which :func:`gdp_delta` falls to δ."""
    _check_delta(delta)
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gdp_delta(mu, high) > delta:
        high *= 2
    return float(optimize.brentq(lambda epsilon: gdp_delta(mu, epsilon) - delta, 0.0, high, xtol=1e-12))


def paper_clients_epsilon(*, sigma: float, record_rate: float, client_rate: float, rounds: int, delta: float) -> float:
    """The paper's figure against clients only, for records. **Not valid**: see the module's docstring."""
    claimed = Mechanism(math.sqrt(2) * sigma, client_rate * record_rate, rounds)
    return GdpAccountant().epsilon(claimed, delta)


@lru_cache(maxsize=32)
def _composed(mechanism: Mechanisms, interval: float, replace_one: bool) -> pld.PrivacyLossDistribution:
    """All parts on one grid, the widest that one of them needs."""
    width = interval * max(1.0, *((2 * part.noise_multiplier) ** -2 for part in mechanism.parts))
    repeated = (_repeated(part, width, replace_one) for part in mechanism.parts)
    return reduce(pld.PrivacyLossDistribution.compose, repeated)


@lru_cache(maxsize=32)
def _repeated(mechanism: Mechanism, interval: float, replace_one: bool) -> pld.PrivacyLossDistribution:
    return _once(mechanism.noise_multiplier, mechanism.rate, interval, replace_one).self_compose(mechanism.steps)


@lru_cache(maxsize=64)
def _once(sigma: float, rate: float, interval: float, replace_one: bool) -> pld.PrivacyLossDistribution:
    relation = dp_accounting.NeighboringRelation
    return pld.from_gaussian_mechanism(
        sigma,
        value_discretization_interval=interval,
        sampling_prob=rate,
        use_connect_dots=True,
        neighboring_relation=relation.REPLACE_ONE if replace_one else relation.ADD_OR_REMOVE_ONE,
    )


@lru_cache(maxsize=64)
def _composed_rdp(mechanism: Mechanisms) -> rdp.RdpAccountant:
    accountant = rdp.RdpAccountant(_ORDERS)
    for part in mechanism.parts:
        event = dp_accounting.GaussianDpEvent(part.noise_multiplier)
        if part.rate < 1:
            event = dp_accounting.PoissonSampledDpEvent(part.rate, event)
        accountant.compose(event, part.steps)
    return accountant


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
