from functools import partial

import numpy as np
import pytest

from precad.lab.attacks import model_poisoning
from precad.mpc import field, fixed_point
from precad.mpc.prg import digest
from precad.privacy import clipping
from precad.protocol.params import Params, Round
from precad.simulation.problem import AttackContext
from tests.messages import says

DIM = 50
PARAMS = Params(dim=DIM, clients=10, record_bound=2.0, client_bound=30.0, noise_multiplier=1.0)

NAME = digest(b"precad test")


def context(**changes: object) -> AttackContext:
    rng = np.random.default_rng(3)
    values: dict[str, object] = {
        "round": Round(PARAMS, NAME, 4, NAME, NAME),
        "client": "client-01",
        "train": partial(rng.normal, size=DIM),
        "theta": rng.normal(size=DIM),
        "learning_rate": 0.1,
        "normaliser": 300.0,
        "selected": 10,
        "attackers": 2,
        "honest_mean": rng.normal(size=DIM),
        "honest_std": np.ones(DIM),
        "rng": rng,
    }
    return AttackContext(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", model_poisoning.NAMES)
def test_every_attack_sends_a_finite_vector_and_adapts_to_c(name: str) -> None:
    attack = model_poisoning.named(name, 10.0)
    assert attack(context()).shape == (DIM,)
    adapted = model_poisoning.within_bound(attack)(context())
    assert np.all(np.isfinite(adapted))
    grid = fixed_point.encode(adapted, PARAMS.fractional_bits)
    assert clipping.squared_norm(grid) <= PARAMS.squared_bound


def test_the_cheats_are_on_the_grid_what_the_suite_makes() -> None:
    over = fixed_point.encode(model_poisoning.named("just_over", 1.0)(context()), PARAMS.fractional_bits)
    assert clipping.squared_norm(over) == PARAMS.squared_bound + 1
    wrapped = fixed_point.encode(model_poisoning.named("wrap_around", 1.0)(context()), PARAMS.fractional_bits)
    assert wrapped[0] == 1_518_500_250
    assert field.dot(field.embed(wrapped), field.embed(wrapped)) < PARAMS.squared_bound


def test_with_nobody_honest_in_the_round_there_is_nothing_to_hide_among() -> None:
    alone = context(selected=2, attackers=2)
    assert model_poisoning.named("alie", 1.0)(alone) is alone.update


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(ValueError, match=says("attack", "'nice'", "boost", "sign_flip")):
        model_poisoning.named("nice", 1.0)
