"""Where a run stands between two rounds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precad.protocol.update import Model
from precad.settings import Hyperparameters


@dataclass(frozen=True)
class Progress:
    """All that a run needs to go on."""

    model: Model
    round: int
    """How many rounds are done."""
    participations: NDArray[np.int64]
    """T_i so far, in the order of the clients."""

    def check(self, dim: int, clients: int, hyperparameters: Hyperparameters) -> None:
        """Refuse, by a ``ValueError``, what cannot be where a run of these values stood."""
        model, counts = self.model, self.participations
        fresh = Model.initial(np.zeros(dim), hyperparameters.optimiser)
        pairs = ((model.theta, fresh.theta), (model.first, fresh.first), (model.second, fresh.second))
        fits = all(stored.dtype == np.float64 and stored.shape == expected.shape for stored, expected in pairs)
        if not fits or counts.dtype != np.int64 or counts.shape != (clients,):
            raise ValueError("the run was made with another model, or with other clients")
        if not all(np.isfinite(stored).all() for stored, _ in pairs):
            raise ValueError(f"the model of round {self.round} is not finite")
        within = 0 <= model.steps <= self.round <= hyperparameters.rounds
        if not within or counts.min() < 0 or counts.max() > self.round:
            raise ValueError(f"a run of {hyperparameters.rounds} rounds cannot stand like this at round {self.round}")
