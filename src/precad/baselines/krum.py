"""Krum and Multi-Krum.

Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent*,
NeurIPS 2017, §3 and §4.
"""

import numpy as np
from numpy.typing import NDArray

from precad.baselines.checks import check_malicious, check_updates

Floats = NDArray[np.float64]


def krum(updates: Floats, malicious: int) -> Floats:
    """The one update with the least score."""
    return multi_krum(updates, malicious, 1)


def multi_krum(updates: Floats, malicious: int, chosen: int | None = None) -> Floats:
    """The mean of the ``chosen`` updates with the least scores: n − f − 2 of them, if not given."""
    check_updates(updates)
    clients = len(updates)
    check_malicious(malicious, clients, (clients - 3) // 2)
    chosen = clients - malicious - 2 if chosen is None else chosen
    if not 1 <= chosen <= clients:
        raise ValueError(f"chosen must be in [1, {clients}], got {chosen}")
    best = np.argsort(scores(squared_distances(updates), malicious), kind="stable")[:chosen]
    mean: Floats = updates[best].mean(axis=0)
    return mean


def squared_distances(updates: Floats) -> Floats:
    """‖u_i − u_j‖² of all pairs."""
    distances = np.empty((len(updates), len(updates)))
    for i, update in enumerate(updates):
        distances[i] = ((updates - update) ** 2).sum(axis=1)
    return distances


def scores(distances: Floats, malicious: int) -> Floats:
    """The sum of each client's n − f − 2 least squared distances to others, at least one."""
    neighbours = max(1, len(distances) - malicious - 2)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    sums: Floats = np.sort(others, axis=1)[:, :neighbours].sum(axis=1)
    return sums
