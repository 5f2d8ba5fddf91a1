"""Sums of clipped records: the same integers as one record at a time."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from precad.privacy import record_sums
from precad.privacy.clipping import encode_clipped


def check(gradients: NDArray[np.float32], bound: float, f: int = 16) -> NDArray[np.int64]:
    start = np.arange(gradients.shape[1])
    total = start.copy()
    record_sums.add_clipped(gradients, bound, f, total)
    rows = [encode_clipped(row, bound, f) for row in gradients if np.isfinite(row).all()]
    assert np.array_equal(total - start, np.sum(rows, axis=0, dtype=np.int64) if rows else 0 * start)
    return total - start


@settings(max_examples=60)
@given(
    arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 70))),
    st.sampled_from([2.0**-15, 0.1, 1 / 3, 1.0, 2.0, 1000.0]),
    st.integers(15, 16),
)
def test_every_float(gradients: NDArray[np.float32], bound: float, f: int) -> None:
    check(gradients, bound, f)


@settings(max_examples=20)
@given(
    st.integers(0, 2**32),
    st.sampled_from([2047, 2048, 26_010, 65_536, 65_567, 200_003]),
    st.sampled_from([0.1, 1 / 3, 2.0, 1000.0]),
    st.sampled_from([1e-40, 1e-3, 1.0, 1e30]),
)
def test_long_records(seed: int, size: int, bound: float, scale: float) -> None:
    generator = np.random.default_rng(seed)
    check((generator.standard_normal((4, size)) * generator.exponential(scale, (4, 1))).astype(np.float32), bound)


def test_records_on_the_bound_stay_within_it() -> None:
    for size in (1, 3, 1000):
        x = np.full((1, size), 2.0 / math.sqrt(size), np.float32)
        assert sum(int(v) ** 2 for v in check(x, 2.0)) <= (2 * 2**16) ** 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_record_that_is_not_finite_counts_as_zero(bad: float) -> None:
    x = np.ones((3, 100), np.float32)
    x[1, 63] = bad
    assert np.array_equal(check(x, 2.0), check(x[[0, 2]], 2.0))


def test_wrong_arguments_are_named() -> None:
    x: Any = np.ones((2, 3), np.float32)
    total: Any = np.zeros(3, np.int64)
    for bad in (x.astype(np.float64), x[0], np.ones((3, 2), np.float32).T):
        with pytest.raises(ValueError, match="float32 matrix"):
            record_sums.add_clipped(bad, 2.0, 16, total)
    for wrong in (total[:2], total.astype(np.int32)):
        with pytest.raises(ValueError, match="int64 total of 3"):
            record_sums.add_clipped(x, 2.0, 16, wrong)
    for bound in (0.0, -1.0, math.nan, math.inf, 2.0**-17, 1024.0):
        with pytest.raises(ValueError, match="record_bound R must be"):
            record_sums.add_clipped(x, bound, 16, total)


@given(arrays(np.float32, st.tuples(st.integers(0, 5), st.sampled_from([1, 2047, 2048, 2049]))))
@settings(max_examples=30)
def test_unclipped_rows_are_added_in_float64(gradients: NDArray[np.float32]) -> None:
    total, expected = np.ones(gradients.shape[1]), np.ones(gradients.shape[1])
    with np.errstate(invalid="ignore"):
        for row in gradients:
            expected += row
    record_sums.add_unclipped(gradients, total)
    assert np.array_equal(total, expected, equal_nan=True)


def test_unclipped_rows_must_fit() -> None:
    cases: list[tuple[Any, int]] = [(np.zeros((2, 3)), 3), (np.zeros((2, 3), np.float32), 4)]
    for bad, dim in cases:
        with pytest.raises(ValueError, match="expected float32 rows"):
            record_sums.add_unclipped(bad, np.zeros(dim))
