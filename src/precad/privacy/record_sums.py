"""A client's records at once: clip each gradient to R, put it on the grid, add them up (PROTOCOL §7a).

The same numbers as :func:`precad.privacy.clipping.encode_clipped` on each record, in one pass over the batch.
"""

import math

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.mpc import fixed_point
from precad.mpc.kernels import kernel, reassociating_kernel
from precad.privacy.clipping import SLACK, sum_of_squares

_COLUMNS = 2048
_MAX_BITS = 26


def add_clipped(gradients: NDArray[np.float32], bound: float, fractional_bits: int, total: NDArray[np.int64]) -> None:
    """Clip every row of ``gradients`` to R = ``bound``, truncate it to the grid, and add it to ``total``.

    A row that is not finite counts as 0. Paper: Algorithm 2, line 4, and the sum of line 6. Guarantee: each row adds
    integers of squared norm at most ⌊(R·2^f)²⌋, as proved in ``encode_clipped`` and checked here: truncated floats are
    integers, and float64 adds their squares exactly up to 2^53 > (R·2^f)²; past that it rounds monotonically, so that
    no violation goes unseen. The sum of the rows is exact too, as it stays below 2^53 for up to 2^27 rows.
    """
    check_record_bound(bound, fractional_bits)
    if gradients.dtype != np.float32 or gradients.ndim != 2 or not gradients.flags.c_contiguous:
        raise ValueError(f"expected a float32 matrix in row order, got {gradients.dtype} of shape {gradients.shape}")
    if total.dtype != np.int64 or total.shape != gradients.shape[1:]:
        raise ValueError(f"expected an int64 total of {gradients.shape[1]}, got {total.dtype} of shape {total.shape}")
    largest = _add_clipped(gradients, bound * SLACK, math.ldexp(1.0, fractional_bits), total)
    if not largest <= fixed_point.squared_bound(bound, fractional_bits):
        raise PrecadError("a clipped gradient exceeds its bound: please report this as a bug")


def add_unclipped(gradients: NDArray[np.float32], total: NDArray[np.float64]) -> None:
    """Add every row of ``gradients`` to ``total``, in float64: for training without a bound on records."""
    if gradients.dtype != np.float32 or gradients.shape[1:] != total.shape or total.dtype != np.float64:
        expected = f"float32 rows of the {total.size} float64 entries of the total"
        raise ValueError(f"expected {expected}, got {gradients.dtype} of shape {gradients.shape}")
    _add_rows(gradients, total)


def check_record_bound(bound: float, fractional_bits: int) -> None:
    """Refuse an R that is not in [1, 2^26) on the grid, the range in which float64 adds squares exactly."""
    fixed_point.check_positive("record_bound R", bound)
    low, high = math.ldexp(1.0, -fractional_bits), math.ldexp(1.0, _MAX_BITS - fractional_bits)
    if not low <= bound < high:
        raise ValueError(f"record_bound R must be in [{low:.3g}, {high:.3g}) with f = {fractional_bits}, got {bound}")


@reassociating_kernel
def _add_clipped(gradients: NDArray[np.float32], bound: float, scale: float, total: NDArray[np.int64]) -> float:
    """Add the rows; return the largest squared norm. All sums but the norm's are of integers: their order is free."""
    factors, squares = np.empty(len(gradients)), np.zeros(len(gradients))
    for row in range(len(gradients)):
        factors[row] = _factor(sum_of_squares(gradients[row]), bound, scale)
    sums = np.empty(_COLUMNS)
    for start in range(0, total.size, _COLUMNS):
        width = min(_COLUMNS, total.size - start)
        sums[:] = 0.0
        for row in range(len(gradients)):
            factor = factors[row]
            if factor == 0.0:
                continue
            square = 0.0
            entries = gradients[row, start : start + width]
            for i in range(width):
                value = np.trunc(np.float64(entries[i]) * factor)
                sums[i] += value
                square += value * value
            squares[row] += square
        totals = total[start : start + width]
        for i in range(width):
            totals[i] += np.int64(sums[i])
    return squares.max() if len(squares) else 0.0


@kernel
def _add_rows(gradients: NDArray[np.float32], total: NDArray[np.float64]) -> None:
    for start in range(0, total.size, _COLUMNS):
        sums = total[start : start + _COLUMNS]
        for row in range(len(gradients)):
            entries = gradients[row, start : start + _COLUMNS]
            for i in range(sums.size):
                sums[i] += entries[i]


@kernel
def _factor(squared: float, bound: float, scale: float) -> float:
    """By what to multiply a row; 0 if it is not finite (squares of float32 do not overflow float64)."""
    if not math.isfinite(squared):
        return 0.0
    norm = math.sqrt(squared)
    return (bound / norm) * scale if norm > bound else scale
