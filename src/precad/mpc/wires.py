"""Wires: runs of m = 16 entries as polynomials, and their squares (PROTOCOL §4, client step 4, server step 2).

Wire n is the polynomial f_n of degree ≤ m through a random value at 0, its mask, and its entries at 1..m. The last
wire is padded with zeros. Squares f_n² have degree ≤ 2m and are known by their values at 0..2m.
"""

from functools import cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field
from precad.mpc.field import FieldVector, P, fold, multiply
from precad.mpc.kernels import kernel, mul_add_wide

M = 16
"""m, the number of entries of a wire."""

_CHUNK = 1 << 11  # wires multiplied at a time
_0, _LIMB = np.uint64(0), np.uint64((1 << 21) - 1)


def count(entries: int) -> int:
    """The number of wires that a number of entries needs."""
    return -(-entries // M)


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


def sum_of_squares(entries: NDArray[np.int64], masks: FieldVector) -> FieldVector:
    """P = Σ_n f_n² at 0..2m, for integer entries with Σ x_i² < 2^48.

    With y_n = (mask, entries) of wire n, P(t) = ℓ(t)ᵀ·(Σ_n y_n·y_nᵀ)·ℓ(t). The products with entries are matrix
    products of float64, and exact: sums of |x_i·x_j| are at most Σ x_i², and a mask enters as three limbs of
    21 bits, whose products with 2^11 entries of a position sum to at most 2^21·√(2^11·2^48) < 2^51.
    """
    products = np.zeros((M + 3, M), np.int64)
    rows = np.empty((min(_CHUNK, masks.size), M + 3))
    for first in range(0, masks.size, _CHUNK):
        part = masks[first : first + _CHUNK]
        chunk = rows[: part.size]
        _fill_rows(entries[first * M :], part, chunk)
        products = (products + (chunk.T @ chunk[:, :M]).astype(np.int64)) % P
    gram = np.empty((M + 1, M + 1), np.uint64)
    gram[1:, 1:] = products[:M]
    gram[0, 0] = field.dot(masks, masks)
    gram[0, 1:] = gram[1:, 0] = [(a + (b << 21) + (c << 42)) % P for a, b, c in products[M:].T.tolist()]
    return field.dot_rows(_quadratic_forms(), gram.ravel())


def squares(entries: FieldVector, masks: FieldVector) -> FieldVector:
    """P_n = f_n² at 0 and m+1..2m, wire after wire: m + 1 values each."""
    out = np.empty((masks.size, M + 1), np.uint64)
    _squares(entries, masks, _extension(), out)
    return out.ravel()


@cache
def _extension() -> NDArray[np.uint64]:
    """Row t: the coefficients ℓ_0..ℓ_m at m + 1 + t."""
    return np.array([lagrange(M + 1, M + 1 + t) for t in range(M)])


@cache
def _quadratic_forms() -> NDArray[np.uint64]:
    """ℓ(t)·ℓ(t)ᵀ, flat, for t = 0..2m."""
    return np.array([field.outer(vector, vector) for vector in (lagrange(M + 1, t) for t in range(2 * M + 1))])


@kernel
def _fill_rows(entries: NDArray[np.int64], masks: FieldVector, rows: NDArray[np.float64]) -> None:
    """One row a wire: its entries, and the limbs of its mask."""
    for n in range(masks.size):
        first = n * M
        if first + M <= entries.size:
            for j in range(M):
                rows[n, j] = entries[first + j]
        else:
            for j in range(M):
                rows[n, j] = entries[first + j] if first + j < entries.size else 0
        for limb in range(3):
            rows[n, M + limb] = (masks[n] >> np.uint64(21 * limb)) & _LIMB


@kernel
def evaluate(entries: FieldVector, masks: FieldVector, coefficients: FieldVector, out: FieldVector) -> None:
    """Fill ``out`` with f_n(r) for all wires, given ℓ_0(r)..ℓ_m(r)."""
    for n in range(masks.size):
        high, low = mul_add_wide(_0, _0, coefficients[0], masks[n])
        first = n * M
        if first + M <= entries.size:
            for j in range(M):
                high, low = mul_add_wide(high, low, coefficients[j + 1], entries[first + j])
        else:
            for j in range(entries.size - first):
                high, low = mul_add_wide(high, low, coefficients[j + 1], entries[first + j])
        out[n] = fold(high, low)


@kernel
def _squares(entries: FieldVector, masks: FieldVector, extension: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    for n in range(masks.size):
        out[n, 0] = multiply(masks[n], masks[n])
        for t in range(M):
            high, low = mul_add_wide(_0, _0, extension[t, 0], masks[n])
            for j in range(min(M, entries.size - n * M)):
                high, low = mul_add_wide(high, low, extension[t, j + 1], entries[n * M + j])
            value = fold(high, low)
            out[n, t + 1] = multiply(value, value)
