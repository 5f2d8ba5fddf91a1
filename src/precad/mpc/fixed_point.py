"""Floats on the integer grid of the shares (PROTOCOL §3).

With f fractional bits a float x stands on the grid as the integer x·2^f **truncated toward zero**, so that no
encoding is longer than what it encodes and no honest client is ever over its bound. The bounds below are
exact integers, computed from the float C as the rational number that it is.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from precad.mpc.field import P
from precad.mpc.kernels import kernel

MAX_FRACTIONAL_BITS = 16
MAX_DIM = 1 << 32
NOISE_STDS = 40
MAX_WINDOW = 1 << ((math.isqrt(P) // 16).bit_length() - 1)
"""The largest power of two τ ≤ √p/16, as the proof of the norm needs (PROTOCOL §3, §4): 2^26."""


def encode(x: NDArray[np.floating], fractional_bits: int) -> NDArray[np.int64]:
    """x·2^f truncated toward zero. Refuses NaN, infinity, and entries of p/2 or more on the grid."""
    check_floats(x)
    values = np.ascontiguousarray(x, np.float64)
    out = np.empty(values.size, np.int64)
    bad = _truncate(values, math.ldexp(1.0, fractional_bits), float(P // 2), out)
    if bad >= 0:
        raise ValueError(f"entry {bad} of the vector is not a finite number below 2^{60 - fractional_bits}")
    return out


def decode(integers: NDArray[np.int64], fractional_bits: int) -> NDArray[np.float64]:
    """The floats that grid integers stand for; exact below 2^53."""
    return np.ldexp(integers.astype(np.float64), -fractional_bits)


def squared_bound(bound: float, fractional_bits: int) -> int:
    """S = ⌊(bound·2^f)²⌋: the largest squared integer norm of a vector within ``bound``."""
    check_positive("bound", bound)
    return int((Fraction(bound) * (1 << fractional_bits)) ** 2)


def window(s: int) -> int:
    """τ = 2^⌈log2(6.75·√S + 1)⌉, a window that honest projections leave with probability below 2^-130 (§4)."""
    tau = 1
    while 729 * s > 16 * (tau - 1) ** 2:  # 6.75·√S + 1 > τ, squared, in integers
        tau *= 2
    return tau


def choose_fractional_bits(client_bound: float) -> int:
    """The largest f ≤ 16 for which τ ≤ √p/16."""
    check_positive("client_bound C", client_bound)
    for f in range(MAX_FRACTIONAL_BITS, -1, -1):
        if window(squared_bound(client_bound, f)) <= MAX_WINDOW:
            return f
    largest = int((MAX_WINDOW - 1) / 6.75)
    raise ValueError(f"client_bound C = {client_bound} does not fit the field: use a C of at most {largest}")


def check_sum_fits(clients: int, client_bound: float, noise_std: float, fractional_bits: int) -> None:
    """Refuse parameters with which the opened sum could wrap around p.

    The sum of ``clients`` vectors within the bound, plus 40 standard deviations of the noise of both servers
    (``noise_std`` each, in grid units), must stay below p/2 in every coordinate. Without validation a
    malicious client is not within its bound, and this check promises nothing about what it sends.
    """
    signal = clients * math.isqrt(squared_bound(client_bound, fractional_bits))
    noise = math.ceil(NOISE_STDS * math.sqrt(2) * noise_std)
    if signal + noise >= P // 2:
        raise ValueError(
            f"the sum could overflow the field: {clients} clients × C·2^f = {signal}, plus {NOISE_STDS} standard "
            f"deviations of noise = {noise}, must stay below {P // 2}; lower C, σ or the number of clients"
        )


def check_floats(x: NDArray[np.floating]) -> None:
    """Refuse anything but a non-empty float32 or float64 vector of at most 2^32 entries."""
    if not isinstance(x, np.ndarray) or x.dtype not in (np.float32, np.float64):
        kind = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise ValueError(f"expected a float32 or float64 vector, got {kind}")
    if x.ndim != 1 or not 0 < x.size <= MAX_DIM:
        raise ValueError(f"expected a vector of 1 to 2^32 entries, got shape {x.shape}")


def check_positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above 0."""
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")


def check_grid_bound(name: str, bound: float, fractional_bits: int) -> None:
    """Refuse a bound on norms that is not in [1, 2^48) on the grid: exact integer norms are then below 2^128."""
    check_positive(name, bound)
    low, high = math.ldexp(1.0, -fractional_bits), math.ldexp(1.0, 48 - fractional_bits)
    if not low <= bound < high:
        raise ValueError(f"{name} must be in [{low:.3g}, {high:.3g}) with f = {fractional_bits}, got {bound}")


@kernel
def _truncate(x: NDArray[np.float64], factor: float, limit: float, out: NDArray[np.int64]) -> int:
    """Fill ``out``; return the index of an entry that is NaN or not below ``limit``, or −1."""
    bad = False
    for i in range(x.size):
        scaled = x[i] * factor
        inside = abs(scaled) < limit  # false for NaN
        bad |= not inside
        out[i] = np.int64(scaled) if inside else 0
    if bad:
        for i in range(x.size):
            if not abs(x[i] * factor) < limit:
                return i
    return -1
