"""Many records at once: clip each gradient to R, put it on the grid, add up each client's (PROTOCOL §7a).

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


def add_clipped(
    gradients: NDArray[np.float32],
    owners: NDArray[np.int64],
    bound: float,
    fractional_bits: int,
    out: NDArray[np.int64],
) -> None:
    """Add every row of ``gradients``, clipped to R = ``bound`` and truncated to the grid, to its owner's row of ``out``.

    ``owners`` never falls from one row to the next. A row that is not finite counts as 0. Paper: Algorithm 2, lines
    3 to 5. Guarantee: each row adds integers of squared norm at most ⌊(R·2^f)²⌋, as proved in ``encode_clipped``
    and checked here: truncated floats are integers, and float64 adds their squares exactly up to
    2^53 > (R·2^f)²; past that it rounds monotonically, so that no violation goes unseen.
    """
    check_record_bound(bound, fractional_bits)
    _check_arrays(gradients, owners, out)
    limit = fixed_point.squared_bound(bound, fractional_bits)
    factors = np.empty(len(gradients))
    _factors(gradients, bound * SLACK, math.ldexp(1.0, fractional_bits), factors)
    largest = _add_truncated(gradients, owners, factors, out)
    if not largest <= limit:
        raise PrecadError("a clipped gradient exceeds its bound: please report this as a bug")


def check_record_bound(bound: float, fractional_bits: int) -> None:
    """Refuse an R that is not in [1, 2^26) on the grid, the range in which float64 adds squares exactly."""
    fixed_point.check_positive("record_bound R", bound)
    low, high = math.ldexp(1.0, -fractional_bits), math.ldexp(1.0, _MAX_BITS - fractional_bits)
    if not low <= bound < high:
        raise ValueError(f"record_bound R must be in [{low:.3g}, {high:.3g}) with f = {fractional_bits}, got {bound}")


def _check_arrays(gradients: NDArray[np.float32], owners: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    if gradients.dtype != np.float32 or gradients.ndim != 2 or not gradients.flags.c_contiguous:
        raise ValueError(f"expected a float32 matrix in row order, got {gradients.dtype} of shape {gradients.shape}")
    if out.dtype != np.int64 or out.ndim != 2 or out.shape[1] != gradients.shape[1]:
        raise ValueError(f"expected int64 sums of {gradients.shape[1]} columns, got {out.dtype} of shape {out.shape}")
    if owners.dtype != np.int64 or owners.shape != gradients.shape[:1]:
        raise ValueError(f"expected {len(gradients)} int64 owners, got {owners.dtype} of shape {owners.shape}")
    if owners.size and not (0 <= owners[0] and owners[-1] < len(out) and (np.diff(owners) >= 0).all()):
        raise ValueError(f"expected owners in order, from 0 to {len(out) - 1}, got {owners}")


@kernel
def _factors(gradients: NDArray[np.float32], bound: float, scale: float, factors: NDArray[np.float64]) -> None:
    """By what to multiply each row; 0 for one that is not finite (float32 squares do not overflow float64)."""
    for row in range(len(gradients)):
        norm = math.sqrt(sum_of_squares(gradients[row]))
        if not math.isfinite(norm):
            factors[row] = 0.0
        else:
            factors[row] = (bound / norm) * scale if norm > bound else scale


@reassociating_kernel
def _add_truncated(
    gradients: NDArray[np.float32], owners: NDArray[np.int64], factors: NDArray[np.float64], out: NDArray[np.int64]
) -> float:
    """Add the truncated rows; return the largest squared norm. All sums are of integers, so their order is free."""
    squares = np.zeros(len(gradients))
    sums = np.empty(_COLUMNS)
    first = 0
    while first < len(gradients):
        last = first + 1
        while last < len(gradients) and owners[last] == owners[first]:
            last += 1
        for start in range(0, gradients.shape[1], _COLUMNS):
            width = min(_COLUMNS, gradients.shape[1] - start)
            sums[:] = 0.0
            for row in range(first, last):
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
            totals = out[owners[first], start : start + width]
            for i in range(width):
                totals[i] += np.int64(sums[i])
        first = last
    return squares.max() if len(squares) else 0.0
