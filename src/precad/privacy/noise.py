"""The integer Gaussian that each server adds to its share (PROTOCOL §6, §7a; paper, Algorithm 1, line 5).

The law is that of ⌊G⌉, G ~ N(0, s²), s in grid units: for integers x, x + ⌊G⌉ = ⌊x + G⌉ is post-processing of
the continuous mechanism, so the accountant's figures for N(0, s²) hold without any change.

The sampler is a ziggurat (Marsaglia and Tsang, 2000) made of rectangles only, in 128-bit fixed point:

    the region under exp(−x²/2) on [0, 13) is covered by 256 stacked rectangles of equal area,
    rectangle i = [0, X_i) × [Y_i, Y_i + H_i);
    draw i, a sign, and U, V uniform in [0, 1);  x = X_i·U,  y = Y_i + H_i·V;
    accept if y < exp(−x²/2);  return ±⌊s·x⌉.

**Its distance from the law above is at most 2^-74 per coordinate** (η of PROTOCOL §6). Proof, by coupling it with
the same algorithm run on infinitely many random bits; per accepted coordinate, of about 1.01 candidates:

1. Cut at 13: P(|G/s| ≥ 13) < 2^-125.
2. X_i is rounded up, so no point under the curve is missed. Each H_i is within 2^-127 of A/X_i ≥ 2^-12, so each
   rectangle is chosen with the right probability up to a factor 1 ± 2^-115.
3. Quick accept: the first word of U is below Q_i only if exp(−x²/2) ≥ Y_i + H_i, whatever V and the rest of U.
4. Otherwise exp(−x²/2) is computed with an absolute error below 2^-117 (:func:`_exp_half_square`), and y with one
   below 2^-125. A wrong decision needs |y − exp(−x²/2)| < 2^-116; y is uniform over H_i ≥ 2^-12: at most 2^-103.
5. s·x is computed with an error below 2^-78: 2^-80 from s·X_i, 2^-80 from the product, and 13·2^40·2^-128
   from the end of U. The rounding is wrong only if s·x is that close to a half-integer: at most
   2·2^-78·Σ_h φ_s(h) over the half-integers h, and Σ_h φ_s(h) ≤ 1 + 2·φ_s(0) < 2.6 for s ≥ 1/2: 2^-75.

The sum of these is below 2^-74.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from precad.mpc.kernels import kernel, mul_wide
from precad.mpc.prg import Purpose, Stream

DISTANCE = 2.0**-74
"""η: a bound on the statistical distance of one coordinate from ⌊N(0, s²)⌉."""

MIN_STD, MAX_STD = 0.5, 2.0**40

Words = NDArray[np.uint64]

_LAYERS = 256
_CUT = 13
_CHUNK_WORDS = 1 << 14
_0, _1, _63 = (np.uint64(value) for value in (0, 1, 63))
_LAYER_MASK, _SIGN_BIT = np.uint64(_LAYERS - 1), np.uint64(_LAYERS)
_HALF, _FRACTION_BITS = np.uint64(1 << 15), np.uint64(16)  # s·x counts 2^-80, so its high word counts 2^-16


def integer_gaussian(std: float, size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` independent draws of ⌊N(0, std²)⌉, within :data:`DISTANCE` of the law, for 1/2 ≤ std ≤ 2^40."""
    if not isinstance(stream, Stream):
        raise TypeError(f"noise is drawn from a cryptographic Stream, not from {type(stream).__name__}")
    if stream.purpose is not Purpose.NOISE:
        raise ValueError(f"noise is drawn from a stream of its own, not from {stream.purpose}")
    if not MIN_STD <= std <= MAX_STD:
        raise ValueError(f"the standard deviation must be in [0.5, 2^40] grid units, got {std}")
    tables, scaled = _tables(), _scaled_widths(std)
    out = np.empty(size, np.int64)
    words = np.empty(min(3 * size + size // 8 + 64, _CHUNK_WORDS), np.uint64)
    filled = 0
    while filled < size:
        stream.fill_words(words)
        filled = _sample(words, *tables, scaled, out, filled)
    return out


class _Tables(NamedTuple):
    """The rectangles. Two columns are the high and low word of a 128-bit fraction."""

    quick: Words  # Q_i: U < Q_i·2^-64 implies a point under the curve
    width: Words  # X_i, in units of 2^-124
    bottom: Words  # Y_i, in units of 2^-127
    height: Words  # H_i, in units of 2^-127
    exp: Words  # exp(−2^(j−121)), j = 0..127, in units of 2^-128


@cache
def _tables() -> _Tables:
    with localcontext(Context(prec=60)):
        area = _area()
        widths, bottoms, heights, quick = [], [Decimal(0)], [], []
        width = Decimal(_CUT)
        for _ in range(_LAYERS):
            widths.append(_to_int(width, 124, ROUND_CEILING))
            heights.append(area / (Decimal(widths[-1]) / (1 << 124)))
            top = bottoms[-1] + heights[-1]
            bottoms.append(top)
            width = (-2 * top.ln()).sqrt() if top < 1 else Decimal(0)
            inside = width * (1 - Decimal(10) ** -40) / (Decimal(widths[-1]) / (1 << 124))
            quick.append(_to_int(inside, 64, ROUND_FLOOR))
            width *= 1 + Decimal(10) ** -50
        if top < 1:
            raise AssertionError("the rectangles do not cover the curve")
        exp = [_to_int((-(Decimal(2) ** (j - 121))).exp(), 128, ROUND_FLOOR) for j in range(128)]
        return _Tables(
            np.array(quick, np.uint64),
            _words(widths),
            _words([_to_int(y, 127, ROUND_FLOOR) for y in bottoms[:-1]]),
            _words([_to_int(h, 127, ROUND_FLOOR) for h in heights]),
            _words(exp),
        )


def _area() -> Decimal:
    """The area A of one rectangle: the least, to 2^-39, for which 256 of them reach height 1."""
    low, high = 1.25 / _LAYERS, 1.35 / _LAYERS
    for _ in range(45):
        area = (low + high) / 2
        top, width = 0.0, float(_CUT)
        for _ in range(_LAYERS):
            top += area / width
            width = math.sqrt(-2 * math.log(top)) if top < 1 else 0.0
            if width == 0.0:
                break
        low, high = (low, area) if top >= 1 else (area, high)
    return Decimal(high) * (1 + Decimal(2) ** -40)


@lru_cache(maxsize=16)
def _scaled_widths(std: float) -> Words:
    """⌊s·X_i·2^80⌋."""
    widths = _tables().width
    integers = [(int(high) << 64) + int(low) for high, low in widths]
    return _words([math.floor(Fraction(std) * x / (1 << 44)) for x in integers])


def _to_int(value: Decimal, bits: int, rounding: str) -> int:
    return int((value * (1 << bits)).to_integral_value(rounding))


def _words(integers: list[int]) -> Words:
    return np.array([(value >> 64, value & ((1 << 64) - 1)) for value in integers], np.uint64)


@kernel
def _sample(
    words: Words,
    quick: Words,
    width: Words,
    bottom: Words,
    height: Words,
    exp: Words,
    scaled: Words,
    out: NDArray[np.int64],
    filled: int,
) -> int:
    """Fill ``out`` from index ``filled`` on until it is full or the words run out; return the new index."""
    used = 0
    while filled < out.size and used + 5 <= words.size:
        layer, sign = words[used] & _LAYER_MASK, words[used] & _SIGN_BIT
        u_high, u_low = words[used + 1], words[used + 2]
        used += 3
        if u_high >= quick[layer]:
            f_high, f_low = _exp_half_square(width[layer, 0], width[layer, 1], u_high, u_low, exp)
            y_high, y_low = _mul_high(height[layer, 0], height[layer, 1], words[used], words[used + 1])
            used += 2
            y_low += bottom[layer, 1]
            y_high += bottom[layer, 0] + (_1 if y_low < bottom[layer, 1] else _0)
            if y_high > f_high or (y_high == f_high and y_low >= f_low):
                continue
        g_high, _ = _mul_high(scaled[layer, 0], scaled[layer, 1], u_high, u_low)
        magnitude = np.int64((g_high + _HALF) >> _FRACTION_BITS)
        out[filled] = -magnitude if sign else magnitude
        filled += 1
    return filled


@kernel
def _exp_half_square(
    x_high: np.uint64, x_low: np.uint64, u_high: np.uint64, u_low: np.uint64, exp: Words
) -> tuple[np.uint64, np.uint64]:
    """exp(−(X·U)²/2) in units of 2^-127, with an error below 2^-117.

    x = X·U in units of 2^-124 has an error below 2^-123; v = x²/2 in units of 2^-121 then one below
    13·2^-123 + 2^-121 < 2^-118; exp(−v) is the product of exp(−2^(j−121)) over the bits j of v, starting from
    1 − 2^-128, each factor and each product rounded down by at most 2^-128: 2^-119 in all.
    """
    x_high, x_low = _mul_high(x_high, x_low, u_high, u_low)
    v_high, v_low = _mul_high(x_high, x_low, x_high, x_low)
    high, low = ~_0, ~_0
    for j in range(128):
        bit = (v_low >> np.uint64(j)) if j < 64 else (v_high >> np.uint64(j - 64))
        if bit & _1:
            high, low = _mul_high(high, low, exp[j, 0], exp[j, 1])
    return high >> _1, (low >> _1) | (high << _63)


@kernel
def _mul_high(a_high: np.uint64, a_low: np.uint64, b_high: np.uint64, b_low: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The upper 128 bits of a 128 × 128 bit product, rounded down."""
    high, low = mul_wide(a_high, b_high)
    cross1_high, cross1_low = mul_wide(a_high, b_low)
    cross2_high, cross2_low = mul_wide(a_low, b_high)
    carry, _ = mul_wide(a_low, b_low)
    middle = cross1_low + cross2_low
    over = _1 if middle < cross1_low else _0
    middle += carry
    over += _1 if middle < carry else _0
    for part in (over, cross1_high, cross2_high):
        low += part
        high += _1 if low < part else _0
    return high, low
