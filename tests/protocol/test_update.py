"""The last line of Algorithm 1."""

import numpy as np
import pytest

from precad.protocol.update import next_model


def test_the_model_moves_by_the_mean_of_the_noisy_sum() -> None:
    model, noisy_sum = np.array([1.0, -1.0, 0.0]), np.array([65536, 131072, -65536])
    moved = next_model(model, noisy_sum, fractional_bits=16, learning_rate=0.5, normaliser=10.0)
    assert moved.tolist() == [1.05, -0.9, -0.05]
    assert model.tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize("normaliser", [0.0, -1.0, float("nan")])
def test_a_wrong_normaliser_is_named(normaliser: float) -> None:
    with pytest.raises(ValueError, match="normaliser N must be above 0"):
        next_model(np.zeros(1), np.zeros(1, np.int64), 16, 1.0, normaliser)
