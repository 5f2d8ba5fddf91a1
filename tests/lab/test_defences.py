"""Every rule against a slow one that follows its paper's words."""

import statistics
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.lab import defences
from precad.lab.defences import bulyan, centred_clipping, krum, median, multi_krum, norm_clipping, trimmed_mean
from precad.simulation.aggregators import DefenceTerms
from tests.messages import says

Floats = NDArray[np.float64]


def updates_of(seed: int, clients: int, dim: int = 4) -> Floats:
    return np.random.default_rng(seed).normal(size=(clients, dim))


def slow_scores(updates: list[Floats], malicious: int) -> list[float]:
    """Krum: the sum of squared distances to the n − f − 2 nearest other vectors."""
    scores = []
    for i, u in enumerate(updates):
        near = sorted(sum((a - b) ** 2 for a, b in zip(u, v, strict=True)) for j, v in enumerate(updates) if i != j)
        scores.append(float(sum(near[: max(1, len(updates) - malicious - 2)])))
    return scores


def slow_bulyan(updates: Floats, malicious: int) -> Floats:
    left, chosen = list(updates), list[Floats]()
    while len(chosen) < len(updates) - 2 * malicious:
        scores = slow_scores(left, malicious)
        chosen.append(left.pop(scores.index(min(scores))))
    keep = len(updates) - 4 * malicious
    out = []
    for values in zip(*chosen, strict=True):
        middle = statistics.median(values)
        out.append(statistics.fmean(sorted(values, key=lambda v: abs(v - middle))[:keep]))
    return np.array(out)


@given(st.integers(0, 1000), st.integers(1, 9))
def test_median(seed: int, clients: int) -> None:
    updates = updates_of(seed, clients)
    assert np.allclose(median(updates), [statistics.median(column) for column in updates.T])


@given(st.integers(0, 1000), st.integers(1, 9), st.data())
def test_trimmed_mean(seed: int, clients: int, data: st.DataObject) -> None:
    updates = updates_of(seed, clients)
    f = data.draw(st.integers(0, (clients - 1) // 2))
    expected = [statistics.fmean(sorted(column)[f : clients - f]) for column in updates.T]
    assert np.allclose(trimmed_mean(updates, f), expected)


@given(st.integers(0, 1000), st.integers(3, 9), st.data())
def test_krum_and_multi_krum(seed: int, clients: int, data: st.DataObject) -> None:
    updates = updates_of(seed, clients)
    f = data.draw(st.integers(0, (clients - 3) // 2))
    scores = slow_scores(list(updates), f)
    order = sorted(range(clients), key=scores.__getitem__)
    assert np.array_equal(krum(updates, f), updates[order[0]])
    assert np.allclose(multi_krum(updates, f), updates[order[: clients - f - 2]].mean(axis=0))


@given(st.integers(0, 1000), st.integers(3, 12), st.data())
def test_bulyan(seed: int, clients: int, data: st.DataObject) -> None:
    updates = updates_of(seed, clients)
    f = data.draw(st.integers(0, (clients - 3) // 4))
    assert np.allclose(bulyan(updates, f), slow_bulyan(updates, f))


def test_norm_clipping() -> None:
    updates = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert np.allclose(norm_clipping(updates, 1.0), [0.9 / 3, 1.2 / 3])


def test_centred_clipping() -> None:
    updates, centre = updates_of(1, 7), np.zeros(4)
    for _ in range(3):
        steps = [(u - centre) * min(1.0, 0.5 / float(np.linalg.norm(u - centre))) for u in updates]
        centre = centre + sum(steps) / 7
    assert np.allclose(centred_clipping(updates, 0.5), centre)
    at_mean = centred_clipping(updates, 100.0)
    assert np.allclose(at_mean, updates.mean(axis=0))


@pytest.mark.parametrize("name", defences.NAMES)
def test_a_rule_does_not_depend_on_the_order_of_clients(name: str) -> None:
    updates = updates_of(3, 11)
    rule, setting = defences.named(name), DefenceTerms(2, 1.0)
    shuffled = np.random.default_rng(4).permutation(11)
    assert np.allclose(rule(updates, setting), rule(updates[shuffled], setting))


@pytest.mark.parametrize("name", defences.NAMES)
def test_two_of_eleven_cannot_move_it_far(name: str) -> None:
    """Whoever the two are, the result is near the honest mean, relative to the 10^6 that they send."""
    honest = updates_of(5, 11)
    for liars in list(combinations(range(11), 2))[::7]:
        updates = honest.copy()
        updates[list(liars)] = 1e6
        assert np.linalg.norm(defences.named(name)(updates, DefenceTerms(2, 2.0)) - honest.mean(axis=0)) < 6


@pytest.mark.parametrize("name", defences.NAMES)
@pytest.mark.parametrize("clients", [1, 2, 3, 4])
def test_few_clients_are_no_error(name: str, clients: int) -> None:
    assert defences.named(name)(updates_of(6, clients), DefenceTerms(2, 1.0)).shape == (4,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: median(np.zeros((0, 3))), ("updates", "(0, 3)")),
        (lambda: trimmed_mean(updates_of(1, 4), 2), ("malicious", "[0, 1]", "4 clients", 2)),
        (lambda: krum(updates_of(1, 4), 1), ("malicious", "[0, 0]", "4 clients", 1)),
        (lambda: multi_krum(updates_of(1, 5), 1, 6), ("chosen", "[1, 5]", 6)),
        (lambda: bulyan(updates_of(1, 6), 1), ("malicious", "[0, 0]", "6 clients", 1)),
        (lambda: norm_clipping(updates_of(1, 6), 0.0), ("bound", 0, 0.0)),
        (lambda: defences.named("hope"), ("defence", "'hope'", "norm_clipping")),
    ],
)
def test_impossible_arguments_are_refused_by_name(call: Callable[[], object], words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call()
