"""What malicious clients send in place of their update: pure functions of vectors, and the same by name.

An update moves the model by θ_{t+1} = θ_t + η/N·Σ Δ_i, so that its weight is w = 1/N (paper, Threat Model).
"""

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist

import numpy as np

from precad.mpc import field, fixed_point
from precad.mpc.field import FieldVector
from precad.simulation import forging
from precad.simulation.problem import Attack, AttackContext, Floats

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


def _a_little(_: float, at: AttackContext) -> Floats:
    """Without an honest client in the round there is nothing to hide among."""
    if at.selected == at.attackers:
        return at.update
    return a_little_is_enough(at.honest_mean, at.honest_std, at.selected, at.attackers)


NAMES: dict[str, Callable[[float, AttackContext], Floats]] = {
    "boost": lambda factor, at: boost(at.update, at.round.params.client_bound, factor),
    "sign_flip": lambda factor, at: sign_flip(at.update, factor),
    "gaussian": lambda factor, at: gaussian(at.theta.size, factor * at.round.params.client_bound, at.rng),
    "alie": _a_little,
    "ipm": lambda factor, at: inner_product_manipulation(at.honest_mean, factor),
    "just_over": lambda _, at: _decoded(at, forging.just_over(at.round)),
    "wrap_around": lambda _, at: _decoded(at, forging.wrapped(at.round, 1)),
}
"""The untargeted attacks, from their strength and all that the attacker knows to what it sends.

The last two are of the cheating suite: the least norm above C, and the entry ⌈√p⌉.
"""


def named(name: str, factor: float) -> Attack:
    """The attack of this name in :data:`NAMES`; ``factor`` is how strong it is, where that can be chosen."""
    if name not in NAMES:
        raise ValueError(f"the attack is {name!r}, expected one of {', '.join(NAMES)}")
    return partial(NAMES[name], factor)


def within_bound(attack: Attack) -> Attack:
    """The same attack, by clients that cut what they send to exactly C: no norm check sees them."""
    return lambda at: clipped(attack(at), at.round.params.client_bound)


def _decoded(at: AttackContext, x: FieldVector) -> Floats:
    return fixed_point.decode(field.lift(x), at.round.params.fractional_bits)


def _check_factor(factor: float) -> None:
    if not factor > 0:
        raise ValueError(f"factor must be above 0, got {factor}")
