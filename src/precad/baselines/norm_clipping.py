"""Norm clipping. Sun, Kairouz, Suresh, McMahan: *Can You Really Backdoor Federated Learning?*, 2019, §5."""

import numpy as np
from numpy.typing import NDArray

from precad.baselines.checks import check_positive, check_updates

Floats = NDArray[np.float64]


def norm_clipping(updates: Floats, bound: float) -> Floats:
    """The mean of the updates, each cut to the bound."""
    check_updates(updates)
    check_positive("bound", bound)
    scale = bound / np.maximum(np.linalg.norm(updates, axis=1), bound)
    mean: Floats = scale @ updates / len(updates)
    return mean
