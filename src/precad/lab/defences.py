"""Defences in the clear: what a server that sees every update can do. Pure functions; each names its paper.

A rule takes a matrix with a row for each client, and gives one vector in place of their mean.
"""

from collections.abc import Callable

import numpy as np

from precad.simulation.aggregators import Defence, DefenceTerms
from precad.simulation.problem import Floats

CENTRING_STEPS = 3


def norm_clipping(updates: Floats, bound: float) -> Floats:
    """The mean of the updates, each cut to the bound.

    Sun, Kairouz, Suresh, McMahan: *Can You Really Backdoor Federated Learning?*, 2019, §5.
    """
    clients = _check_updates(updates)
    _check_bound(bound)
    scale = bound / np.maximum(np.linalg.norm(updates, axis=1), bound)
    mean: Floats = scale @ updates / clients
    return mean


def centred_clipping(updates: Floats, bound: float) -> Floats:
    """v ← v + mean of (u_i − v), each cut to the bound, from 0, three times.

    Karimireddy, He, Jaggi: *Learning from History for Byzantine Robust Optimization*, ICML 2021, Algorithm 2. Theirs
    starts from the last round's aggregate of the clients' momenta. Clients that come and go have no momenta, so ours
    starts from 0 in every round, and makes up for it by iterating.
    """
    centre = np.zeros(updates.shape[1:])
    for _ in range(CENTRING_STEPS):
        centre = centre + norm_clipping(updates - centre, bound)
    return centre


def median(updates: Floats) -> Floats:
    """The median of each coordinate; of an even number, the mean of the middle two.

    Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*, ICML
    2018, Definition 1.
    """
    _check_updates(updates)
    middle: Floats = np.median(updates, axis=0)
    return middle


def trimmed_mean(updates: Floats, malicious: int) -> Floats:
    """The mean of each coordinate without its ``malicious`` largest and smallest values (ibidem, Definition 2)."""
    clients = _check_updates(updates)
    _check_malicious(malicious, clients, (clients - 1) // 2)
    inner: Floats = np.sort(updates, axis=0)[malicious : clients - malicious].mean(axis=0)
    return inner


def krum(updates: Floats, malicious: int) -> Floats:
    """The one update with the least score.

    Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent*,
    NeurIPS 2017, §3.
    """
    return multi_krum(updates, malicious, 1)


def multi_krum(updates: Floats, malicious: int, chosen: int | None = None) -> Floats:
    """The mean of the ``chosen`` updates with the least scores: n − f − 2 of them, if not given (ibidem, §4)."""
    clients = _check_updates(updates)
    _check_malicious(malicious, clients, (clients - 3) // 2)
    chosen = clients - malicious - 2 if chosen is None else chosen
    if not 1 <= chosen <= clients:
        raise ValueError(f"chosen must be in [1, {clients}], got {chosen}")
    best = np.argsort(_scores(_squared_distances(updates), malicious), kind="stable")[:chosen]
    mean: Floats = updates[best].mean(axis=0)
    return mean


def bulyan(updates: Floats, malicious: int) -> Floats:
    """Krum chooses n − 2f updates, one by one; of each coordinate, the mean of the n − 4f nearest its median.

    El Mhamdi, Guerraoui, Rouault: *The Hidden Vulnerability of Distributed Learning in Byzantium*, ICML 2018, §4.
    """
    clients = _check_updates(updates)
    _check_malicious(malicious, clients, (clients - 3) // 4)
    distances = _squared_distances(updates)
    left, selected = list(range(clients)), list[int]()
    while len(selected) < clients - 2 * malicious:
        best = int(np.argmin(_scores(distances[np.ix_(left, left)], malicious))) if len(left) > 1 else 0
        selected.append(left.pop(best))
    kept = updates[sorted(selected)]
    away = np.abs(kept - np.median(kept, axis=0))
    nearest = np.argsort(away, axis=0, kind="stable")[: clients - 4 * malicious]
    mean: Floats = np.take_along_axis(kept, nearest, axis=0).mean(axis=0)
    return mean


def _of_krums_family(rule: Callable[[Floats, int], Floats], share: int) -> Defence:
    """It bears (n − 3) // ``share`` malicious clients; with fewer than three clients, it is the median."""

    def defend(updates: Floats, told: DefenceTerms) -> Floats:
        if len(updates) < 3:
            return median(updates)
        return rule(updates, min(told.malicious, (len(updates) - 3) // share))

    return defend


NAMES: dict[str, Defence] = {
    "norm_clipping": lambda updates, told: norm_clipping(updates, told.bound),
    "median": lambda updates, _: median(updates),
    "trimmed_mean": lambda updates, told: trimmed_mean(updates, min(told.malicious, (len(updates) - 1) // 2)),
    "krum": _of_krums_family(krum, 2),
    "multi_krum": _of_krums_family(multi_krum, 2),
    "bulyan": _of_krums_family(bulyan, 4),
    "centred_clipping": lambda updates, told: centred_clipping(updates, told.bound),
}
"""Where a round has too few clients for f, the rule takes the largest f that it bears."""


def named(name: str) -> Defence:
    """The defence that has this name in :data:`NAMES`."""
    if name not in NAMES:
        raise ValueError(f"the defence is {name!r}, expected one of {', '.join(NAMES)}, or module:function")
    return NAMES[name]


def _squared_distances(updates: Floats) -> Floats:
    """‖u_i − u_j‖² of all pairs."""
    return np.stack([((updates - update) ** 2).sum(axis=1) for update in updates])


def _scores(distances: Floats, malicious: int) -> Floats:
    """The sum of each client's n − f − 2 least squared distances to others, at least one."""
    neighbours = max(1, len(distances) - malicious - 2)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    sums: Floats = np.sort(others, axis=1)[:, :neighbours].sum(axis=1)
    return sums


def _check_updates(updates: Floats) -> int:
    """Refuse what is no matrix of updates; the number of clients in it."""
    if updates.ndim != 2 or len(updates) == 0:
        raise ValueError(f"updates must be a matrix with a row for each client, got shape {updates.shape}")
    return len(updates)


def _check_malicious(malicious: int, clients: int, most: int) -> None:
    if not 0 <= malicious <= most:
        raise ValueError(f"malicious must be in [0, {most}], for {clients} clients, got {malicious}")


def _check_bound(bound: float) -> None:
    if not bound > 0:
        raise ValueError(f"bound must be above 0, got {bound}")
