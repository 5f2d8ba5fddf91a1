"""The trade-off curve that an ε stands for: how well anyone may tell whether a record is in (PROTOCOL §7a).

Whoever says "in" for a part α of the data sets without a record says it for at most 1 − f(α) of those with it, whatever
it computes; f is the trade-off function (Dong, Roth and Su, *Gaussian Differential Privacy*, 2022). It holds the whole
curve δ(ε), of which a printed ε is one point.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from precad.privacy.accounting import PldAccountant
from precad.privacy.terms import MIN_SIGMA, Adversary, Terms

Floats = NDArray[np.float64]

_POINTS = 64
_SMALLEST_DELTA = 1e-9


@dataclass(frozen=True, eq=False)
class TradeOff:
    """A claim as pairs (ε, δ), all of which hold. More pairs say more; any of them are true."""

    epsilons: Floats
    deltas: Floats

    def power(self, false_positives: Floats) -> Floats:
        """The largest rate of true positives at each rate α of false ones.

        For all ε ≥ 0 it is at most e^ε·α + δ(ε), and, with the two worlds exchanged, 1 − e^-ε·(1 − δ(ε) − α).
        """
        alpha, odds = np.asarray(false_positives, np.float64)[..., None], np.exp(np.minimum(self.epsilons, 700.0))
        above = odds * alpha + self.deltas
        below = 1 - (1 - self.deltas - alpha) / odds
        most: Floats = np.minimum(1.0, np.minimum(above, below).min(axis=-1))
        return most


@cache
def trade_off(terms: Terms, adversary: Adversary, participations: int) -> TradeOff:
    """What the terms of a run claim after so many participations, by the accountant of every printed ε."""
    if participations == 0:
        return TradeOff(np.zeros(1), np.zeros(1))
    if terms.sigma_seen(adversary) < MIN_SIGMA:
        return TradeOff(np.zeros(1), np.ones(1))
    accountant, mechanism = PldAccountant(), terms.mechanism(adversary, participations)
    last = min(accountant.epsilon(mechanism, _SMALLEST_DELTA), 700.0)
    epsilons = np.linspace(0.0, last, _POINTS)
    deltas = [
        accountant.delta(mechanism, epsilon) + terms.sampler_delta(adversary, mechanism.steps, epsilon)
        for epsilon in epsilons.tolist()
    ]
    return TradeOff(epsilons, np.minimum(1.0, deltas))
