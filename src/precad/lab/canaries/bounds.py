"""What a number of guesses proves: whether a claimed trade-off allows them, and bounds on both rates.

All p-values and bounds are exact or on the safe side for any number of trials. That both rates are near a curve is
tested at every point of the curve: a claim is refuted if each of its points is.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from precad.privacy.trade_off import TradeOff

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_ALPHAS = np.concatenate([[0.0], special.expit(np.linspace(-14.0, 14.0, 1400)), [1.0]])
"""Rates of false positives, at which a curve is looked at; between two of them, each rate takes its better side."""
_BETS, _LARGEST_STAKE = 16, 0.9


class Rates(Protocol):
    """Two rates at each of several thresholds, and how surely they are known."""

    @property
    def false_positives(self) -> Floats:
        """Measured, at each threshold."""

    @property
    def true_positives(self) -> Floats:
        """Measured, at each threshold."""

    def p_values(self, claim: TradeOff) -> Floats:
        """At each threshold: how probable a result is, at most, that speaks as clearly against a claim that is true."""

    def bounds(self, error: float) -> tuple[Floats, Floats]:
        """(most false positives, fewest true positives): each number is wrong with probability ≤ ``error``."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Rates of independent trials."""

    out_hits: Integers
    """How many trials without the canary passed each threshold."""
    out: int
    """How many there were."""
    in_hits: Integers
    inside: int

    @property
    def false_positives(self) -> Floats:
        """Measured, at each threshold."""
        return self.out_hits / max(1, self.out)

    @property
    def true_positives(self) -> Floats:
        """Measured, at each threshold."""
        return self.in_hits / max(1, self.inside)

    def p_values(self, claim: TradeOff) -> Floats:
        """Two exact binomial tails, combined as Fisher (1925) does, at the point of the curve that explains them best.

        Trials whose probabilities differ are only less spread than binomial ones (Hoeffding, 1956).
        """
        few = special.bdtr(self.out_hits[:, None], self.out, _ALPHAS[:-1])
        many = special.bdtrc(self.in_hits[:, None] - 1, self.inside, claim.power(_ALPHAS[1:]))
        both = np.maximum(np.where(self.in_hits[:, None] > 0, many, 1.0) * few, np.finfo(np.float64).tiny)
        best: Floats = (both * (1 - np.log(both))).max(axis=1)
        return np.minimum(1.0, best)

    def bounds(self, error: float) -> tuple[Floats, Floats]:
        """By Clopper and Pearson (1934)."""
        most = special.betaincinv(self.out_hits + 1.0, np.maximum(self.out - self.out_hits, 1e-9), 1 - error)
        least = special.betaincinv(np.maximum(self.in_hits, 1e-9), self.inside - self.in_hits + 1.0, error)
        return np.where(self.out_hits < self.out, most, 1.0), np.where(self.in_hits > 0, least, 0.0)


@dataclass(frozen=True, eq=False)
class ByRun:
    """Rates of trials that share a run and may depend on each other; only the runs are independent.

    A canary is in with probability ½, so that twice the part of all canaries that are in and pass has the rate of true
    positives as its mean; and so for those that are out.
    """

    out_parts: Floats
    """(runs, thresholds): of all canaries of a run, the part that is out and passes."""
    in_parts: Floats

    @property
    def false_positives(self) -> Floats:
        """Measured, at each threshold."""
        return _doubled_mean(self.out_parts)

    @property
    def true_positives(self) -> Floats:
        """Measured, at each threshold."""
        return _doubled_mean(self.in_parts)

    def p_values(self, claim: TradeOff) -> Floats:
        """By bets (Waudby-Smith and Ramdas, *Estimating Means of Bounded Random Variables by Betting*, 2024).

        Each (ε, δ) of a claim, in both directions, says of some number of a run that its mean is at most 0. A gambler
        who bets on more has no more money on average at the end than at the start, so that a mean fortune of 1/p has
        probability ≤ p (Markov).
        """
        some = np.linspace(0, len(claim.epsilons) - 1, min(_BETS, len(claim.epsilons))).astype(np.int64)
        money = []
        for epsilon, delta in zip(claim.epsilons[some].tolist(), claim.deltas[some].tolist(), strict=True):
            odds = math.exp(min(epsilon, 700.0))
            money.append(_fortune(self.in_parts - odds * self.out_parts - delta / 2, odds + delta / 2))
            exchanged = (0.5 - self.out_parts) - odds * (0.5 - self.in_parts) - delta / 2
            money.append(_fortune(exchanged, (1 + odds + delta) / 2))
        mean: Floats = np.mean(money, axis=0)
        return np.minimum(1.0, 1 / np.maximum(mean, 1e-300))

    def bounds(self, error: float) -> tuple[Floats, Floats]:
        """By Hoeffding (1963)."""
        away = 2 * math.sqrt(math.log(1 / error) / (2 * max(1, len(self.out_parts))))
        return np.minimum(1.0, self.false_positives + away), np.maximum(0.0, self.true_positives - away)


def _doubled_mean(parts: Floats) -> Floats:
    mean: Floats = 2 * parts.sum(0) / max(1, len(parts))
    return np.minimum(1.0, mean)


def _fortune(x: Floats, most_lost: float) -> Floats:
    """What bets on x > 0 make of 1, at each threshold, if x ≥ −``most_lost``. A stake rests on earlier runs alone."""
    money, total, squares = np.ones(x.shape[1]), np.zeros(x.shape[1]), np.full(x.shape[1], most_lost**2 / 4)
    for each in x:
        stake = np.clip(total / squares, 0.0, _LARGEST_STAKE / most_lost)
        money = money * (1 + stake * each)
        total, squares = total + each, squares + each**2
    return money
