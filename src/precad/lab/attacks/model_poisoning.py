"""What malicious clients send in place of their update: pure functions of vectors.

An update moves the model by θ_{t+1} = θ_t + η/N·Σ Δ_i, so that its weight is w = 1/N (paper, Threat Model).
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SLACK = 1 - 2.0**-30  # clipping to C stays within C after rounding


def boost(update: Floats, bound: float, factor: float) -> Floats:
    """The update's direction at ``factor`` times the bound C."""
    _check_factor(factor)
    norm = float(np.linalg.norm(update))
    if norm == 0:
        return np.full_like(update, factor * bound / math.sqrt(update.size))
    return update * (factor * bound / norm)


def model_replacement(target: Floats, theta: Floats, learning_rate: float, normaliser: float, attackers: int) -> Floats:
    """1/(η·w)·(θ* − θ_t), split evenly over the attackers of the round (Bagdasaryan et al., 2020).

    If the honest updates cancel out, the next model is the attackers' θ*.
    """
    if attackers < 1:
        raise ValueError(f"attackers must be at least 1, got {attackers}")
    return (target - theta) * (normaliser / (learning_rate * attackers))


def sign_flip(update: Floats, factor: float) -> Floats:
    """The honest update, backwards, ``factor`` times as long."""
    _check_factor(factor)
    return -factor * update


def gaussian(dim: int, norm: float, rng: np.random.Generator) -> Floats:
    """A normal vector whose length is ``norm`` in expectation (of its square)."""
    return rng.normal(0.0, norm / math.sqrt(dim), dim)


def a_little_is_enough(mean: Floats, std: Floats, selected: int, attackers: int) -> Floats:
    """The honest mean less z of the honest standard deviations, coordinate by coordinate (Baruch et al., 2019).

    z is the largest for which enough honest clients lie further out than the attackers to form a majority with them:
    Φ(z) = (n − m − s)/(n − m), s = ⌊n/2 + 1⌋ − m, for m attackers among n clients.
    """
    honest = selected - attackers
    if attackers < 1 or honest < 1:
        raise ValueError(f"attackers must be in [1, {selected - 1}], for {selected} clients, got {attackers}")
    supporters = max(selected // 2 + 1 - attackers, 0)
    share = min(max((honest - supporters) / honest, 0.5), 0.999)  # finite, and never an improvement
    return mean - NormalDist().inv_cdf(share) * std


def inner_product_manipulation(mean: Floats, factor: float) -> Floats:
    """−factor times the honest mean (Xie et al., 2020): the sum points away from the gradient's descent."""
    _check_factor(factor)
    return -factor * mean


def clipped(vector: Floats, bound: float) -> Floats:
    """Cut to the bound C: the longest that the protocol admits of a longer vector."""
    norm = float(np.linalg.norm(vector))
    return vector * (bound * _SLACK / norm) if norm > bound * _SLACK else vector


def _check_factor(factor: float) -> None:
    if not factor > 0:
        raise ValueError(f"factor must be above 0, got {factor}")
