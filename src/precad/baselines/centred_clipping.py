"""Centred clipping.

Karimireddy, He, Jaggi: *Learning from History for Byzantine Robust Optimization*, ICML 2021, Algorithm 2.
"""

import numpy as np
from numpy.typing import NDArray

from precad.baselines.checks import check_positive, check_updates
from precad.baselines.norm_clipping import norm_clipping

Floats = NDArray[np.float64]

ITERATIONS = 3


def centred_clipping(updates: Floats, bound: float, start: Floats | None = None) -> Floats:
    """v ← v + mean of (u_i − v), each cut to the bound, from ``start``, or 0; three times, for few clients."""
    check_updates(updates)
    check_positive("bound", bound)
    centre = np.zeros(updates.shape[1]) if start is None else start
    if centre.shape != updates.shape[1:]:
        raise ValueError(f"start must have the shape of an update, {updates.shape[1:]}, got {centre.shape}")
    for _ in range(ITERATIONS):
        centre = centre + norm_clipping(updates - centre, bound)
    return centre
