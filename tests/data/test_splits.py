"""The splits: what is kept, what is lost, how skewed they are, and that they are fair."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.data.splits import dirichlet, iid, shards_by_label
from tests.messages import says
from tests.stat_tests import ALPHA, bins_p_value, uniform_bins_p_value

BALANCED = np.repeat(np.arange(10), 6000)


@st.composite
def labels_and_exclude(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    labels = np.array(draw(st.lists(st.integers(0, 9), min_size=1, max_size=60)))
    exclude = draw(st.sets(st.integers(0, labels.size - 1), max_size=labels.size - 1))
    return labels, np.array(sorted(exclude), np.int64)


@given(labels_and_exclude(), st.integers(0, 2**32), st.data())
def test_shards_lose_nothing(
    drawn: tuple[NDArray[np.int64], NDArray[np.int64]], seed: int, data: st.DataObject
) -> None:
    labels, exclude = drawn
    kept = labels.size - exclude.size
    clients = data.draw(st.integers(1, kept))
    each = data.draw(st.integers(1, kept // clients))
    split = shards_by_label(labels, clients, each, np.random.default_rng(seed), exclude=exclude)
    assert_partition(split, clients, labels.size, exclude)
    smallest, largest = kept // (clients * each), -(-kept // (clients * each))
    assert all(each * smallest <= len(part) <= each * largest for part in split)


@given(labels_and_exclude(), st.integers(0, 2**32), st.data())
def test_iid_loses_nothing(drawn: tuple[NDArray[np.int64], NDArray[np.int64]], seed: int, data: st.DataObject) -> None:
    labels, exclude = drawn
    clients = data.draw(st.integers(1, labels.size - exclude.size))
    split = iid(labels.size, clients, np.random.default_rng(seed), exclude=exclude)
    assert_partition(split, clients, labels.size, exclude)
    assert max(map(len, split)) - min(map(len, split)) <= 1


@given(labels_and_exclude(), st.integers(0, 2**32), st.floats(5e-324, 1.7e308), st.data())
def test_dirichlet_gives_each_client_its_number(
    drawn: tuple[NDArray[np.int64], NDArray[np.int64]], seed: int, alpha: float, data: st.DataObject
) -> None:
    labels, exclude = drawn
    records = data.draw(st.integers(1, labels.size - exclude.size))
    split = dirichlet(labels, 3, records, alpha, np.random.default_rng(seed), exclude=exclude)
    assert len(split) == 3
    for part in split:
        assert part.dtype == np.int64
        assert part.size == records
        assert np.all(np.diff(part) > 0)
        assert not np.isin(part, exclude).any()


@pytest.mark.parametrize("seed", range(5))
def test_most_clients_hold_three_or_four_digits(seed: int) -> None:
    """The paper's MNIST: 100 clients, 600 records each, 4 of 400 shards."""
    labels = np.random.default_rng(99).permutation(BALANCED)
    split = shards_by_label(labels, 100, 4, np.random.default_rng(seed))
    assert {len(part) for part in split} == {600}
    digits = np.array([np.unique(labels[part]).size for part in split])
    assert digits.max() <= 4
    assert np.mean(digits >= 3) > 0.7


def test_shards_are_runs_of_the_sorted_records() -> None:
    labels = np.array([2, 0, 1, 0, 2, 1])
    split = shards_by_label(labels, 3, 1, np.random.default_rng(0))
    assert sorted(part.tolist() for part in split) == [[0, 4], [1, 3], [2, 5]]


def test_the_papers_cifar_leaves_some_records_out() -> None:
    """Drawn at random, 100 × 500 of 50,000 records cover about 1 − 1/e of them at most."""
    labels = np.repeat(np.arange(10), 5000)
    split = dirichlet(labels, 100, 500, 0.5, np.random.default_rng(0))
    covered = np.unique(np.concatenate(split)).size
    assert 25_000 < covered < 32_500
    largest = [np.bincount(labels[part]).max() / 500 for part in split]
    assert 0.3 < np.median(largest) < 0.6


def test_a_class_that_runs_out_is_made_up_for() -> None:
    labels = np.array([0] * 3 + [1] * 3 + [2] * 94)
    for part in dirichlet(labels, 50, 60, 0.05, np.random.default_rng(1)):
        assert part.size == 60
        assert np.all(np.bincount(labels[part], minlength=3) <= [3, 3, 94])


def same_class_p_value(drawn_with: float) -> float:
    """Whether two records of a client are of one class with probability (α + 1)/(10·α + 1) at α = 0.5, exactly."""
    split = dirichlet(np.repeat(np.arange(10), 2), 5_000, 2, drawn_with, np.random.default_rng(7))
    same = sum(int(part[0] // 2 == part[1] // 2) for part in split)
    return bins_p_value(np.array([same, len(split) - same]), np.array([1.5 / 6, 4.5 / 6]))


def test_proportions_have_the_law_of_dirichlet() -> None:
    assert same_class_p_value(0.5) > ALPHA
    assert same_class_p_value(1.0) < ALPHA


def test_no_class_and_no_record_is_preferred() -> None:
    single = dirichlet(np.repeat(np.arange(10), 3), 5_000, 1, 0.5, np.random.default_rng(8))
    assert uniform_bins_p_value(np.concatenate(single), 30) > ALPHA
    skewed = dirichlet(np.repeat(np.arange(10), [3] * 9 + [4]), 5_000, 1, 0.5, np.random.default_rng(8))
    assert uniform_bins_p_value(np.minimum(np.concatenate(skewed), 29), 30) < ALPHA


@pytest.mark.parametrize(
    "split", [partial(iid, 12, 4), partial(shards_by_label, np.arange(12) // 3, 4, 3)], ids=["iid", "shards"]
)
def test_every_client_is_as_likely_to_hold_a_record(split: "partial[list[NDArray[np.int64]]]") -> None:
    rng = np.random.default_rng(9)
    holders = np.array([next(i for i, part in enumerate(split(rng=rng)) if 5 in part) for _ in range(5000)])
    assert uniform_bins_p_value(holders, 4) > ALPHA
    assert uniform_bins_p_value(np.maximum(holders, 1), 4) < ALPHA


RNG = np.random.default_rng(0)
LABELS = np.arange(20) // 2
HALVES: Any = LABELS / 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (partial(shards_by_label, LABELS, 0, 4, RNG), ("clients", 0, 1)),
        (partial(shards_by_label, LABELS, 4, 0, RNG), ("shards_per_client", 0, 1)),
        (partial(shards_by_label, LABELS, 6, 4, RNG), ("6 × 4 = 24 shards", "20 records")),
        (partial(shards_by_label, LABELS, 5, 4, RNG, exclude=np.array([3])), ("20 shards", "19 records")),
        (partial(shards_by_label, HALVES, 1, 1, RNG), ("labels", "float64", "(20,)")),
        (partial(shards_by_label, LABELS[:0], 1, 1, RNG), ("labels", "int64", "(0,)")),
        (partial(dirichlet, LABELS, 0, 5, 0.5, RNG), ("clients", 0, 1)),
        (partial(dirichlet, LABELS, 2, 0, 0.5, RNG), ("records_per_client", 0, 1)),
        (partial(dirichlet, LABELS, 2, 21, 0.5, RNG), ("records_per_client", 21, "20 records")),
        (partial(dirichlet, LABELS, 2, 5, 0.0, RNG), ("alpha", 0.0, 0)),
        (partial(dirichlet, LABELS, 2, 5, float("nan"), RNG), ("alpha", "nan", 0)),
        (partial(dirichlet, LABELS, 2, 5, float("inf"), RNG), ("alpha", "inf", 0)),
        (partial(dirichlet, LABELS, 2, 5, 1.0, RNG, exclude=np.array([20])), ("exclude", "[0, 20)")),
        (partial(dirichlet, LABELS, 2, 5, 1.0, RNG, exclude=np.array([-1])), ("exclude", "[0, 20)")),
        (partial(iid, 0, 1, RNG), ("records", 0, 1)),
        (partial(iid, 5, 0, RNG), ("clients", 0, 1)),
        (partial(iid, 5, 6, RNG), ("clients", 6, "5 records")),
        (partial(iid, 5, 5, RNG, exclude=np.array([0, 0])), ("clients", 5, "4 records")),
        (partial(iid, 5, 1, RNG, exclude=np.ones(5, bool)), ("exclude", "bool", "(5,)")),
    ],
)
def test_mistakes_are_refused(call: "partial[list[NDArray[np.int64]]]", words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call()


def assert_partition(split: list[NDArray[np.int64]], clients: int, records: int, exclude: NDArray[np.int64]) -> None:
    assert len(split) == clients
    assert all(part.size > 0 and part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in split)
    assert np.array_equal(np.sort(np.concatenate(split)), np.setdiff1d(np.arange(records), exclude))
