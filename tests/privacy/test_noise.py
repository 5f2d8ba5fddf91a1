"""The noise: each line of the proof in its docstring, and the law itself."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy import noise
from tests.messages import says
from tests.stat_tests import ALPHA, rounded_normal_p_value

words = st.one_of(st.sampled_from([0, 1, (1 << 64) - 1, 1 << 63]), st.integers(0, (1 << 64) - 1))


def fresh_stream() -> Stream:
    return Stream(Secret.fresh(), Purpose.NOISE, Context(Digest(bytes(32)), 0, "A"))


def joined(pairs: NDArray[np.uint64]) -> list[int]:
    return [(int(high) << 64) + int(low) for high, low in pairs]


def gaussian(x: Fraction) -> Decimal:
    """exp(−x²/2) to 50 digits."""
    return (-((Decimal(x.numerator) / Decimal(x.denominator)) ** 2) / 2).exp()


@given(words, words, words, words)
def test_mul_high_equals_python_integers(a1: int, a0: int, b1: int, b0: int) -> None:
    high, low = noise._mul_high(*(np.uint64(v) for v in (a1, a0, b1, b0)))
    product = ((a1 << 64) + a0) * ((b1 << 64) + b0)
    assert (int(high) << 64) + int(low) == product >> 128


@given(st.integers(0, 255), words, words)
def test_exp_is_within_its_error(layer: int, u1: int, u0: int) -> None:
    layers = noise._tables()
    x = layers.width[layer]
    high, low = noise._exp_half_square(x[0], x[1], np.uint64(u1), np.uint64(u0), layers.exp)
    with localcontext() as context:
        context.prec = 60
        u = Fraction((u1 << 64) + u0, 1 << 128)
        exact = gaussian(u * Fraction(joined(layers.width)[layer], 1 << 124))
        computed = Decimal((int(high) << 64) + int(low)) / (1 << 127)
        assert abs(computed - exact) < Decimal(2) ** -117


def test_the_rectangles_are_as_the_proof_says() -> None:
    layers = noise._tables()
    widths, bottoms, heights = joined(layers.width), joined(layers.bottom), joined(layers.height)
    with localcontext() as context:
        context.prec = 60
        assert widths[0] == 13 << 124
        areas = [w * h for w, h in zip(widths, heights, strict=True)]
        assert max(areas) - min(areas) <= max(areas) >> 115
        for i in range(256):
            x, y = Fraction(widths[i], 1 << 124), Decimal(bottoms[i]) / (1 << 127)
            top = y + Decimal(heights[i]) / (1 << 127)
            assert i == 0 or gaussian(x) <= y + Decimal(2) ** -127  # nothing under the curve is missed
            assert i == 255 or bottoms[i + 1] - bottoms[i] - heights[i] in (0, 1)  # stacked without a gap
            assert heights[i] >= 1 << 115
            quick = Fraction(int(layers.quick[i]), 1 << 64) * x
            assert int(layers.quick[i]) == 0 or gaussian(quick) >= top + Decimal(2) ** -126
        assert top >= 1
        efficiency = Decimal(math.sqrt(math.pi / 2)) / (256 * Decimal(areas[0]) / (1 << 251))
        assert efficiency > Decimal("0.97")


CHUNK = 1000


def reference(std: float, size: int, stream: Stream) -> list[int]:
    """The module's docstring, in exact arithmetic."""
    layers = noise._tables()
    widths, bottoms, heights = joined(layers.width), joined(layers.bottom), joined(layers.height)
    result: list[int] = []
    drawn: list[int] = []
    with localcontext() as context:
        context.prec = 60
        while len(result) < size:
            if len(drawn) < 5:
                buffer = np.empty(CHUNK, np.uint64)
                stream.fill_words(buffer)
                drawn = [int(w) for w in buffer]
            head, u = drawn.pop(0), Fraction((drawn.pop(0) << 64) + drawn.pop(0), 1 << 128)
            layer, x = head & 255, u * Fraction(widths[head & 255], 1 << 124)
            if u >= Fraction(int(layers.quick[layer]), 1 << 64):
                v = Fraction((drawn.pop(0) << 64) + drawn.pop(0), 1 << 128)
                y = (bottoms[layer] + heights[layer] * v) / (1 << 127)
                if Decimal(y.numerator) / Decimal(y.denominator) >= gaussian(x):
                    continue
            magnitude = math.floor(Fraction(std) * x + Fraction(1, 2))
            result.append(-magnitude if head & 256 else magnitude)
    return result


@pytest.mark.parametrize("std", [0.5, 1.0, 7.3, 131_234.5, 2.0**40])
def test_the_sampler_equals_exact_arithmetic(std: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many refills of the buffer; at its end, up to four words are left unused."""
    monkeypatch.setattr(noise, "_CHUNK_WORDS", CHUNK)
    seed, context = Secret.fresh(), Context(Digest(bytes(32)), 0, "A")
    drawn = noise.integer_gaussian(std, 4000, Stream(seed, Purpose.NOISE, context))
    assert drawn.tolist() == reference(std, 4000, Stream(seed, Purpose.NOISE, context))


SIZE = 1 << 20


@pytest.mark.parametrize("std", [0.5, 0.7, 1.0, 3.0, 100.0, 131_072.0, 1e6 / 3, 2.0**40])
def test_the_law(std: float) -> None:
    """False alarm: ALPHA per case."""
    k = noise.integer_gaussian(std, SIZE, fresh_stream())
    assert rounded_normal_p_value(k, std, np.random.default_rng()) > ALPHA


@pytest.mark.parametrize("std", [1.0, 3.0, 131_072.0, 2.0**40])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_the_test_rejects_a_scale_one_per_cent_off(std: float, factor: float) -> None:
    k = noise.integer_gaussian(std, SIZE, fresh_stream())
    assert rounded_normal_p_value(k, std * factor, np.random.default_rng()) < ALPHA


def test_the_test_rejects_floats_rounded_to_a_coarse_grid() -> None:
    """What a float32 sampler scaled up would give: a right shape on the wrong grid."""
    coarse = np.random.default_rng(1).standard_normal(SIZE, np.float32).astype(np.float16)
    scaled = np.rint(coarse.astype(np.float64) * 131_072.0).astype(np.int64)
    assert rounded_normal_p_value(scaled, 131_072.0, np.random.default_rng(2)) < ALPHA


@pytest.mark.parametrize("size", [0, 1, 2, 100, (1 << 14) // 3, 1 << 14])
def test_any_length(size: int) -> None:
    assert noise.integer_gaussian(8.0, size, fresh_stream()).shape == (size,)


def test_a_stream_that_is_not_cryptographic_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=says("Stream", "Generator")):
        noise.integer_gaussian(8.0, 10, np.random.default_rng(0))  # type: ignore[arg-type]


def test_a_stream_of_another_purpose_is_refused() -> None:
    with pytest.raises(ValueError, match=says("stream", "Purpose.SHARE")):
        noise.integer_gaussian(8.0, 10, Stream(Secret.fresh(), Purpose.SHARE, Context(Digest(bytes(32)), 0, "A")))


@pytest.mark.parametrize("std", [0.0, 0.49, -1.0, 2.0**40 + 1, math.nan, math.inf])
def test_a_standard_deviation_out_of_range_is_named(std: float) -> None:
    with pytest.raises(ValueError, match=r"\[0.5, 2\^40\]"):
        noise.integer_gaussian(std, 10, fresh_stream())


@pytest.mark.parametrize("s", [0.5, 0.7, 1.0, 1.5])
def test_two_rounded_noises_are_one_within_lemma_7(s: float) -> None:
    """⌊G_1⌉ + ⌊G_2⌉ against ⌊G + U⌉: at small s the difference can be seen, and is within the lemma's bound."""
    n = np.arange(-60, 61)
    rounded = special.ndtr((n + 0.5) / s) - special.ndtr((n - 0.5) / s)
    both = np.convolve(rounded, rounded)[60:-60]
    u, weights = np.polynomial.legendre.leggauss(64)
    wide = math.sqrt(2) * s
    cells = [special.ndtr((n + 0.5 + v / 2) / wide) - special.ndtr((n - 0.5 + v / 2) / wide) for v in u]
    one = np.tensordot(weights / 2, np.array(cells), 1)
    bound = sum(2 * math.exp(-((math.pi * s * k) ** 2)) for k in range(1, 9)) / (2 * s * math.sqrt(math.pi))
    assert np.abs(both - one).max() <= bound + 1e-15
    assert s > 1 or np.abs(both - one).max() > bound / 100  # the bound is of the right size
