"""What malicious clients send in place of their update: pure functions of it."""

import numpy as np
from numpy.typing import NDArray


def boost(update: NDArray[np.float64], bound: float, factor: float) -> NDArray[np.float64]:
    """The update's direction at ``factor`` times the bound C: model replacement without restraint."""
    norm = float(np.linalg.norm(update))
    if norm == 0:
        return np.full_like(update, factor * bound / np.sqrt(update.size))
    return update * (factor * bound / norm)
