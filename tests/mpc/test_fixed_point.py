"""The grid: truncation, f, S, τ, and what does not fit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.mpc import fixed_point
from precad.mpc.field import P
from tests.messages import says


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50), st.integers(0, 16))
def test_encode_truncates_toward_zero(values: list[float], f: int) -> None:
    encoded = fixed_point.encode(np.array(values), f)
    assert [int(v) for v in encoded] == [math.trunc(Fraction(v) * 2**f) for v in values]


@given(st.lists(st.integers(-(1 << 52), 1 << 52), min_size=1, max_size=50), st.integers(0, 16))
def test_decode_is_the_inverse_on_the_grid(values: list[int], f: int) -> None:
    integers = np.array(values, np.int64)
    assert np.array_equal(fixed_point.encode(fixed_point.decode(integers, f), f), integers)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**44, -(2.0**44), 1e308])
@pytest.mark.parametrize("at", [0, 17, 99])
def test_encode_names_the_entry_that_does_not_fit(bad: float, at: int) -> None:
    x = np.zeros(100)
    x[at] = bad
    with pytest.raises(ValueError, match=f"entry {at} "):
        fixed_point.encode(x, 16)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.zeros(3, np.int64), "int64"),
        (np.zeros(3, np.float16), "float16"),
        (np.zeros(3, np.complex128), "complex128"),
        (np.zeros((3, 1)), r"\(3, 1\)"),
        (np.zeros(0), r"\(0,\)"),
        ([1.0], "list"),
    ],
)
def test_encode_names_a_wrong_array(bad: NDArray[np.float64], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fixed_point.encode(bad, 16)


def test_the_numbers_of_the_specification() -> None:
    s = fixed_point.squared_bound(30.0, 16)
    assert s == (30 * 65536) ** 2
    assert s.bit_length() == 42
    assert fixed_point.window(s) == 1 << 24


@given(st.integers(0, 10**18))
def test_window_is_the_least_power_of_two(s: int) -> None:
    tau = fixed_point.window(s)
    assert tau & (tau - 1) == 0
    assert 729 * s <= 16 * (tau - 1) ** 2
    assert tau == 1 or 729 * s > 16 * (tau // 2 - 1) ** 2


@given(st.floats(1e-3, 1e3), st.integers(0, 16))
def test_squared_bound_is_exact(bound: float, f: int) -> None:
    s = fixed_point.squared_bound(bound, f)
    assert s <= (Fraction(bound) * 2**f) ** 2 < s + 1


@pytest.mark.parametrize(("bound", "f"), [(1e-6, 16), (30.0, 16), (151.0, 16), (152.0, 15), (303.0, 15), (1e6, 3)])
def test_fractional_bits_fall_as_the_bound_grows(bound: float, f: int) -> None:
    assert fixed_point.choose_fractional_bits(bound) == f


@given(st.floats(1e-6, 9e6))
def test_the_chosen_grid_satisfies_the_lemma_and_the_next_finer_does_not(bound: float) -> None:
    f = fixed_point.choose_fractional_bits(bound)
    assert 16 * fixed_point.window(fixed_point.squared_bound(bound, f)) <= math.isqrt(P)
    assert f == 16 or 16 * fixed_point.window(fixed_point.squared_bound(bound, f + 1)) > math.isqrt(P)


def test_a_bound_too_large_for_the_field_is_refused() -> None:
    assert fixed_point.choose_fractional_bits(9.9e6) == 0
    with pytest.raises(ValueError, match=says("C", 10000000.0, 9942053)):
        fixed_point.choose_fractional_bits(1e7)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bounds_are_positive_numbers(bad: float) -> None:
    with pytest.raises(ValueError, match=says("client_bound", 0, bad)):
        fixed_point.choose_fractional_bits(bad)


def test_a_sum_that_could_wrap_is_refused() -> None:
    most = (P // 2 - 1) // (30 << 16)
    fixed_point.check_sum_fits(most, 30.0, 0.001, 16)
    with pytest.raises(ValueError, match="overflow"):
        fixed_point.check_sum_fits(most + 1, 30.0, 0.001, 16)
    with pytest.raises(ValueError, match="overflow"):
        fixed_point.check_sum_fits(1, 30.0, (P // 2) / 40 / math.sqrt(2), 16)
