"""Centred clipping.

Karimireddy, He, Jaggi: *Learning from History for Byzantine Robust Optimization*, ICML 2021, Algorithm 2. Theirs starts
from the last round's aggregate of the clients' momenta. Clients that come and go have no momenta, so ours starts from 0
in every round, and makes up for it by iterating.
"""

import numpy as np
from numpy.typing import NDArray

from precad.baselines.checks import check_positive, check_updates
from precad.baselines.norm_clipping import norm_clipping

Floats = NDArray[np.float64]

ITERATIONS = 3


def centred_clipping(updates: Floats, bound: float) -> Floats:
    """v ← v + mean of (u_i − v), each cut to the bound, from 0, three times."""
    check_updates(updates)
    check_positive("bound", bound)
    centre = np.zeros(updates.shape[1])
    for _ in range(ITERATIONS):
        centre = centre + norm_clipping(updates - centre, bound)
    return centre
