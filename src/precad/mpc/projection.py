"""Random 0/1 projections of a vector: 128 rows at a time, sixteen bytes of keystream a coordinate (PROTOCOL §4).

Bit j of a coordinate's 128 bits is its entry z_ji in row j of Z. Neither Z·x nor vᵀZ is computed bit by bit: a
byte of the keystream stands for eight rows, so x_i is added to one of 256 buckets for each byte, or v is looked
up in a table of its 256 partial sums.
"""

import numpy as np
from numpy.typing import NDArray

from precad.mpc.field import FieldVector, P, fold, reduce_once
from precad.mpc.kernels import kernel, mul_add_wide
from precad.mpc.prg import Stream

ROWS = 128
_BYTES = ROWS // 8
_CHUNK = 1 << 13
_0, _255 = np.uint64(0), np.uint64(255)


def project(x: NDArray[np.int64], z: Stream) -> NDArray[np.int64]:
    """Z·x over the integers, for |x_i| < 2^31 and up to 2^32 entries."""
    buckets = np.zeros(_BYTES * 256, np.int64)
    words = np.empty(2 * min(_CHUNK, x.size), np.uint64)
    for start in range(0, x.size, _CHUNK):
        part = x[start : start + _CHUNK]
        z.fill_words(words[: 2 * part.size])
        _fill_buckets(part, words, buckets)
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    return (buckets.reshape(_BYTES, 256) @ bits).ravel()


def tables(v: FieldVector) -> FieldVector:
    """For each byte of the keystream the 256 partial sums of its eight entries of v, below 2^57 each.

    Then a whole column's sum of 128 entries fits in a word, and eight of its products with field elements in two.
    """
    out = np.zeros(_BYTES * 256, np.uint64)
    _fill_tables(v, out)
    return out


def weighted_product(v_tables: FieldVector, z: Stream, x: FieldVector) -> int:
    """(vᵀZ)·x mod p."""
    words = np.empty(2 * min(_CHUNK, x.size), np.uint64)
    total = 0
    for start in range(0, x.size, _CHUNK):
        part = x[start : start + _CHUNK]
        z.fill_words(words[: 2 * part.size])
        total += int(_weighted_product(part, words, v_tables))
    return total % P


@kernel
def _fill_buckets(x: NDArray[np.int64], words: NDArray[np.uint64], buckets: NDArray[np.int64]) -> None:
    for i in range(x.size):
        for half in range(2):
            word = words[np.uint64(2 * i + half)]
            for byte in range(8):
                place = np.uint64(2048 * half + 256 * byte) + ((word >> np.uint64(8 * byte)) & _255)
                buckets[place] += x[i]


@kernel
def _fill_tables(v: FieldVector, out: FieldVector) -> None:
    for byte in range(_BYTES):
        for bit in range(8):
            for low in range(1 << bit):
                out[256 * byte + (1 << bit) + low] = out[256 * byte + low] + v[8 * byte + bit]


@kernel
def _weighted_product(x: FieldVector, words: NDArray[np.uint64], tables: FieldVector) -> np.uint64:
    result = _0
    for start in range(0, x.size, 8):
        high, low = _0, _0
        for i in range(start, min(start + 8, x.size)):
            weight = _0
            for half in range(2):
                word = words[np.uint64(2 * i + half)]
                for byte in range(8):
                    place = np.uint64(2048 * half + 256 * byte) + ((word >> np.uint64(8 * byte)) & _255)
                    weight += tables[place]
            high, low = mul_add_wide(high, low, weight, x[np.uint64(i)])
        result = reduce_once(result + fold(high, low))
    return result
