"""The comparison gate against Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.mpc.field import P
from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.protocol.triples import beaver as triples
from precad.protocol.triples import comparison
from precad.protocol.triples.beaver import MASK_BITS, AndTriples, Layer, Rows, Words
from precad.protocol.triples.comparison import Conjunction, Greater
from tests.strategies import EDGES, elements

CONTEXT = Context(Digest(bytes(32)), 3, "c")
TAU = 1 << 24
CONSTANTS = sorted({*EDGES, *((k * TAU + e) % P for k in (-2, -1, 0, 1, 2) for e in (-1, 0, 1))})


def evaluate(a: Greater | Conjunction, b: Greater | Conjunction, layers: list[Layer]) -> list[int]:
    """Both servers' circuits to the end: the opened bits."""
    seed_a, seed_b = Secret.fresh(), Secret.fresh()
    streams = [Stream(seed, Purpose.AND, CONTEXT) for seed in (seed_a, seed_b, seed_a, seed_b)]
    for layer in layers:
        assert not a.done
        gamma = triples.correct(layer, streams[0], streams[1])
        ands = triples.expand_a(layer, streams[2]), triples.expand_b(layer, streams[3], gamma)
        sent = [_hide(share, circuit) for share, circuit in zip(ands, (a, b), strict=True)]
        opened = Words(sent[0] ^ sent[1])
        a = a.merge(triples.multiply(ands[0], opened, leader=True))
        b = b.merge(triples.multiply(ands[1], opened, leader=False))
    assert a.done
    return np.unpackbits((a.result ^ b.result).view(np.uint8), bitorder="little").tolist()


def _hide(share: AndTriples, circuit: Greater | Conjunction) -> Words:
    return triples.hide(share, *circuit.operands())


def greater(masks: list[int], constants: list[int]) -> list[int]:
    bits = triples.slice_bits(np.array(masks, np.uint64), MASK_BITS)
    numbers = triples.slice_bits(np.array(constants, np.uint64), MASK_BITS)
    share = _random_rows(*bits.shape)
    return evaluate(
        comparison.compare(share, numbers, leader=True),
        comparison.compare(bits ^ share, numbers, leader=False),
        list(comparison.comparison_layers(bits.shape[1])),
    )[: len(masks)]


def _random_rows(rows: int, words: int) -> Rows:
    return triples.draw_rows(Stream(Secret.fresh(), Purpose.MASK_BITS, CONTEXT), rows, words)


def test_all_pairs_of_edge_values() -> None:
    pairs = [(mu, k) for mu in CONSTANTS for k in CONSTANTS]
    assert greater([mu for mu, _ in pairs], [k for _, k in pairs]) == [mu > k for mu, k in pairs]


def test_numbers_that_differ_in_one_bit() -> None:
    base = 0x0AAA_5555_1234_FEDC
    pairs = [(base ^ (1 << i), base) for i in range(MASK_BITS)] + [(base, base ^ (1 << i)) for i in range(MASK_BITS)]
    assert greater([mu for mu, _ in pairs], [k for _, k in pairs]) == [mu > k for mu, k in pairs]


@given(st.lists(st.tuples(elements, elements), min_size=1, max_size=70))
def test_random_numbers(pairs: list[tuple[int, int]]) -> None:
    assert greater([mu for mu, _ in pairs], [k for _, k in pairs]) == [mu > k for mu, k in pairs]


@given(st.lists(st.tuples(elements, st.integers(-2 * TAU, 2 * TAU)), min_size=1, max_size=70))
def test_near_numbers(pairs: list[tuple[int, int]]) -> None:
    masks, constants = [mu for mu, _ in pairs], [(mu + offset) % P for mu, offset in pairs]
    assert greater(masks, constants) == [mu > k for mu, k in zip(masks, constants, strict=True)]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 64, 65])
def test_conjunction(rows: int) -> None:
    """Column i has zeros in the rows of which i is the number; the last column has none."""
    bits = np.full((rows, 2), (1 << 64) - 1, np.uint64)
    for column in range(min(rows, 127)):
        bits[column, column // 64] ^= np.uint64(1 << column % 64)
    share = _random_rows(rows, 2)
    layers = list(comparison.conjunction_layers(rows, 2))
    result = evaluate(Conjunction(share), Conjunction(bits ^ share), layers)
    assert result == [0] * rows + [1] * (128 - rows)


def test_depth_and_number_of_gates() -> None:
    compared = list(comparison.comparison_layers(1))
    assert [layer.left for layer in compared] == [30, 15, 8, 4, 2, 1]
    assert sum(layer.corrections for layer in compared) == 114
    joined = list(comparison.conjunction_layers(65, 1))
    assert [layer.right for layer in joined] == [32, 16, 8, 4, 2, 1, 1]
