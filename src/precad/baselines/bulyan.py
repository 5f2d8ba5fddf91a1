"""Bulyan over Krum.

El Mhamdi, Guerraoui, Rouault: *The Hidden Vulnerability of Distributed Learning in Byzantium*, ICML 2018, §4.
"""

import numpy as np
from numpy.typing import NDArray

from precad.baselines.checks import check_malicious, check_updates
from precad.baselines.krum import scores, squared_distances

Floats = NDArray[np.float64]


def bulyan(updates: Floats, malicious: int) -> Floats:
    """Krum chooses n − 2f updates, one by one; of each coordinate, the mean of the n − 4f nearest its median."""
    check_updates(updates)
    clients = len(updates)
    check_malicious(malicious, clients, (clients - 3) // 4)
    distances = squared_distances(updates)
    left, selected = list(range(clients)), list[int]()
    while len(selected) < clients - 2 * malicious:
        best = int(np.argmin(scores(distances[np.ix_(left, left)], malicious))) if len(left) > 1 else 0
        selected.append(left.pop(best))
    chosen = updates[sorted(selected)]
    away = np.abs(chosen - np.median(chosen, axis=0))
    nearest = np.argsort(away, axis=0, kind="stable")[: clients - 4 * malicious]
    mean: Floats = np.take_along_axis(chosen, nearest, axis=0).mean(axis=0)
    return mean
