"""Who holds which training records: the paper's two skewed splits (Paper: Datasets), and even shares.

Each function gives one sorted array of indices for each client, and takes its randomness as an argument. No client
gets a record of ``exclude``: the attacker alone holds the images of a semantic backdoor (Paper: Appendix).
"""

import math

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Integers = NDArray[np.integer]


def shards_by_label(
    labels: Integers, clients: int, shards_per_client: int, rng: np.random.Generator, *, exclude: Integers | None = None
) -> list[Indices]:
    """Sort by label, cut into clients × shards_per_client even shards, deal each client its number at random.

    Every record is with exactly one client. The paper has 100 clients with 4 of 400 shards of MNIST, "so that most
    of the clients have examples of three or four digits". Shards differ by at most one record.
    """
    kept = _kept(labels, exclude)
    _at_least_one("clients", clients)
    _at_least_one("shards_per_client", shards_per_client)
    shards = clients * shards_per_client
    if shards > kept.size:
        raise ValueError(
            f"clients × shards_per_client = {clients} × {shards_per_client} = {shards} shards, "
            f"expected at most one for each of the {kept.size} records"
        )
    pieces = np.array_split(kept[np.argsort(labels[kept], kind="stable")], shards)
    hands = rng.permutation(shards).reshape(clients, shards_per_client)
    return [np.sort(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


def dirichlet(
    labels: Integers,
    clients: int,
    records_per_client: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    exclude: Integers | None = None,
) -> list[Indices]:
    """Each client draws class proportions from Dirichlet(alpha, …, alpha), then that many records of each class.

    Clients draw independently, so a record may be with several clients or with none, but never twice with one: the
    paper's "random drawing" of CIFAR-10, with 500 records each and alpha = 0.5. What a class cannot give is drawn
    from the other classes in their proportions.
    """
    kept = _kept(labels, exclude)
    _at_least_one("clients", clients)
    _at_least_one("records_per_client", records_per_client)
    if records_per_client > kept.size:
        raise ValueError(f"records_per_client is {records_per_client}, expected at most the {kept.size} records")
    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha is {alpha}, expected a finite number above 0")
    classes = [kept[labels[kept] == label] for label in np.unique(labels[kept])]
    sizes = np.array([records.size for records in classes])
    split = []
    for _ in range(clients):
        counts = _class_counts(rng.dirichlet(np.full(len(classes), alpha)), sizes, records_per_client, rng)
        drawn = [rng.choice(classes[i], counts[i], replace=False) for i in np.flatnonzero(counts)]
        split.append(np.sort(np.concatenate(drawn)))
    return split


def iid(records: int, clients: int, rng: np.random.Generator, *, exclude: Integers | None = None) -> list[Indices]:
    """Deal the records 0 … records − 1 at random: each is with exactly one client; shares differ by at most one."""
    _at_least_one("records", records)
    _at_least_one("clients", clients)
    kept = _kept(np.zeros(records, np.int64), exclude)
    if clients > kept.size:
        raise ValueError(f"clients is {clients}, expected at most one for each of the {kept.size} records")
    return [np.sort(part) for part in np.array_split(rng.permutation(kept), clients)]


def _class_counts(
    proportions: NDArray[np.float64], sizes: NDArray[np.int64], records: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many records of each class, ``records`` in all, at most ``sizes``."""
    counts = np.zeros_like(sizes)
    while (lacking := records - int(counts.sum())) > 0:
        weights = np.where(counts < sizes, proportions, 0.0)
        if weights.sum() == 0:  # the classes that are left have proportion 0: whatever they have is as likely
            weights = (sizes - counts).astype(np.float64)
        counts = np.minimum(counts + rng.multinomial(lacking, weights / weights.sum()), sizes)
    return counts


def _kept(labels: Integers, exclude: Integers | None) -> Indices:
    if labels.ndim != 1 or labels.size == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels are {labels.dtype} of shape {labels.shape}, expected a vector of integers, not empty")
    keep = np.ones(labels.size, bool)
    if exclude is not None:
        if exclude.ndim != 1 or not np.issubdtype(exclude.dtype, np.integer):
            raise ValueError(f"exclude is {exclude.dtype} of shape {exclude.shape}, expected a vector of integers")
        if np.any((exclude < 0) | (exclude >= labels.size)):
            raise ValueError(f"an index of exclude is not in [0, {labels.size}), the range of the records")
        keep[exclude] = False
    return np.flatnonzero(keep).astype(np.int64)


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}, expected at least 1")
