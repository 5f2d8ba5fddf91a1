"""The last line of Algorithm 1: what the sum is divided by, and how the model moves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.protocol.params import Normalise, Unit
from precad.protocol.update import Model, Optimiser, Schedule, next_model, normaliser

SIZES = {"bank": 100, "clinic": 200, "lab": 300}


def test_the_model_moves_by_the_mean_of_the_noisy_sum() -> None:
    theta = np.array([1.0, -1.0, 0.0])
    before = Model.initial(theta, Optimiser.SGD)
    moved = next_model(before, np.array([1.0, 2.0, -1.0]), 10.0, 0.5, Optimiser.SGD)
    assert moved.theta.tolist() == [1.05, -0.9, -0.05]
    assert theta.tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_a_wrong_normaliser_is_named(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"normaliser N.* 0.*{wrong}"):
        next_model(Model.initial(np.zeros(1), Optimiser.SGD), np.zeros(1), wrong, 1.0, Optimiser.SGD)


@pytest.mark.parametrize("optimiser", Optimiser)
def test_without_a_mean_the_model_stays(optimiser: Optimiser) -> None:
    before = next_model(Model.initial(np.ones(2), optimiser), np.ones(2), 1.0, 1.0, optimiser)
    assert next_model(before, np.full(2, 1e9), 0.0, 1.0, optimiser) is before


@pytest.mark.parametrize(
    ("rule", "unit", "valid", "expected"),
    [
        (Normalise.CONSTANT, Unit.RECORD, (), 0.5 * 0.1 * 600),
        (Normalise.CONSTANT, Unit.RECORD, ("lab",), 0.5 * 0.1 * 600),
        (Normalise.CONSTANT, Unit.CLIENT, ("lab",), 0.5 * 3),
        (Normalise.REALISED, Unit.RECORD, ("bank", "lab"), 0.1 * 400),
        (Normalise.REALISED, Unit.CLIENT, ("bank", "lab"), 2),
        (Normalise.REALISED, Unit.RECORD, (), 0),
        (Normalise.REALISED, Unit.CLIENT, (), 0),
    ],
)
def test_the_normaliser(rule: Normalise, unit: Unit, valid: tuple[str, ...], expected: float) -> None:
    found = normaliser(rule, unit, client_rate=0.5, record_rate=0.1, records=SIZES, valid=valid)
    assert found == pytest.approx(expected, rel=1e-15)


@given(st.sets(st.sampled_from(sorted(SIZES))), st.sampled_from(list(Unit)))
def test_both_rules_agree_where_all_take_part(valid: set[str], unit: Unit) -> None:
    """With q = 1 and all valid both are the same number; the order of the valid ones changes no bit."""

    def found(rule: Normalise, who: list[str]) -> float:
        return normaliser(rule, unit, client_rate=1.0, record_rate=0.1, records=SIZES, valid=who)

    assert found(Normalise.CONSTANT, []) == found(Normalise.REALISED, list(SIZES))
    assert found(Normalise.REALISED, sorted(valid)) == found(Normalise.REALISED, sorted(valid, reverse=True))


def test_the_learning_rate_falls_along_a_line() -> None:
    falling = Schedule(learning_rate=2.0, final_learning_rate=1.0)
    assert [falling.learning_rate_at(step, 11) for step in (0, 5, 10)] == [2.0, 1.5, 1.0]
    assert Schedule(learning_rate=0.5).learning_rate_at(3, 11) == 0.5
    assert falling.learning_rate_at(0, 1) == 2.0


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_schedule_that_nobody_can_follow(value: float) -> None:
    with pytest.raises(ValueError, match=f"^learning_rate.*{value}"):
        Schedule(learning_rate=value)
    with pytest.raises(ValueError, match=f"final_learning_rate.*{value}"):
        Schedule(learning_rate=1.0, final_learning_rate=value)


def test_momentum_adds_up_what_came_before() -> None:
    model = Model.initial(np.zeros(1), Optimiser.MOMENTUM)
    for _ in range(3):
        model = next_model(model, np.ones(1), 1.0, 1.0, Optimiser.MOMENTUM)
    assert model.first[0] == pytest.approx(1 + 0.9 + 0.81)
    assert model.theta[0] == pytest.approx(1 + 1.9 + 2.71)


def test_adam_is_that_of_the_paper() -> None:
    """Against Algorithm 1 of Kingma and Ba, written out, for a few steps."""
    rng = np.random.default_rng(0)
    model, m, v, theta = Model.initial(np.zeros(5), Optimiser.ADAM), np.zeros(5), np.zeros(5), np.zeros(5)
    for t in range(1, 6):
        g = rng.standard_normal(5)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        theta = theta - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        model = next_model(model, -g, 1.0, 0.01, Optimiser.ADAM)
    assert model.theta == pytest.approx(theta, rel=1e-12)
