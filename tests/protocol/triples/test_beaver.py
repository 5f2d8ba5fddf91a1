"""Correlated randomness: it is what it says, and a server sees nothing through it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.protocol.triples import beaver as triples
from precad.protocol.triples.beaver import AndTriples, Layer, Rows, Words
from tests.stat_tests import ALPHA, uniform_bins_p_value, uniform_field_p_value
from tests.strategies import vectors

CONTEXT = Context(Digest(bytes(32)), 3, "c")
SIZES = [0, 1, 100, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 40_000]

layers = st.builds(
    lambda left, extra, words: Layer(left, left + min(extra, left - 1), words),
    st.integers(1, 9),
    st.integers(0, 8),
    st.integers(0, 3),
)


def stream(seed: Secret, purpose: Purpose = Purpose.SQUARE) -> Stream:
    return Stream(seed, purpose, CONTEXT)


def dealt(layer: Layer) -> tuple[AndTriples, AndTriples]:
    a, b = Secret.fresh(), Secret.fresh()
    gamma = triples.correct(layer, stream(a, Purpose.AND), stream(b, Purpose.AND))
    return (
        triples.expand_a(layer, stream(a, Purpose.AND)),
        triples.expand_b(layer, stream(b, Purpose.AND), gamma),
    )


def paired(left: Rows, right: Rows) -> Rows:
    return np.array([left[i] if i < len(left) else left[i - len(left) + 1] for i in range(len(right))], np.uint64)


@pytest.mark.parametrize("size", SIZES)
def test_streamed_vectors_equal_whole_ones(size: int) -> None:
    seeds = [Secret.fresh() for _ in range(3)]
    a, b, x = (stream(seed).field(size) for seed in seeds)
    total = [(int(i) + int(j)) % P for i, j in zip(a, b, strict=True)]
    assert triples.square(size, stream(seeds[0]), stream(seeds[1])) == sum(v * v for v in total) % P
    assert triples.product(x, stream(seeds[0])) == sum(int(i) * int(j) for i, j in zip(x, a, strict=True)) % P
    blinded = triples.blind(x, stream(seeds[0]))
    assert blinded.tolist() == [(int(i) - int(j)) % P for i, j in zip(x, a, strict=True)]


def test_a_blinded_vector_is_uniform() -> None:
    """False alarm: ALPHA. Power: with one seed for two vectors their difference is not."""
    x, seed = np.zeros(1 << 18, np.uint64), Secret.fresh()
    blinded = triples.blind(x, stream(seed))
    assert uniform_field_p_value(blinded) > ALPHA
    again = triples.blind(np.arange(x.size, dtype=np.uint64), stream(seed))
    assert uniform_field_p_value((again - blinded) % np.uint64(P)) < ALPHA


@given(st.sampled_from([0, 1, 63, 64, 65, 130]).flatmap(vectors), st.sampled_from([1, 61, 64]))
def test_sliced_bits(values: FieldVector, bits: int) -> None:
    rows = triples.slice_bits(values, bits)
    assert rows.shape == (bits, -(-values.size // 64))
    for i, row in enumerate(rows):
        number = sum(int(word) << (64 * w) for w, word in enumerate(row))
        assert number == sum((int(value) >> i & 1) << k for k, value in enumerate(values))


@given(layers)
def test_and_triples_hold(layer: Layer) -> None:
    a, b = dealt(layer)
    alpha, beta, gamma = a.alpha ^ b.alpha, a.beta ^ b.beta, a.gamma ^ b.gamma
    assert (alpha.shape, beta.shape) == ((layer.left, layer.words), (layer.right, layer.words))
    assert np.array_equal(gamma, paired(alpha, beta) & beta)


@given(layers, st.integers(0, 2**32))
def test_gates_reconstruct(layer: Layer, seed: int) -> None:
    generator = np.random.default_rng(seed)

    def draw(rows: int) -> Rows:
        return generator.integers(0, 1 << 64, (rows, layer.words), np.uint64)

    left, right, left_a, right_a = draw(layer.left), draw(layer.right), draw(layer.left), draw(layer.right)
    a, b = dealt(layer)
    sent_a, sent_b = triples.hide(a, left_a, right_a), triples.hide(b, left ^ left_a, right ^ right_a)
    assert sent_a.size == sent_b.size == layer.opened
    opened = Words(sent_a ^ sent_b)
    product = triples.multiply(a, opened, leader=True) ^ triples.multiply(b, opened, leader=False)
    assert np.array_equal(product, paired(left, right) & right)


def test_messages_and_products_are_uniform() -> None:
    """What a server sends of constant bits, and its share of their products. False alarm: 6·ALPHA."""
    layer = Layer(10, 19, 200)
    a, b = dealt(layer)
    ones, zeros = (np.full((layer.right, layer.words), word, np.uint64) for word in ((1 << 64) - 1, 0))
    sent_a, sent_b = triples.hide(a, ones[:10], ones), triples.hide(b, zeros[:10], zeros)
    opened = Words(sent_a ^ sent_b)
    products = [triples.multiply(a, opened, leader=True), triples.multiply(b, opened, leader=False)]
    gammas = [a.gamma, b.gamma]
    for words in (sent_a, opened, *products, *gammas):
        assert uniform_bins_p_value(words.ravel().view(np.uint8), 256) > ALPHA
    assert uniform_bins_p_value((sent_a ^ triples.hide(a, zeros[:10], zeros)).view(np.uint8), 256) < ALPHA


def test_triples_do_not_print() -> None:
    assert (
        repr(dealt(Layer(2, 3, 4))[0]) == "AndTriples(alpha=<uint64[2, 4]>, beta=<uint64[3, 4]>, gamma=<uint64[3, 4]>)"
    )
