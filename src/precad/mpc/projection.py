"""Random 0/1 projections of a vector: a byte of keystream a coordinate for each eight rows (PROTOCOL §4, §5).

Bit j of a coordinate's bits is its entry z_ji in row j of Z. A client projects its vector on 128 rows: sixteen bits
of the keystream mask an addition of x_i to sixteen sums. On shares a byte of the keystream stands for eight rows: v is
looked up in a table of its 256 partial sums (or, where one instruction looks up eight columns, a nibble in one of 16),
and servers that draw Z themselves, and project their shares on 64 rows, add x_i to one of 256 buckets for each byte.
"""

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field
from precad.mpc.field import FieldVector, P, fold, fold_products, reduce_once
from precad.mpc.kernels import (
    CALLS,
    COLUMNS,
    SUMS,
    WEIGHTS,
    add_products,
    add_where,
    kernel,
    look_up_nibbles,
    mul_add_wide,
    mul_wide,
)
from precad.mpc.prg import Stream

ROWS = 128
"""The rows of a Z that a hash of the submission fixes, and that can be searched for offline."""
ROUND_ROWS = 64
"""The rows of a Z that the servers draw after closing."""

_BYTES = ROWS // 8
_CHUNK = 1 << 14  # of integers, whose sums must fit in 31 bits
_LONG_CHUNK = 1 << 15
_0, _1, _8, _32, _61, _255, _LOW, _P = (np.uint64(value) for value in (0, 1, 8, 32, 61, 255, (1 << 32) - 1, P))
_BITS = (np.arange(256)[:, None] >> np.arange(8)) & 1
_Scalar = TypeVar("_Scalar", np.int64, np.uint64)


def project(x: NDArray[np.int64], z: Stream) -> NDArray[np.int64]:
    """Z·x over the integers, for Σ x_i² < 2^48: the sums of 2^14 entries are then below √(2^14·2^48) = 2^31."""
    result = np.zeros(ROWS, np.int64)
    for part, words in _columns(x, z, ROWS, _CHUNK):
        sums = np.zeros(ROWS, np.int32)
        _add_columns(part, words, sums)
        result += sums
    return result


def project_share(share: FieldVector, z: Stream) -> FieldVector:
    """Z·share mod p on 64 rows."""
    buckets = np.zeros(ROUND_ROWS // 8 * 256, np.uint64)
    for part, words in _columns(share, z, ROUND_ROWS, _LONG_CHUNK):
        _fill_field_buckets(part, words, buckets)
    halves = np.concatenate([buckets >> _32, buckets & _LOW]).astype(np.int64)  # 256 of them sum to less than 2^40
    high, low = field.embed((halves.reshape(-1, 256) @ _BITS).ravel()).reshape(2, ROUND_ROWS)
    return field.axpy(1 << 32, high, low)


@kernel
def tables(v: FieldVector) -> FieldVector:
    """For each byte of the keystream the 256 partial sums of its eight entries of v, below 2^57 each.

    Then a whole column's sum of 128 entries fits in a word.
    """
    out = np.zeros(_BYTES * 256, np.uint64)
    for byte in range(_BYTES):
        for bit in range(8):
            for low in range(1 << bit):
                out[256 * byte + (1 << bit) + low] = out[256 * byte + low] + v[8 * byte + bit]
    return out


def weighted_product(v_tables: FieldVector, z: Stream, x: FieldVector) -> int:
    """(vᵀZ)·x mod p."""
    columns = _columns(x, z, ROWS, _LONG_CHUNK)
    return sum(int(_weighted_product(part, words, v_tables)) for part, words in columns) % P


def _columns(
    x: NDArray[_Scalar], z: Stream, rows: int, chunk: int
) -> Iterator[tuple[NDArray[_Scalar], NDArray[np.uint64]]]:
    """The entries of x a few at a time, each time with their columns of Z in the same buffer."""
    x = x.view()
    x.setflags(write=False)  # so that each kernel is compiled once
    buffer = np.empty(rows // 64 * min(chunk, x.size), np.uint64)
    for start in range(0, x.size, chunk):
        part = x[start : start + chunk]
        words = buffer[: rows // 64 * part.size]
        z.fill_words(words)
        yield part, words


@kernel
def _add_columns(x: NDArray[np.int64], words: NDArray[np.uint64], sums: NDArray[np.int32]) -> None:
    whole = x.size - x.size % COLUMNS
    for i in range(0, whole, COLUMNS):
        add_where(sums, words, x, i)
    for i in range(whole, x.size):
        for row in range(ROWS):
            if words[2 * i + row // 64] >> np.uint64(row % 64) & _1:
                sums[row] += x[i]


@kernel
def _fill_field_buckets(x: FieldVector, words: NDArray[np.uint64], buckets: NDArray[np.uint64]) -> None:
    for i in range(x.size):
        word, entry = words[i], x[i]
        for byte in range(8):
            place = np.uint64(256 * byte) + ((word >> np.uint64(8 * byte)) & _255)
            total = buckets[place] + entry
            buckets[place] = total + (_8 if total < entry else _0)  # a wrapped word lacks 2^64 ≡ 8


@kernel
def _weighted_product(x: FieldVector, words: NDArray[np.uint64], tables: FieldVector) -> np.uint64:
    result, weights, nibbles = _0, np.empty(WEIGHTS, np.uint64), _nibbles(tables)
    whole, sums = x.size - x.size % WEIGHTS, np.zeros(SUMS, np.uint64)
    for first in range(0, whole, WEIGHTS):
        if not look_up_nibbles(nibbles, words, first, weights):
            for i in range(WEIGHTS):
                weights[i] = _weight(words, first + i, tables)
        if add_products(sums, weights, 0, x, first):
            if (first + WEIGHTS) % (CALLS * WEIGHTS) == 0 or first + WEIGHTS == whole:
                result = reduce_once(result + fold_products(sums))
            continue
        high, low = _0, _0
        for start in range(0, WEIGHTS, 8):
            for i in range(8):
                high, low = mul_add_wide(high, low, weights[np.uint64(start + i)], x[np.uint64(first + start + i)])
        result = reduce_once(result + fold(high, low))
    for i in range(whole, x.size):
        result = reduce_once(result + fold(*mul_wide(_weight(words, i, tables), x[i])))
    return result


@kernel
def _nibbles(tables: FieldVector) -> FieldVector:
    """The tables of partial sums of four entries of v, out of those of eight."""
    out = np.empty((_BYTES, 2, 16), np.uint64)
    for byte in range(_BYTES):
        for value in range(16):
            out[byte, 0, value] = tables[256 * byte + value]
            out[byte, 1, value] = tables[256 * byte + 16 * value]
    return out.ravel()


@kernel
def _weight(words: NDArray[np.uint64], i: int, tables: FieldVector) -> np.uint64:
    """The entry i of vᵀZ, below 2^61 + 8: 32 products with field elements fit in two words."""
    weight = _0
    for half in range(2):
        word = words[np.uint64(2 * i + half)]
        for byte in range(8):
            weight += tables[np.uint64(2048 * half + 256 * byte) + ((word >> np.uint64(8 * byte)) & _255)]
    return (weight & _P) + (weight >> _61)
