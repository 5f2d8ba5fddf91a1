"""The verdict: whether what was measured is possible under the claimed trade-off curve."""

import math
from dataclasses import dataclass

import numpy as np

from precad.lab.canaries.bounds import Counted, Floats, Rates
from precad.lab.canaries.scores import DRAWS, claimed_scores, passing
from precad.privacy.terms import Mechanism
from precad.privacy.trade_off import TradeOff

NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""Parts of the claimed noise for which it is said whether the trials would have shown them."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One adversary's guesses by one test, and the claim that they are held against."""

    adversary: str
    test: str
    trials: int
    limits: Floats
    """The thresholds of the score, fixed before anything was measured."""
    rates: Rates
    claim: TradeOff
    epsilon: float
    """The ε of the claim at ``delta``."""
    delta: float
    law: Mechanism | None = None
    """Of the score, by the claim; None where only the trade-off is claimed."""

    def bounds(self, error: float) -> tuple[Floats, Floats]:
        """(most false positives, fewest true positives); all of them hold with probability ≥ 1 − error."""
        return self.rates.bounds(error / (2 * len(self.limits)))


@dataclass(frozen=True)
class Finding:
    """What one adversary's guesses say about the claim."""

    adversary: str
    test: str
    trials: int
    false_positives: float
    """Measured, at the threshold that speaks most clearly against the claim."""
    true_positives: float
    claimed: float
    """The most true positives that the claim allows at ``false_positives``."""
    epsilon_shown: float
    """ε is at least this, wrongly with probability ≤ the false-alarm probability of this test."""
    epsilon_claimed: float
    p_value: float
    """The probability of a result that speaks as clearly against a claim that is true, at most."""
    caught: bool
    would_catch: float | None
    """The largest part of the claimed noise with which as many trials would have caught the run, on average."""


def judge(measured: Measured, error: float, strength: float, rng: np.random.Generator) -> Finding:
    """Hold the rates against the claim, which is wrongly refuted with probability ≤ ``error``.

    Args:
        measured: The guesses and the claim.
        error: The false-alarm probability of this test. By the union bound, thresholds share it.
        strength: How far the canaries moved the sum, in units of the sensitivity, for ``would_catch``.
        rng: For a simulation of the claim with less noise.
    """
    p_values = np.minimum(1.0, len(measured.limits) * measured.rates.p_values(measured.claim))
    fpr, tpr = measured.rates.false_positives, measured.rates.true_positives
    allowed = measured.claim.power(fpr)
    worst = int(np.lexsort((allowed - tpr, p_values))[0])
    return Finding(
        adversary=measured.adversary,
        test=measured.test,
        trials=measured.trials,
        false_positives=float(fpr[worst]),
        true_positives=float(tpr[worst]),
        claimed=float(allowed[worst]),
        epsilon_shown=_epsilon(*measured.bounds(error), measured.delta),
        epsilon_claimed=measured.epsilon,
        p_value=float(p_values[worst]),
        caught=bool(p_values[worst] <= error),
        would_catch=_would_catch(measured, error, strength, rng),
    )


def _epsilon(most: Floats, least: Floats, delta: float) -> float:
    """The largest ε that true positives ≤ e^ε·false positives + δ needs, and the same with the worlds exchanged."""
    ratios = ((least - delta) / np.maximum(most, 1e-300), (1 - most - delta) / np.maximum(1 - least, 1e-300))
    return math.log(max(1.0, *(float(ratio.max()) for ratio in ratios)))


def _would_catch(measured: Measured, error: float, strength: float, rng: np.random.Generator) -> float | None:
    """By bisection: less noise is easier to catch."""
    rates, law = measured.rates, measured.law
    if law is None or not isinstance(rates, Counted):
        return None

    def catches(noise: float) -> bool:
        out, inside = (
            passing(claimed_scores(law, rng, present=present, noise=noise, strength=strength), measured.limits) / DRAWS
            for present in (False, True)
        )
        hits = ((part * trials).astype(np.int64) for part, trials in ((out, rates.out), (inside, rates.inside)))
        expected = Counted(next(hits), rates.out, next(hits), rates.inside)
        return bool((len(measured.limits) * expected.p_values(measured.claim)).min() <= error)

    low, high = 0, len(NOISES)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if catches(NOISES[middle]) else (low, middle)
    return NOISES[low - 1] if low else None
