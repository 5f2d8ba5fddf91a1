"""Wires: runs of m = 16 entries as polynomials, and their squares (PROTOCOL §4, client step 4, server step 2).

Wire n is the polynomial f_n of degree ≤ m through a random value at 0, its mask, and its entries at 1..m. The last
wire is padded with zeros. Squares f_n² have degree ≤ 2m and are known by their values at 0..2m.
"""

import numpy as np
from numpy.typing import NDArray

from precad.mpc.field import FieldVector, P, fold, multiply, reduce_once
from precad.mpc.kernels import kernel, mul_add_wide

M = 16
"""m, the number of entries of a wire."""

_LANES = 32  # wires extended at a time: the table of differences stays in the first-level cache
_LAST = M * _LANES  # where the last row of the table begins
_P, _0 = np.uint64(P), np.uint64(0)


def count(entries: int) -> int:
    """The number of wires for so many entries."""
    return -(-entries // M)


def lagrange(points: int, r: int) -> FieldVector:
    """The coefficients ℓ_0(r)..ℓ_{points−1}(r): a polynomial of lower degree has the value Σ ℓ_j(r)·f(j) at r."""
    result = []
    for j in range(points):
        numerator, denominator = 1, 1
        for k in range(points):
            if k != j:
                numerator = numerator * (r - k) % P
                denominator = denominator * (j - k) % P
        result.append(numerator * pow(denominator, -1, P) % P)
    return np.array(result, np.uint64)


def evaluate(entries: FieldVector, masks: FieldVector, coefficients: FieldVector, out: FieldVector) -> None:
    """Fill ``out`` with f_n(r) for all wires, given ℓ_0(r)..ℓ_m(r)."""
    _evaluate(entries, masks, coefficients, out)


def sum_of_squares(entries: FieldVector, masks: FieldVector) -> FieldVector:
    """P = Σ_n f_n² at 0..2m."""
    out = np.zeros(2 * M + 1, np.uint64)
    _sum_of_squares(entries, masks, np.empty((M + 1) * _LANES, np.uint64), out)
    return out


def squares(entries: FieldVector, masks: FieldVector) -> FieldVector:
    """P_n = f_n² at 0 and m+1..2m, wire after wire: m + 1 values each."""
    out = np.empty(masks.size * (M + 1), np.uint64)
    _squares(entries, masks, np.empty((M + 1) * _LANES, np.uint64), out.reshape(-1, M + 1))
    return out


@kernel
def _evaluate(entries: FieldVector, masks: FieldVector, coefficients: FieldVector, out: FieldVector) -> None:
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
def _load_differences(entries: FieldVector, masks: FieldVector, first: int, table: NDArray[np.uint64]) -> None:
    """Row k of ``table`` := the backward difference of order m − k at m, for wires from ``first`` on."""
    for lane in range(_LANES):
        n = first + lane
        table[lane] = masks[n] if n < masks.size else _0
        for j in range(M):
            at = n * M + j
            table[(j + 1) * _LANES + lane] = entries[at] if at < entries.size else _0
    for order in range(1, M + 1):
        for i in range((M + 1 - order) * _LANES):
            difference = table[i + _LANES] - table[i]
            table[i] = min(difference, difference + _P)


@kernel
def _advance(table: NDArray[np.uint64]) -> None:
    """Move all differences one point to the right; the last row then holds the next values."""
    for i in range(M * _LANES):
        table[i + _LANES] = reduce_once(table[i + _LANES] + table[i])


@kernel
def _sum_of_squares(entries: FieldVector, masks: FieldVector, table: NDArray[np.uint64], out: FieldVector) -> None:
    for first in range(0, masks.size, _LANES):
        high, low = _0, _0
        for n in range(first, min(first + _LANES, masks.size)):
            high, low = mul_add_wide(high, low, masks[n], masks[n])
        out[0] = reduce_once(out[0] + fold(high, low))
        for j in range(M):
            high, low = _0, _0
            for at in range(first * M + j, min((first + _LANES) * M, entries.size), M):
                high, low = mul_add_wide(high, low, entries[at], entries[at])
            out[j + 1] = reduce_once(out[j + 1] + fold(high, low))
        _load_differences(entries, masks, first, table)
        for point in range(M + 1, 2 * M + 1):
            _advance(table)
            high, low = _0, _0
            for lane in range(_LANES):
                high, low = mul_add_wide(high, low, table[_LAST + lane], table[_LAST + lane])
            out[point] = reduce_once(out[point] + fold(high, low))


@kernel
def _squares(entries: FieldVector, masks: FieldVector, table: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    for first in range(0, masks.size, _LANES):
        _load_differences(entries, masks, first, table)
        last = min(first + _LANES, masks.size)
        for n in range(first, last):
            out[n, 0] = multiply(masks[n], masks[n])
        for point in range(1, M + 1):
            _advance(table)
            for n in range(first, last):
                out[n, point] = multiply(table[_LAST + n - first], table[_LAST + n - first])
