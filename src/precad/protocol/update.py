"""Step 4: the noisy sum becomes the next model (paper, Algorithm 1, line 6; PROTOCOL §2).

Whatever a server makes of the noisy sum is post-processing and costs no privacy, so it may keep momentum or adapt its
steps. All of it is a fixed sequence of IEEE operations, so that both servers get the same bits.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from precad.mpc import fixed_point

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999
"""How much of the averages of updates, and of their squares, is kept in a round (Kingma and Ba, 2015)."""
_TINY = 1e-8


class Optimiser(Enum):
    """How a mean update moves the model."""

    SGD = "sgd"
    """θ + η·u: the paper's."""
    MOMENTUM = "momentum"
    """θ + η·m, m = 0.9·m + u."""
    ADAM = "adam"
    """Adam (Kingma and Ba, 2015, Algorithm 1), with u in the place of the negative gradient."""


@dataclass(frozen=True)
class Model:
    """A model, and what its optimiser remembers."""

    theta: NDArray[np.float64]
    first: NDArray[np.float64]
    """Σ or mean of past updates: empty for SGD."""
    second: NDArray[np.float64]
    """Mean of their squares: empty but for Adam."""
    steps: int = 0

    @classmethod
    def initial(cls, theta: NDArray[np.float64], optimiser: Optimiser) -> "Model":
        """Before the first round."""
        first = np.zeros(0 if optimiser is Optimiser.SGD else theta.size)
        return cls(theta, first, np.zeros(theta.size if optimiser is Optimiser.ADAM else 0))


def mean_update(noisy_sum: NDArray[np.int64], fractional_bits: int, normaliser: float) -> NDArray[np.float64]:
    """u = (Σ Δ_i + ξ_A + ξ_B)/N.

    N is the public constant q·Σ p_i·|D_i| by default. The paper divides by the realised Σ_{valid} p_i·|D_i|,
    which tells everyone who took part.
    """
    if not normaliser > 0:
        raise ValueError(f"normaliser N must be above 0, got {normaliser}")
    return fixed_point.decode(noisy_sum, fractional_bits) / normaliser


def next_model(
    model: Model, update: NDArray[np.float64], learning_rate: float, optimiser: Optimiser = Optimiser.SGD
) -> Model:
    """The model after one more round."""
    steps = model.steps + 1
    if optimiser is Optimiser.SGD:
        return Model(model.theta + learning_rate * update, model.first, model.second, steps)
    if optimiser is Optimiser.MOMENTUM:
        first = FIRST_DECAY * model.first + update
        return Model(model.theta + learning_rate * first, first, model.second, steps)
    first = FIRST_DECAY * model.first + (1 - FIRST_DECAY) * update
    second = SECOND_DECAY * model.second + (1 - SECOND_DECAY) * update**2
    scale = np.sqrt(second / (1 - SECOND_DECAY**steps)) + _TINY
    return Model(model.theta + learning_rate * (first / (1 - FIRST_DECAY**steps)) / scale, first, second, steps)
