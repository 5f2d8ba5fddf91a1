"""The field against Python's own integers."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.mpc import field
from precad.mpc.field import P
from tests.strategies import EDGES, equal_vectors

scalars = st.one_of(st.sampled_from([*EDGES, -1, P, P + 1, 1 << 200]), st.integers(-(1 << 70), 1 << 70))


def ints(x: NDArray[np.generic]) -> list[int]:
    return [int(v) for v in x]


@given(equal_vectors(2))
def test_add_and_sub_equal_python_integers(vectors: list[NDArray[np.uint64]]) -> None:
    x, y = vectors
    assert ints(field.add(x, y)) == [(a + b) % P for a, b in zip(ints(x), ints(y), strict=True)]
    assert ints(field.mul(x, y)) == [a * b % P for a, b in zip(ints(x), ints(y), strict=True)]
    assert ints(field.sub(x, y)) == [(a - b) % P for a, b in zip(ints(x), ints(y), strict=True)]


@given(equal_vectors(2), scalars)
def test_axpy_equals_python_integers(vectors: list[NDArray[np.uint64]], a: int) -> None:
    x, y = vectors
    assert ints(field.axpy(a, x, np.zeros_like(x))) == [a * b % P for b in ints(x)]
    assert ints(field.axpy(a, x, y)) == [(a * b + c) % P for b, c in zip(ints(x), ints(y), strict=True)]


@given(equal_vectors(2))
def test_dot_equals_python_integers(vectors: list[NDArray[np.uint64]]) -> None:
    x, y = vectors
    assert field.dot(x, y) == sum(a * b for a, b in zip(ints(x), ints(y), strict=True)) % P


@given(equal_vectors(2))
def test_outer_and_dot_rows_equal_python_integers(vectors: list[NDArray[np.uint64]]) -> None:
    x, y = vectors
    products = field.outer(x, y)
    assert ints(products) == [a * b % P for a in ints(x) for b in ints(y)]
    rows = products.reshape(x.size, y.size)
    assert ints(field.dot_rows(rows, y)) == [field.dot(np.ascontiguousarray(row), y) for row in rows]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096, 100_003])
def test_dot_of_the_largest_entries_does_not_overflow(size: int) -> None:
    x = np.full(size, P - 1, np.uint64)
    assert field.dot(x, x) == size % P


@given(equal_vectors(3))
def test_total_is_the_sum_of_any_number_of_vectors(vectors: list[NDArray[np.uint64]]) -> None:
    size = vectors[0].size
    expected = [sum(column) % P for column in zip(*map(ints, vectors), strict=True)]
    assert ints(field.total(iter(vectors), size)) == expected
    assert ints(field.total([], 3)) == [0, 0, 0]


def test_a_total_is_not_added_to_itself() -> None:
    x, fixed = np.arange(5, dtype=np.uint64), np.zeros(4, np.uint64)
    fixed.setflags(write=False)
    for total, added in ((x, x), (x[:4], x[1:]), (fixed, x[:4]), (x[:3], np.zeros(4, np.uint64))):
        with pytest.raises(ValueError, match=r"overlaps|equal lengths"):
            field.accumulate(total, added)


@given(equal_vectors(1))
def test_lift_is_centred_and_embed_is_its_inverse(vectors: list[NDArray[np.uint64]]) -> None:
    (x,) = vectors
    lifted = field.lift(x)
    assert ints(lifted) == [a if a <= P // 2 else a - P for a in ints(x)]
    assert ints(field.embed(lifted)) == ints(x)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=70))
def test_embed_reduces_every_signed_word(values: list[int]) -> None:
    assert ints(field.embed(np.array(values, np.int64))) == [v % P for v in values]


@pytest.mark.parametrize("v", [0, P, -P, 2 * P, -4 * P, 4 * P, P - 1, -(1 << 63), (1 << 63) - 1])
def test_embed_at_multiples_of_p(v: int) -> None:
    assert ints(field.embed(np.array([v], np.int64))) == [v % P]


@given(equal_vectors(2))
def test_out_may_be_an_input(vectors: list[NDArray[np.uint64]]) -> None:
    x, y = vectors
    expected = field.add(x, y)
    result = field.add(x, y, out=x)
    assert result is x
    assert ints(x) == ints(expected)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_values_of_p_or_more_are_not_canonical(k: int) -> None:
    x = np.arange(100, dtype=np.uint64)
    assert field.is_canonical(x)
    x[57] += np.uint64(k * P)
    assert not field.is_canonical(x)
    x[57] = P
    assert not field.is_canonical(x)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.zeros(4, np.int64), "int64"),
        (np.zeros(4, np.float64), "float64"),
        (np.zeros((2, 2), np.uint64), r"shape \(2, 2\)"),
        (np.zeros(8, np.uint64)[::2], "not contiguous"),
        ([0, 0, 0, 0], "list"),
        (np.zeros(5, np.uint64), "4 and 5"),
    ],
)
def test_a_wrong_vector_is_named(bad: NDArray[np.uint64], words: str) -> None:
    good = np.zeros(4, np.uint64)
    with pytest.raises(ValueError, match=words):
        field.add(good, bad)
    with pytest.raises(ValueError, match=words):
        field.dot(good, bad)
    with pytest.raises(ValueError, match=words):
        field.add(good, good, out=bad)


def test_a_read_only_result_is_refused_and_read_only_inputs_are_not() -> None:
    x = np.ones(4, np.uint64)
    x.flags.writeable = False
    assert ints(field.add(x, x)) == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="read-only"):
        field.add(x, x, out=x)


def test_a_result_that_overlaps_an_input_is_refused() -> None:
    x = np.arange(10, dtype=np.uint64)
    for a, b in [(x[:-1], np.ones(9, np.uint64)), (np.ones(9, np.uint64), x[:-1])]:
        with pytest.raises(ValueError, match="overlaps"):
            field.add(a, b, out=x[1:])


def test_a_scalar_is_a_whole_number() -> None:
    with pytest.raises(TypeError):
        field.axpy(2.9, np.ones(3, np.uint64), np.ones(3, np.uint64))  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [field.lift, field.embed, field.is_canonical])
def test_a_list_is_not_a_vector(function: Callable[[list[int]], object]) -> None:
    with pytest.raises(ValueError, match="list"):
        function([1])


def test_embed_refuses_other_integers_and_wrong_results() -> None:
    with pytest.raises(ValueError, match="int32"):
        field.embed(np.zeros(4, np.int32))
    with pytest.raises(ValueError, match="3"):
        field.embed(np.zeros(4, np.int64), out=np.zeros(3, np.uint64))


def test_each_kernel_is_compiled_once_for_writable_and_read_only_data() -> None:
    x = np.ones(4, np.uint64)
    frozen = x.copy()
    frozen.flags.writeable = False
    for a, b in [(x, x), (x, frozen), (frozen, x), (frozen, frozen)]:
        field.add(a, b)
    assert len(field._add.signatures) == 1  # type: ignore[attr-defined]
