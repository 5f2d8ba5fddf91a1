"""The noisy sum becomes the next model (paper, Algorithm 1, line 6; PROTOCOL §2).

Simulation and both servers call these functions, and no others, so that they get the same bits: everything here is a
fixed sequence of IEEE operations. Whatever a server makes of the noisy sum is post-processing and costs no privacy, so
it may keep momentum or adapt its steps.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from precad.mpc.fixed_point import check_positive
from precad.mpc.prg import Digest
from precad.protocol.digests import model_digest
from precad.protocol.params import Normalise, Unit

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


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How large the steps of a run are, and what the servers make of them."""

    learning_rate: float
    """η, in the first round."""
    final_learning_rate: float | None = None
    """η in the last round; it falls along a line. Constant if not given."""
    optimiser: Optimiser = Optimiser.SGD

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        if self.final_learning_rate is not None:
            check_positive("final_learning_rate", self.final_learning_rate)

    def learning_rate_at(self, step: int, rounds: int) -> float:
        """η in one of ``rounds`` rounds, counted from 0."""
        last = self.learning_rate if self.final_learning_rate is None else self.final_learning_rate
        return self.learning_rate + (last - self.learning_rate) * step / max(1, rounds - 1)


@dataclass(frozen=True)
class Model:
    """A model, and what its optimiser remembers."""

    theta: NDArray[np.float64]
    first: NDArray[np.float64]
    """Σ or mean of past updates: empty for SGD."""
    second: NDArray[np.float64]
    """Mean of their squares: empty but for Adam."""
    steps: int = 0
    """How often it was moved."""

    @cached_property
    def digest(self) -> Digest:
        """Of θ."""
        return model_digest(self.theta)

    @classmethod
    def initial(cls, theta: NDArray[np.float64], optimiser: Optimiser) -> "Model":
        """Before the first round."""
        first = np.zeros(0 if optimiser is Optimiser.SGD else theta.size)
        return cls(theta, first, np.zeros(theta.size if optimiser is Optimiser.ADAM else 0))


def normaliser(
    rule: Normalise,
    unit: Unit,
    *,
    client_rate: float,
    record_rate: float,
    records: Mapping[str, int],
    valid: Collection[str],
) -> float:
    """N, what the noisy sum is divided by.

    A client weighs as many records as it samples on average, p·|D_i|; if the unit is the client, 1. The constant N is
    q times the weight of all clients. The realised N, the paper's, is the weight of the valid ones, and so tells who
    took part; it is 0 if there are none.

    Args:
        rule: Constant or realised.
        unit: What the privacy of the run protects.
        client_rate: q, the probability that a client is selected.
        record_rate: p, the probability that a record is sampled.
        records: |D_i| of every client.
        valid: The clients whose updates are in the sum.
    """
    constant, by_client = rule is Normalise.CONSTANT, unit is Unit.CLIENT
    counted = records.keys() if constant else valid
    size = len(counted) if by_client else sum(records[name] for name in counted)
    return (client_rate if constant else 1.0) * (1.0 if by_client else record_rate) * size


def next_model(
    model: Model, noisy_sum: NDArray[np.float64], normaliser: float, learning_rate: float, optimiser: Optimiser
) -> Model:
    """The model after one more round: it moves by the mean update u = (Σ Δ_i + ξ_A + ξ_B)/N.

    N = 0 is a round with nobody valid under the realised normaliser: there is no mean, and the model stays as it is.
    """
    if not normaliser >= 0:
        raise ValueError(f"normaliser N must be at least 0, got {normaliser}")
    if normaliser == 0:
        return model
    update, steps = noisy_sum / normaliser, model.steps + 1
    if optimiser is Optimiser.SGD:
        return Model(model.theta + learning_rate * update, model.first, model.second, steps)
    if optimiser is Optimiser.MOMENTUM:
        first = FIRST_DECAY * model.first + update
        return Model(model.theta + learning_rate * first, first, model.second, steps)
    first = FIRST_DECAY * model.first + (1 - FIRST_DECAY) * update
    second = SECOND_DECAY * model.second + (1 - SECOND_DECAY) * update**2
    scale = np.sqrt(second / (1 - SECOND_DECAY**steps)) + _TINY
    return Model(model.theta + learning_rate * (first / (1 - FIRST_DECAY**steps)) / scale, first, second, steps)
