"""Scores by which an adversary tells canaries that are in from those that are out, and thresholds for them.

A trial's number z is what the adversary sees along the canary's direction, in units of the sensitivity: N(0, σ²) if
the canary is out, and moved by at most 1 with probability p if it is in. The best score is the logarithm of the
likelihood ratio; those of independent rounds add up (Neyman and Pearson).
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from precad.privacy.accounting import GdpAccountant
from precad.privacy.terms import Mechanism

Floats = NDArray[np.float64]

DRAWS = 4000
"""Of a simulation of the claim."""
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)


def score(z: Floats, mechanism: Mechanism) -> Floats:
    """log(likelihood if in / likelihood if out) of one round, less that of z = 0: it grows with z."""
    return _ratio(z, mechanism) - _ratio(np.zeros(1), mechanism)


def doubled(mechanism: Mechanism) -> Mechanism:
    """The same with another noise subtracted."""
    return replace(mechanism, noise_multiplier=math.sqrt(2) * mechanism.noise_multiplier)


def stretch(mechanism: Mechanism) -> int:
    """How many rounds make a claim of about ½-GDP: trials of that size say most, for their rounds."""
    return math.ceil((0.5 / GdpAccountant().mu(mechanism)) ** 2)


def _ratio(z: Floats, mechanism: Mechanism) -> Floats:
    shifted: Floats = (2 * z - 1) / (2 * mechanism.noise_multiplier**2)
    if mechanism.rate == 1:
        return shifted
    mixed: Floats = np.logaddexp(math.log1p(-mechanism.rate), math.log(mechanism.rate) + shifted)
    return mixed


def claimed_scores(
    mechanism: Mechanism, rng: np.random.Generator, *, present: bool, noise: float = 1.0, strength: float = 1.0
) -> Floats:
    """Sums of scores over ``mechanism.steps`` rounds, as the claim has them.

    Args:
        mechanism: The claim, by which scores are computed too.
        rng: For a simulation of the claim, apart from everything that is tested.
        present: Whether the canary is in.
        noise: The part of the claimed noise that is there: 1 is the claim.
        strength: How far a canary moves the sum, in units of the sensitivity.
    """
    total = np.zeros(DRAWS)
    for _ in range(mechanism.steps):
        z = noise * mechanism.noise_multiplier * rng.standard_normal(DRAWS)
        if present:
            z += strength * (rng.random(DRAWS) < mechanism.rate)
        total += score(z, mechanism)
    return total


def thresholds(mechanism: Mechanism, rng: np.random.Generator) -> Floats:
    """Fixed before anything is measured: quantiles of the claim's own scores, and two for noise that is not there.

    Without noise the score of a canary that is out is 0, and each round in which one is drawn adds ``score(1)``: half
    of that tells them apart where one round is enough, half of its mean where it takes all.
    """
    both = np.concatenate([claimed_scores(mechanism, rng, present=present) for present in (False, True)])
    step = float(score(np.ones(1), mechanism)[0])
    silent = (step / 2, step * mechanism.rate * mechanism.steps / 2)
    return np.unique(np.concatenate([np.quantile(both, _LEVELS), silent]))


def passing(scores: Floats, limits: Floats) -> NDArray[np.int64]:
    """How many scores are above each threshold."""
    count: NDArray[np.int64] = np.sum(scores[:, None] > limits, axis=0, dtype=np.int64)
    return count
