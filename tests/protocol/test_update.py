"""The last line of Algorithm 1."""

import numpy as np
import pytest

from precad.protocol.update import Model, Optimiser, mean_update, next_model
from tests.messages import says


def test_the_model_moves_by_the_mean_of_the_noisy_sum() -> None:
    theta = np.array([1.0, -1.0, 0.0])
    update = mean_update(np.array([65536, 131072, -65536]), fractional_bits=16, normaliser=10.0)
    moved = next_model(Model.initial(theta, Optimiser.SGD), update, learning_rate=0.5)
    assert moved.theta.tolist() == [1.05, -0.9, -0.05]
    assert theta.tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize("normaliser", [0.0, -1.0, float("nan")])
def test_a_wrong_normaliser_is_named(normaliser: float) -> None:
    with pytest.raises(ValueError, match=says("N", normaliser)):
        mean_update(np.zeros(1, np.int64), 16, normaliser)


def test_momentum_adds_up_what_came_before() -> None:
    model = Model.initial(np.zeros(1), Optimiser.MOMENTUM)
    for _ in range(3):
        model = next_model(model, np.ones(1), 1.0, Optimiser.MOMENTUM)
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
        model = next_model(model, -g, 0.01, Optimiser.ADAM)
    assert model.theta == pytest.approx(theta, rel=1e-12)
