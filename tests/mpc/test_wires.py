"""Wires against polynomials in Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.mpc import field, wires
from precad.mpc.field import FieldVector, P
from tests.strategies import vectors

LENGTHS = [wires.SHORT, wires.LONG]


def value(entries: list[int], mask: int, t: int, m: int) -> int:
    """f(t), by Lagrange's formula over the points 0..m."""
    coefficients = wires.lagrange(m + 1, t)
    padded = [mask, *entries, *[0] * (m - len(entries))]
    return sum(int(c) * v for c, v in zip(coefficients, padded, strict=True)) % P


def cut(x: list[int], m: int) -> list[list[int]]:
    return [x[i : i + m] for i in range(0, len(x), m)]


@given(st.integers(0, P - 1), st.lists(st.integers(0, P - 1), min_size=5, max_size=5))
def test_lagrange_evaluates_polynomials(r: int, coefficients: list[int]) -> None:
    def f(t: int) -> int:
        return sum(c * pow(t, i, P) for i, c in enumerate(coefficients)) % P

    basis = wires.lagrange(5, r)
    assert sum(int(c) * f(j) for j, c in enumerate(basis)) % P == f(r)


def test_lagrange_at_a_point_is_the_unit_vector() -> None:
    for j in range(33):
        assert wires.lagrange(33, j).tolist() == [int(k == j) for k in range(33)]


@pytest.mark.parametrize("m", LENGTHS)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 63, 64, 65, 150])
@given(st.data())
def test_evaluate(size: int, m: int, data: st.DataObject) -> None:
    x, masks, r = data.draw(vectors(size)), data.draw(vectors(wires.count(size, m))), data.draw(st.integers(0, P - 1))
    out = np.empty(masks.size, np.uint64)
    wires.evaluate(x, masks, wires.lagrange(m + 1, r), out)
    assert out.tolist() == [value(c, int(mask), r, m) for c, mask in zip(cut(x.tolist(), m), masks, strict=True)]


@pytest.mark.parametrize("m", LENGTHS)
def test_a_wire_of_the_largest_entries_does_not_overflow(m: int) -> None:
    x, masks, largest = np.full(3 * m, P - 1, np.uint64), np.full(3, P - 1, np.uint64), np.full(m + 1, P - 1, np.uint64)
    out = np.empty(3, np.uint64)
    wires.evaluate(x, masks, largest, out)
    assert out.tolist() == [(m + 1) % P] * 3


def check_sum_of_squares(x: NDArray[np.int64], masks: FieldVector, m: int) -> None:
    expected = []
    for t in range(2 * m + 1):
        values = np.empty(masks.size, np.uint64)
        wires.evaluate(field.embed(x), masks, wires.lagrange(m + 1, t), values)
        expected.append(field.dot(values, values))
    assert wires.sum_of_squares(x, masks, m).tolist() == expected


@pytest.mark.parametrize("m", LENGTHS)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 40])
@given(st.data())
def test_sum_of_squares(size: int, m: int, data: st.DataObject) -> None:
    largest = int((2**48 / size) ** 0.5) - 1
    entries = st.one_of(st.integers(-largest, largest), st.sampled_from([-largest, 0, largest]))
    x = np.array(data.draw(st.lists(entries, min_size=size, max_size=size)), np.int64)
    check_sum_of_squares(x, data.draw(vectors(wires.count(size, m))), m)


@pytest.mark.parametrize("m", LENGTHS)
@pytest.mark.parametrize("size", [16 * 2048 - 1, 16 * 2048, 16 * 2048 + 1, 140_003])
def test_sum_of_squares_over_chunks_at_the_largest_norm(size: int, m: int) -> None:
    """All entries of one sign, the worst for exactness, and masks with all bits set."""
    x = np.full(size, int((2**48 / size) ** 0.5) - 1)
    check_sum_of_squares(x, np.full(wires.count(size, m), P - 1, np.uint64), m)


@pytest.mark.parametrize("m", LENGTHS)
@pytest.mark.parametrize("size", [1, 16, 40])
@given(st.data())
def test_squares(size: int, m: int, data: st.DataObject) -> None:
    x, masks = data.draw(vectors(size)), data.draw(vectors(wires.count(size, m)))
    points = [0, *range(m + 1, 2 * m + 1)]
    wires_of_x = zip(cut(x.tolist(), m), masks, strict=True)
    expected = [value(c, int(mask), t, m) ** 2 % P for c, mask in wires_of_x for t in points]
    assert wires.squares(x, masks, m).tolist() == expected
