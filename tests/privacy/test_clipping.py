"""Clipping: an encoded vector is never over its bound, whatever the floats, and one record moves at most R'."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import DTypeLike, NDArray

from precad.mpc import fixed_point
from precad.privacy import clipping
from tests.messages import says

FLOATS = [np.float32, np.float64]
bounds = st.one_of(st.sampled_from([1.0, 30.0, 2.0, 0.1, 1 / 3, 151.0]), st.floats(2.0**-15, 1e4))


def exact_squared_norm(x: NDArray[np.int64]) -> int:
    return sum(int(v) ** 2 for v in x)


def check(x: NDArray[np.floating], bound: float, f: int = 16) -> NDArray[np.int64]:
    encoded = clipping.encode_clipped(x, bound, f)
    assert exact_squared_norm(encoded) <= fixed_point.squared_bound(bound, f)
    return encoded


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data(), bound=bounds, f=st.integers(15, 16))
def test_the_encoded_norm_never_exceeds_the_bound(data: st.DataObject, dtype: DTypeLike, bound: float, f: int) -> None:
    """Every finite float: denormal, huge, zero."""
    finite = arrays(dtype, st.integers(1, 40), elements={"allow_nan": False, "allow_infinity": False})
    check(data.draw(finite), bound, f)


@pytest.mark.parametrize("dtype", FLOATS)
@given(st.data(), bounds)
def test_vectors_exactly_on_the_bound(dtype: DTypeLike, data: st.DataObject, bound: float) -> None:
    x = data.draw(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1, 1)))
    norm = math.sqrt(math.fsum(x * x))
    if norm > 0:
        check((x * (bound / norm)).astype(dtype), bound)
    check(np.array([bound], dtype), bound)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=20)
@given(
    st.integers(0, 2**32),
    st.sampled_from([65_535, 65_536, 65_537, 1_000_000]),
    bounds,
    st.sampled_from([1e-300, 1e-30, 1e-3, 1.0, 1e30]),
)
def test_long_vectors(dtype: DTypeLike, seed: int, size: int, bound: float, scale: float) -> None:
    x = np.random.default_rng(seed).standard_normal(size)
    encoded = clipping.encode_clipped((x * scale).astype(dtype), bound, 16)
    assert int(np.dot(encoded.astype(object), encoded.astype(object))) <= fixed_point.squared_bound(bound, 16)


@pytest.mark.parametrize("value", [5e-324, 2.0**-1060, 2.0**399, 2.0**401, 1.7e308])
def test_denormal_and_huge_vectors(value: float) -> None:
    encoded = check(np.full(100, value), 30.0)
    expected = 0 if value < 1 else math.trunc(30 * (1 - 2.0**-30) / 10 * 65536)
    assert set(encoded.tolist()) == {expected}


@pytest.mark.parametrize(
    "bad", [np.full(4, -(2**63)), np.array([1 << 48]), np.array([1.5]), np.zeros((2, 2), np.int64)]
)
def test_squared_norm_refuses_what_it_could_not_add_exactly(bad: NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match=r"2\^48|int64"):
        clipping.squared_norm(bad)


def test_mixed_huge_and_tiny_entries() -> None:
    encoded = check(np.array([1.7e308, -1.7e308, 1.0, 5e-324]), 1.0)
    assert encoded.tolist() == [46340, -46340, 0, 0]


def test_a_short_vector_is_only_truncated() -> None:
    x = np.array([0.5, -0.25, 1e-6, -1e-6])
    assert check(x, 1.0).tolist() == [32768, -16384, 0, 0]


def test_zero_stays_zero() -> None:
    assert not check(np.zeros(1000, np.float32), 30.0).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_vector_that_is_not_finite_is_named(bad: float) -> None:
    x = np.ones(50)
    x[31] = bad
    with pytest.raises(ValueError, match=says("entry 31", bad)):
        clipping.encode_clipped(x, 30.0, 16)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-9, 1e15])
def test_a_wrong_bound_is_named(bad: float) -> None:
    with pytest.raises(ValueError, match="bound"):
        clipping.encode_clipped(np.ones(3), bad, 16)


@given(st.lists(st.integers(-(1 << 47), 1 << 47), max_size=200))
def test_squared_norm_is_exact(values: list[int]) -> None:
    assert clipping.squared_norm(np.array(values, np.int64)) == sum(v * v for v in values)


@given(
    st.integers(0, 2**32),
    st.integers(1, 2000),
    st.sampled_from([0.1, 0.5, 2.0]),
    st.sampled_from([1.0, 5.0, 30.0]),
)
def test_one_record_moves_the_update_by_at_most_the_sensitivity(seed: int, dim: int, r: float, c: float) -> None:
    """PROTOCOL §7a: the pipeline of a client, with and without one record."""
    generator = np.random.default_rng(seed)
    records = generator.standard_normal((20, dim)) * generator.exponential(2, (20, 1)) + generator.exponential(1)
    integers = np.array([clipping.encode_clipped(g, r, 16) for g in records])
    with_all, without = integers.sum(axis=0), integers[1:].sum(axis=0)
    moved = [clipping.encode_clipped(fixed_point.decode(total, 16), c, 16) for total in (with_all, without)]
    limit = math.ldexp(clipping.sensitivity(r, dim, 16), 16)
    assert math.sqrt(clipping.squared_norm(moved[0] - moved[1])) <= limit
    assert (
        clipping.squared_norm(with_all - without)
        <= math.ldexp(clipping.sensitivity(r, dim, 16, client_clipping=False), 16) ** 2
    )


def test_rounding_alone_can_use_up_the_sensitivity() -> None:
    """Without the term (√d + 1)·2^-f the bound would be false: a tiny record, a projection, and truncation."""
    dim, r, c = 400, 2.0**-16, 120.0005 * 2.0**-16  # a projection onto (6.00002, 6.00002, …)
    big = np.full(dim, 40, np.int64)
    small = big.copy()
    small[0] += 1
    moved = [clipping.encode_clipped(fixed_point.decode(total, 16), c, 16) for total in (big, small)]
    distance = math.sqrt(clipping.squared_norm(moved[0] - moved[1]))
    assert math.ldexp(r, 16) < distance <= math.ldexp(clipping.sensitivity(r, dim, 16), 16)


def test_the_sensitivity_of_the_specification() -> None:
    """+0.12 % at the paper's MNIST model and R = 2 (PROTOCOL §3)."""
    assert clipping.sensitivity(2.0, 26_010, 16) / 2.0 == pytest.approx(1.00124, abs=1e-5)
    assert clipping.sensitivity(2.0, 26_010, 16, client_clipping=False) == 2.0
