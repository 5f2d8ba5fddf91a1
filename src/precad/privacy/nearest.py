"""Where a vacuous certificate begins to mean something: along each parameter by itself, the others held fixed.

Every answer is found by bisection on the rigorous bound and is on the safe side of it: there, the bound is kept.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

from precad.privacy.certificate import Threat, rigorous
from precad.privacy.epsilon import most

_PRECISE, _ROUGH = 1.001, 1.05


@dataclass(frozen=True)
class Nearest:
    """The nearest value of each parameter at which the bound is below the one wanted; None where no value helps."""

    noise: float | None
    """The least σ̃."""
    client_bound: float | None
    """The largest C, with the noise unchanged; None too where the noise is measured in C (unit client)."""
    rounds: int | None
    """The largest T."""
    client_rate: float | None
    """The largest q."""
    malicious: int | None
    """The largest K."""


def nearest(
    threat: Threat, client_bound: float | None, clean_loss: float, wanted: float, largest_loss: float = 1.0
) -> Nearest:
    """For a threat whose bound is not below ``wanted``; ``client_bound`` is C, None if the noise grows with it."""

    def keeps(changed: Threat) -> bool:
        return _kept(changed, clean_loss, wanted, largest_loss)

    noise = least_noise(threat, clean_loss, wanted, largest_loss)
    return Nearest(
        noise,
        None if client_bound is None else client_bound * threat.noise / noise,
        most(lambda rounds: keeps(replace(threat, rounds=rounds)), threat.rounds - 1, _ROUGH) or None,
        _largest_rate(lambda rate: keeps(replace(threat, client_rate=rate)), threat.client_rate),
        most(lambda malicious: keeps(replace(threat, malicious=malicious)), threat.malicious - 1, _ROUGH) or None,
    )


def least_noise(threat: Threat, clean_loss: float, wanted: float, largest_loss: float = 1.0) -> float:
    """The least σ̃, to three digits, from which on the rigorous upper bound is below ``wanted``."""
    if not clean_loss < wanted <= largest_loss:
        raise ValueError(
            f"the bound wanted must be in ({clean_loss}, {largest_loss}], above the clean loss; got {wanted}"
        )

    def keeps(noise: float) -> bool:
        return _kept(replace(threat, noise=noise), clean_loss, wanted, largest_loss)

    low = high = _likely_noise(threat, clean_loss / largest_loss, wanted / largest_loss)
    step = 1.01
    if keeps(high):
        while keeps(low):
            low, high, step = low / step, low, step**2
    else:
        while not keeps(high):
            low, high, step = high, high * step, step**2
    while high > low * _PRECISE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _likely_noise(threat: Threat, clean_loss: float, wanted: float) -> float:
    """Where Φ(Φ⁻¹(L) + K·q·√T/σ̃) is the loss wanted: exact at q = 1, and near enough to search from elsewhere."""
    apart = special.ndtri(min(wanted, 0.999)) - special.ndtri(max(clean_loss, 1e-6))
    return threat.malicious * threat.client_rate * math.sqrt(threat.rounds) / max(0.1, float(apart))


def attacked_loss(threat: Threat, clean_loss: float) -> float:
    """What two simple attacks reach, of a loss in [0, 1]: no certificate can be below it.

    The loss is 1 where a statistic of the rounds' noisy sums passes a threshold: their total, or their largest. All
    selected attackers move the sum by C.
    """
    counts = np.arange(threat.malicious + 1)
    weights = stats.binom.pmf(counts, threat.malicious, threat.client_rate)
    threshold = -special.ndtri(-math.expm1(math.log1p(-clean_loss) / threat.rounds)) if 0 < clean_loss < 1 else 0.0
    below = float(weights @ special.ndtr(threshold - counts / threat.noise))
    mean = threat.malicious * threat.rounds * threat.client_rate
    low = stats.binom.ppf([0.05, 0.5], threat.malicious * threat.rounds, threat.client_rate)
    moved = special.ndtr(special.ndtri(clean_loss) + low / (threat.noise * math.sqrt(threat.rounds)))
    total = 0.5 * moved[1] + 0.45 * moved[0] if mean > 0 else 0.0
    return float(max(total, 1 - below**threat.rounds if 0 < clean_loss < 1 else 0.0))


def _kept(threat: Threat, clean_loss: float, wanted: float, largest_loss: float) -> bool:
    """Whether the rigorous bound is below ``wanted``; it is not asked where an attack is known to reach that."""
    if largest_loss * attacked_loss(threat, clean_loss / largest_loss) >= wanted:
        return False
    return rigorous(threat, clean_loss, largest_loss).upper < wanted


def _largest_rate(keeps: Callable[[float], bool], known: float) -> float | None:
    """The largest rate below ``known``, within 5 %."""
    low = known
    while not keeps(low):
        low /= 4
        if low < 1e-9:
            return None
    high = 4 * low
    while high > low * _ROUGH:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
