"""Wires against polynomials in Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.mpc import field, wires
from precad.mpc.field import FieldVector, P
from precad.mpc.wires import M
from tests.strategies import vectors


def value(entries: list[int], mask: int, t: int) -> int:
    """f(t), by Lagrange's formula over the points 0..m."""
    coefficients = wires.lagrange(M + 1, t)
    padded = [mask, *entries, *[0] * (M - len(entries))]
    return sum(int(c) * v for c, v in zip(coefficients, padded, strict=True)) % P


def cut(x: list[int]) -> list[list[int]]:
    return [x[i : i + M] for i in range(0, len(x), M)]


@given(st.integers(0, P - 1), st.lists(st.integers(0, P - 1), min_size=5, max_size=5))
def test_lagrange_evaluates_polynomials(r: int, coefficients: list[int]) -> None:
    def f(t: int) -> int:
        return sum(c * pow(t, i, P) for i, c in enumerate(coefficients)) % P

    basis = wires.lagrange(5, r)
    assert sum(int(c) * f(j) for j, c in enumerate(basis)) % P == f(r)


def test_lagrange_at_a_point_is_the_unit_vector() -> None:
    for j in range(33):
        assert wires.lagrange(33, j).tolist() == [int(k == j) for k in range(33)]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40])
@given(st.data())
def test_evaluate(size: int, data: st.DataObject) -> None:
    x, masks, r = data.draw(vectors(size)), data.draw(vectors(wires.count(size))), data.draw(st.integers(0, P - 1))
    out = np.empty(masks.size, np.uint64)
    wires.evaluate(x, masks, wires.lagrange(M + 1, r), out)
    assert out.tolist() == [value(c, int(m), r) for c, m in zip(cut(x.tolist()), masks, strict=True)]


def check_sum_of_squares(x: NDArray[np.int64], masks: FieldVector) -> None:
    expected = []
    for t in range(2 * M + 1):
        values = np.empty(masks.size, np.uint64)
        wires.evaluate(field.embed(x), masks, wires.lagrange(M + 1, t), values)
        expected.append(field.dot(values, values))
    assert wires.sum_of_squares(x, masks).tolist() == expected


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40])
@given(st.data())
def test_sum_of_squares(size: int, data: st.DataObject) -> None:
    largest = int((2**48 / size) ** 0.5) - 1
    entries = st.one_of(st.integers(-largest, largest), st.sampled_from([-largest, 0, largest]))
    x = np.array(data.draw(st.lists(entries, min_size=size, max_size=size)), np.int64)
    check_sum_of_squares(x, data.draw(vectors(wires.count(size))))


@pytest.mark.parametrize("size", [16 * 2048 - 1, 16 * 2048, 16 * 2048 + 1, 100_003])
def test_sum_of_squares_over_chunks_at_the_largest_norm(size: int) -> None:
    """All entries of one sign, the worst for exactness, and masks with all bits set."""
    x = np.full(size, int((2**48 / size) ** 0.5) - 1)
    check_sum_of_squares(x, np.full(wires.count(size), P - 1, np.uint64))


@pytest.mark.parametrize("size", [1, 16, 40])
@given(st.data())
def test_squares(size: int, data: st.DataObject) -> None:
    x, masks = data.draw(vectors(size)), data.draw(vectors(wires.count(size)))
    points = [0, *range(M + 1, 2 * M + 1)]
    expected = [value(c, int(m), t) ** 2 % P for c, m in zip(cut(x.tolist()), masks, strict=True) for t in points]
    assert wires.squares(x, masks).tolist() == expected
