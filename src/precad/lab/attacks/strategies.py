"""Attacks by name: what a malicious client makes of all that it knows."""

from collections.abc import Callable
from functools import partial

from precad.lab.attacks import model_poisoning
from precad.lab.attacks.model_poisoning import Floats
from precad.mpc import field, fixed_point
from precad.mpc.field import FieldVector
from precad.simulation import forging
from precad.simulation.problem import Attack, AttackContext


def named(name: str, factor: float) -> Attack:
    """One of :data:`NAMES`; ``factor`` is how strong it is, where that can be chosen."""
    if name not in NAMES:
        raise ValueError(f"the attack is {name!r}, expected one of {', '.join(NAMES)}")
    return partial(NAMES[name], factor)


def within_bound(attack: Attack) -> Attack:
    """The same attack, by clients that cut what they send to exactly C: no norm check sees them."""

    def adapted(context: AttackContext) -> Floats:
        return model_poisoning.clipped(attack(context), context.round.params.client_bound)

    return adapted


def _boost(factor: float, context: AttackContext) -> Floats:
    return model_poisoning.boost(context.update, context.round.params.client_bound, factor)


def _sign_flip(factor: float, context: AttackContext) -> Floats:
    return model_poisoning.sign_flip(context.update, factor)


def _gaussian(factor: float, context: AttackContext) -> Floats:
    return model_poisoning.gaussian(context.theta.size, factor * context.round.params.client_bound, context.rng)


def _a_little(factor: float, context: AttackContext) -> Floats:  # noqa: ARG001 - its z is computed
    if context.selected == context.attackers:
        return context.update
    return model_poisoning.a_little_is_enough(
        context.honest_mean, context.honest_std, context.selected, context.attackers
    )


def _inner_product(factor: float, context: AttackContext) -> Floats:
    return model_poisoning.inner_product_manipulation(context.honest_mean, factor)


def _just_over(factor: float, context: AttackContext) -> Floats:  # noqa: ARG001
    return _on_the_grid(context, forging.just_over(context.round))


def _wrapped(factor: float, context: AttackContext) -> Floats:  # noqa: ARG001
    return _on_the_grid(context, forging.wrapped(context.round, 1))


NAMES: dict[str, Callable[[float, AttackContext], Floats]] = {
    "boost": _boost,
    "sign_flip": _sign_flip,
    "gaussian": _gaussian,
    "alie": _a_little,
    "ipm": _inner_product,
    "just_over": _just_over,
    "wrap_around": _wrapped,
}
"""The untargeted attacks. The last two are of the cheating suite: the least norm above C, and the entry ⌈√p⌉."""


def _on_the_grid(context: AttackContext, x: FieldVector) -> Floats:
    return fixed_point.decode(field.lift(x), context.round.params.fractional_bits)
