"""The two bounds of the paper, R for a record and C for a client, on the grid (PROTOCOL §3, §7a).

record gradient g  →  encode_clipped(g, R)             integers, norm ≤ R·2^f
sum of a client's records, in integers                 exact
update  →  encode_clipped(decode(sum), C)              integers, norm ≤ C·2^f
"""

import math

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.mpc import fixed_point, kernels
from precad.mpc.kernels import SQUARES, kernel, mul_add_wide

SLACK = 1 - 2.0**-30  # more than all rounding of the float norm, below
_BLOCK = 1 << 16


def encode_clipped(x: NDArray[np.floating], bound: float, fractional_bits: int) -> NDArray[np.int64]:
    """Clip x to ``bound`` and put it on the grid. Paper: Algorithm 2, lines 4 and 7, then line 8.

    Guarantee: the result's squared norm, in exact integers, is at most S = ⌊(bound·2^f)²⌋, for every finite x
    of up to 2^32 entries. Proof: squares are summed in float64 in at most 2^16 blocks of 2^16, so the computed squared
    norm is within a factor 1 ± 2^-35 of the true one (Higham, *Accuracy and Stability of Numerical Algorithms*, §4.2),
    but for squares that underflow, which are far below a grid step; scaling adds at most three roundings of 2^-53.
    Clipping to bound·(1 − 2^-30) leaves room for both, multiplication by 2^f is exact, and truncation
    toward zero only shortens. The integer check at the end holds the proof to account.
    """
    fixed_point.check_floats(x)
    fixed_point.check_grid_bound("bound", bound, fractional_bits)
    clipped = _clip(np.ascontiguousarray(x, np.float64), bound * SLACK)
    integers = fixed_point.encode(clipped, fractional_bits)
    if squared_norm(integers) > fixed_point.squared_bound(bound, fractional_bits):
        raise PrecadError("a clipped vector exceeds its bound: please report this as a bug")
    return integers


def sensitivity(record_bound: float, dim: int, fractional_bits: int, *, client_clipping: bool = True) -> float:
    """R': how far one record can move the encoded update, in the units of R (PROTOCOL §7a).

    Records are clipped and truncated before they are summed in integers, so without client clipping R' = R.
    The projection on the ball of radius C is 1-Lipschitz; truncating two vectors lengthens their difference by
    less than 1 in each coordinate, √d in all; and the projection's float64 rounding is below one grid step, as
    C·2^f < 2^24 by the choice of f: R' = R + (√d + 1)·2^-f.
    """
    fixed_point.check_positive("record_bound R", record_bound)
    if not client_clipping:
        return record_bound
    return record_bound + (math.sqrt(dim) + 1) * math.ldexp(1.0, -fractional_bits)


def squared_norm(integers: NDArray[np.int64]) -> int:
    """Σ x_i², exactly, for |x_i| < 2^48 and up to 2^32 entries; anything else is a ``ValueError``."""
    if integers.dtype != np.int64 or integers.ndim != 1:
        raise ValueError(f"expected an int64 vector, got {integers.dtype} of shape {integers.shape}")
    high, low, largest = _squared_norm(integers)
    if int(largest) >> 48:
        raise ValueError("an entry is not below 2^48")
    return (int(high) << 64) + int(low)


@kernel
def sum_of_squares(x: NDArray[np.floating]) -> float:
    """Σ x_i² of a contiguous vector, in blocks, in an order that is the same for float32 and float64."""
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        stop = min(start + _BLOCK, x.size)
        whole = stop - (stop - start) % SQUARES
        block = kernels.sum_of_squares(x, start, whole)
        for i in range(whole, stop):
            block += np.float64(x[i]) * np.float64(x[i])
        total += block
    return total


def _clip(x: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """x·min(1, bound/‖x‖). A vector with entries above 2^400 is first divided by 2^600, lest squares overflow."""
    largest = float(max(x.max(), -x.min()))
    if not math.isfinite(largest):
        bad = int(np.flatnonzero(~np.isfinite(x))[0])
        raise ValueError(f"entry {bad} of the vector is {x[bad]}, expected finite numbers")
    huge = largest > 2.0**400
    if huge:
        x = x * 2.0**-600
    norm = math.sqrt(sum_of_squares(x))
    return x * (bound / norm) if huge or norm > bound else x


@kernel
def _squared_norm(integers: NDArray[np.int64]) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The high and low words of the sum, and the largest absolute value (up to its highest bit)."""
    high, low, largest = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(integers.size):
        magnitude = np.uint64(abs(integers[i]))
        largest |= magnitude
        high, low = mul_add_wide(high, low, magnitude, magnitude)
    return high, low, largest
