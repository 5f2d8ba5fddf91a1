"""Coordinate-wise median and trimmed mean.

Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*, ICML
2018, Definitions 1 and 2.
"""

import numpy as np
from numpy.typing import NDArray

from precad.baselines.checks import check_malicious, check_updates

Floats = NDArray[np.float64]


def median(updates: Floats) -> Floats:
    """The median of each coordinate; of an even number, the mean of the middle two."""
    check_updates(updates)
    middle: Floats = np.median(updates, axis=0)
    return middle


def trimmed_mean(updates: Floats, malicious: int) -> Floats:
    """The mean of each coordinate without its ``malicious`` largest and smallest values."""
    check_updates(updates)
    clients = len(updates)
    check_malicious(malicious, clients, (clients - 1) // 2)
    inner: Floats = np.sort(updates, axis=0)[malicious : clients - malicious].mean(axis=0)
    return inner
