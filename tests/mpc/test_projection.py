"""Projections against a matrix of bits."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.mpc import projection
from precad.mpc.field import P
from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from tests.strategies import vectors

SEED = Secret.fresh()
SIZES = [1, 2, 7, 100, 16_383, 16_384, 16_385, 40_000]


def z() -> Stream:
    return Stream(SEED, Purpose.Z, Context(Digest(bytes(32)), 0, "c"))


def bits(size: int) -> NDArray[np.int64]:
    """Z as rows × coordinates: bit j of a coordinate's sixteen bytes."""
    words = np.empty(2 * size, np.uint64)
    z().fill_words(words)
    columns = np.unpackbits(words.view(np.uint8).reshape(size, 16), axis=1, bitorder="little")
    return columns.T.astype(np.int64)


@pytest.mark.parametrize("size", SIZES)
def test_project(size: int) -> None:
    x = np.random.default_rng(size).integers(-(1 << 16), 1 << 16, size)
    assert np.array_equal(projection.project(x, z()), bits(size) @ x)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_projections_do_not_overflow(sign: int) -> None:
    x = np.full(40_000, sign * math.isqrt((1 << 48) // 40_000))
    assert np.array_equal(projection.project(x, z()), bits(x.size) @ x)


@pytest.mark.parametrize("size", SIZES)
def test_weighted_product(size: int) -> None:
    generator = np.random.default_rng(size)
    x = generator.integers(0, P, size, dtype=np.uint64)
    v = generator.integers(0, 1 << 57, projection.ROWS, dtype=np.uint64)
    expected = sum(int(a) * int(b) for a, b in zip(bits(size).T @ v.astype(object), x, strict=True)) % P
    assert projection.weighted_product(projection.tables(v), z(), x) == expected


def test_a_processor_without_avx_512_finds_the_same() -> None:
    """In a process of its own, since a process compiles for one processor."""
    program = (
        "import numpy as np; from precad.mpc import projection, wires; from precad.mpc.prg import *; "
        "z = Stream(Secret(bytes(32)), Purpose.Z, Context(Digest(bytes(32)), 0, 'c')); "
        "v = np.arange(128, dtype=np.uint64) << np.uint64(49); x = np.arange(5000, dtype=np.uint64) << np.uint64(48); "
        "out = np.empty(79, np.uint64); wires.evaluate(x, x[-79:], x[-65:], out); "
        "print(projection.weighted_product(projection.tables(v), z, x), out)"
    )
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    answers = [
        subprocess.run([sys.executable, "-c", program], env=os.environ | chosen, check=True, capture_output=True).stdout
        for chosen in (generic, {})
    ]
    assert answers[0] == answers[1] != b""


def test_the_largest_sums_do_not_overflow() -> None:
    """Thousands of the largest products, one after the other, between two foldings and after the last."""
    v, size = np.full(projection.ROWS, (1 << 57) - 1, np.uint64), 5_000
    x = np.full(size, P - 1, np.uint64)
    expected = -sum(bits(size).T @ v.astype(object)) % P
    assert projection.weighted_product(projection.tables(v), z(), x) == expected


@given(vectors(40))
def test_the_largest_weights_do_not_overflow(x: NDArray[np.uint64]) -> None:
    v = np.full(projection.ROWS, (1 << 57) - 1, np.uint64)
    expected = sum(int(a) * int(b) for a, b in zip(bits(40).T @ v.astype(object), x, strict=True)) % P
    assert projection.weighted_product(projection.tables(v), z(), x) == expected


@given(st.integers(0, 127))
def test_one_weight_selects_one_row(row: int) -> None:
    x = np.arange(1, 51, dtype=np.uint64)
    v = np.zeros(projection.ROWS, np.uint64)
    v[row] = 1
    expected = int(bits(50)[row] @ x.astype(np.int64))
    assert projection.weighted_product(projection.tables(v), z(), x) == expected


def round_z() -> Stream:
    return Stream(SEED, Purpose.ROUND_Z, Context(Digest(bytes(32)), 0, "c"))


def projected(x: NDArray[np.uint64]) -> list[int]:
    """Z·x mod p on 64 rows, a word of the stream a coordinate."""
    columns = np.empty(x.size, np.uint64)
    round_z().fill_words(columns)
    pairs = [(int(column), int(entry)) for column, entry in zip(columns, x, strict=True)]
    return [sum(entry for column, entry in pairs if column >> row & 1) % P for row in range(projection.ROUND_ROWS)]


@given(vectors(40))
def test_project_share(x: NDArray[np.uint64]) -> None:
    assert projection.project_share(x, round_z()).tolist() == projected(x)


@pytest.mark.parametrize("size", [0, *SIZES])
def test_project_share_of_the_largest_entries(size: int) -> None:
    x = np.full(size, P - 1, np.uint64)
    x[::3] = np.arange(x[::3].size, dtype=np.uint64)
    assert projection.project_share(x, round_z()).tolist() == projected(x)
