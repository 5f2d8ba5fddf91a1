"""Wires: runs of m entries as polynomials, and their squares (PROTOCOL §4, client step 4, server step 2).

Wire n is the polynomial f_n of degree ≤ m through a random value at 0, its mask, and its entries at 1..m. The last
wire is padded with zeros. Squares f_n² have degree ≤ 2m and are known by their values at 0..2m. Longer wires are fewer,
and so are the values that the servers exchange, but a client works more, and a proof is a little less sound.
"""

from functools import cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field
from precad.mpc.field import FieldVector, P, fold, fold_products, multiply, reduce_once
from precad.mpc.kernels import SUMS, WEIGHTS, add_products, kernel, mul_add_wide

SHORT, LONG = 16, 64
"""m, the number of entries of a wire; a multiple of 16."""
LARGE = 1 << 17
"""From so many entries on wires are long."""

_BLOCK = 16  # 17 products of field elements fit in 128 bits
_CHUNK = 1 << 11  # wires multiplied at a time
_0, _1, _LIMB = np.uint64(0), np.uint64(1), np.uint64((1 << 21) - 1)


def length(dim: int) -> int:
    """m, for vectors of so many entries."""
    return LONG if dim >= LARGE else SHORT


def count(entries: int, m: int) -> int:
    """The number of wires that a number of entries needs."""
    return -(-entries // m)


def lagrange(points: int, r: int) -> FieldVector:
    """The coefficients ℓ_0(r)..ℓ_{points−1}(r): a polynomial of lower degree has the value Σ ℓ_j(r)·f(j) at r."""
    below, above = [1], [1]  # Π_{k<j} (r − k), and the same from the other end
    for k in range(points):
        below.append(below[-1] * (r - k) % P)
        above.append(above[-1] * (r - points + 1 + k) % P)
    inverses = _inverse_denominators(points)
    return np.array([below[j] * above[points - 1 - j] * inverses[j] % P for j in range(points)], np.uint64)


@cache
def _inverse_denominators(points: int) -> list[int]:
    """1/Π_{k≠j} (j − k) for each j: the product is j! times (−1)^i·i!, for the i points above j."""
    return [pow((-1) ** i * factorial(j) * factorial(i), -1, P) for j in range(points) for i in [points - 1 - j]]


def sum_of_squares(entries: NDArray[np.int64], masks: FieldVector, m: int) -> FieldVector:
    """P = Σ_n f_n² at 0..2m, for integer entries with Σ x_i² < 2^48.

    With y_n = (mask, entries) of wire n, P(t) = ℓ(t)ᵀ·(Σ_n y_n·y_nᵀ)·ℓ(t). The products with entries are matrix
    products of float64, and exact: sums of |x_i·x_j| are at most Σ x_i², and a mask enters as three limbs of
    21 bits, whose products with 2^11 entries of a position sum to at most 2^21·√(2^11·2^48) < 2^51.
    """
    products = np.zeros((m + 3, m), np.int64)
    rows = np.empty((min(_CHUNK, masks.size), m + 3))
    for first in range(0, masks.size, _CHUNK):
        part = masks[first : first + _CHUNK]
        chunk = rows[: part.size]
        _fill_rows(entries[first * m :], part, chunk)
        products = (products + (chunk.T @ chunk[:, :m]).astype(np.int64)) % P
    gram = np.empty((m + 1, m + 1), np.uint64)
    gram[1:, 1:] = products[:m]
    gram[0, 0] = field.dot(masks, masks)
    gram[0, 1:] = gram[1:, 0] = [(a + (b << 21) + (c << 42)) % P for a, b, c in products[m:].T.tolist()]
    return field.dot_rows(_quadratic_forms(m), gram.ravel())


def squares(entries: FieldVector, masks: FieldVector, m: int) -> FieldVector:
    """P_n = f_n² at 0 and m+1..2m, wire after wire: m + 1 values each."""
    out = np.empty((masks.size, m + 1), np.uint64)
    _squares(entries, masks, _extension(m), out)
    return out.ravel()


@cache
def _extension(m: int) -> NDArray[np.uint64]:
    """Row t: the coefficients ℓ_0..ℓ_m at m + 1 + t."""
    return np.array([lagrange(m + 1, m + 1 + t) for t in range(m)])


@cache
def _quadratic_forms(m: int) -> NDArray[np.uint64]:
    """ℓ(t)·ℓ(t)ᵀ, flat, for t = 0..2m."""
    return np.array([field.outer(vector, vector) for vector in (lagrange(m + 1, t) for t in range(2 * m + 1))])


@kernel
def _fill_rows(entries: NDArray[np.int64], masks: FieldVector, rows: NDArray[np.float64]) -> None:
    """One row a wire: its entries, and the limbs of its mask."""
    m = rows.shape[1] - 3
    for n in range(masks.size):
        first = n * m
        if first + m <= entries.size:
            for j in range(m):
                rows[n, j] = entries[first + j]
        else:
            for j in range(m):
                rows[n, j] = entries[first + j] if first + j < entries.size else 0
        for limb in range(3):
            rows[n, m + limb] = (masks[n] >> np.uint64(21 * limb)) & _LIMB


@kernel
def evaluate(entries: FieldVector, masks: FieldVector, coefficients: FieldVector, out: FieldVector) -> None:
    """Fill ``out`` with f_n(r) for all wires, given ℓ_0(r)..ℓ_m(r)."""
    m, sums = coefficients.size - 1, np.zeros(SUMS, np.uint64)
    for n in range(masks.size):
        out[n] = _value(entries, n * m, masks[n], coefficients, sums)


@kernel
def _squares(entries: FieldVector, masks: FieldVector, extension: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    m, sums = extension.shape[0], np.zeros(SUMS, np.uint64)
    for n in range(masks.size):
        out[n, 0] = multiply(masks[n], masks[n])
        for t in range(m):
            value = _value(entries, n * m, masks[n], extension[t], sums)
            out[n, t + 1] = multiply(value, value)


@kernel
def _value(
    entries: FieldVector, first: int, mask: np.uint64, coefficients: FieldVector, sums: NDArray[np.uint64]
) -> np.uint64:
    """The value of the wire whose entries begin at ``first``. The sums are 0, and are 0 again."""
    result, high, low, done = multiply(coefficients[0], mask), _0, _0, 0
    while done + WEIGHTS <= min(coefficients.size - 1, entries.size - first):
        if not add_products(sums, coefficients, done + 1, entries, first + done):
            break
        done += WEIGHTS
    if done:
        result = reduce_once(result + fold_products(sums))
    for block in range(done, coefficients.size - 1, _BLOCK):
        odd_high, odd_low, count = _0, _0, entries.size - first - block
        if count >= _BLOCK:
            for j in range(0, _BLOCK, 2):  # two sums, so that neither waits for the other
                entry, weight = np.uint64(first + block + j), np.uint64(block + 1 + j)
                high, low = mul_add_wide(high, low, coefficients[weight], entries[entry])
                odd_high, odd_low = mul_add_wide(odd_high, odd_low, coefficients[weight + _1], entries[entry + _1])
            high, low = mul_add_wide(high + odd_high, low, _1, odd_low)
        else:
            for j in range(max(0, count)):
                high, low = mul_add_wide(high, low, coefficients[block + 1 + j], entries[first + block + j])
        result = reduce_once(result + fold(high, low))
        high, low = _0, _0
    return result
