"""One-time correlated randomness: what a dealer makes, and how a server uses it (paper, §4.3; PROTOCOL §5).

Three correlations, each shared between servers A and B, and each used once:

- a square: a ∈ F^d, and r = a·a;
- a mask: μ ∈ F, and its 61 bits;
- AND gates: bits α and β, and γ = α ∧ β.

A expands all its shares from a seed. B expands from its own seed what is free, that is its shares of a, μ, α and β,
and the dealer sends it the rest as corrections: r, the bits of μ, and γ, each less A's share.

Bits are shared by XOR and *sliced*: row i of a matrix of words has bit i of 64 values in each word, so that one
machine operation does 64 gates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field
from precad.mpc.field import FieldVector, P
from precad.mpc.kernels import kernel
from precad.mpc.prg import Stream
from precad.mpc.secret import Redacted

Words = NewType("Words", NDArray[np.uint64])
"""A vector of 64-bit words that are bits, not numbers: none is too large."""

Rows = NDArray[np.uint64]
"""A matrix of words: one row a bit position or operand, 64 values in a word."""

MASK_BITS = 61

_CHUNK = 1 << 14
_0, _1 = np.uint64(0), np.uint64(1)


def blind(x: FieldVector, a: Stream) -> FieldVector:
    """x − a, with a the next entries of the stream."""
    out = np.empty(x.size, np.uint64)
    for part in _parts(x.size):
        a.fill_field(out[part])
        field.sub(x[part], out[part], out=out[part])
    return out


def product(b: FieldVector, a: Stream) -> int:
    """b·a mod p, with a the next entries of the stream."""
    buffer = np.empty(min(_CHUNK, b.size), np.uint64)
    total = 0
    for part in _parts(b.size):
        entries = buffer[: b[part].size]
        a.fill_field(entries)
        total += field.dot(b[part], entries)
    return total % P


def square(size: int, a: Stream, b: Stream) -> int:
    """The square a·a mod p of the sum of the next entries of both streams: the dealer's r."""
    total = 0
    for part in _parts(size):
        count = part.stop - part.start
        entries = a.field(count)
        field.add(entries, b.field(count), out=entries)
        total += field.dot(entries, entries)
    return total % P


@kernel
def slice_bits(values: NDArray[np.uint64], count: int) -> Rows:
    """The low ``count`` bits of each value, sliced; the last word of a row is filled up with zeros."""
    out = np.empty((count, -(-values.size // 64)), np.uint64)
    for row in range(count):
        for word in range(out.shape[1]):
            bits = _0
            for lane in range(min(64, values.size - 64 * word)):
                bits |= ((values[64 * word + lane] >> np.uint64(row)) & _1) << np.uint64(lane)
            out[row, word] = bits
    return out


def draw_rows(stream: Stream, rows: int, words: int) -> Rows:
    """The next rows of random bits of the stream."""
    out = np.empty(rows * words, np.uint64)
    stream.fill_words(out)
    return out.reshape(rows, words)


@dataclass(frozen=True)
class Layer:
    """AND gates that are evaluated in one exchange, row by row.

    Right operand i is multiplied by left operand i, and those beyond the left operands by left operands 1, 2, …
    again, which are then opened only once.
    """

    left: int
    right: int
    words: int

    @property
    def opened(self) -> int:
        """How many words a server sends for this layer."""
        return (self.left + self.right) * self.words

    @property
    def corrections(self) -> int:
        """How many words the dealer sends to B for this layer."""
        return self.right * self.words


@dataclass(frozen=True, repr=False)
class AndTriples(Redacted):
    """One server's shares of a layer's correlation."""

    alpha: Rows
    beta: Rows
    gamma: Rows


def expand_a(layer: Layer, stream: Stream) -> AndTriples:
    """A's shares: all from its seed."""
    alpha, beta = _operands(layer, stream)
    return AndTriples(alpha, beta, draw_rows(stream, layer.right, layer.words))


def expand_b(layer: Layer, stream: Stream, gamma: Words) -> AndTriples:
    """B's shares: α and β from its seed, γ from the dealer."""
    return AndTriples(*_operands(layer, stream), gamma.reshape(layer.right, layer.words))


def correct(layer: Layer, a: Stream, b: Stream) -> Words:
    """The dealer's γ for B: α ∧ β less A's share, from the streams of both servers."""
    share, (alpha, beta) = expand_a(layer, a), _operands(layer, b)
    gamma = (_paired(share.alpha ^ alpha, layer.right) & (share.beta ^ beta)) ^ share.gamma
    return Words(gamma.ravel())


def hide(triples: AndTriples, left: Rows, right: Rows) -> Words:
    """A server's message for a layer: its shares of left ⊕ α and right ⊕ β."""
    return Words(np.concatenate([left ^ triples.alpha, right ^ triples.beta]).ravel())


def multiply(triples: AndTriples, opened: Words, *, leader: bool) -> Rows:
    """A server's share of the layer's products, from the sum of both messages (Beaver). A adds the public term."""
    split, count = len(triples.alpha), len(triples.beta)
    rows = opened.reshape(split + count, triples.beta.shape[1])
    left, right = _paired(rows[:split], count), rows[split:]
    products: Rows = triples.gamma ^ (left & triples.beta) ^ (right & _paired(triples.alpha, count))
    return products ^ (left & right) if leader else products


def _operands(layer: Layer, stream: Stream) -> tuple[Rows, Rows]:
    return draw_rows(stream, layer.left, layer.words), draw_rows(stream, layer.right, layer.words)


def _paired(left: Rows, count: int) -> Rows:
    """The left operand of each of ``count`` right operands."""
    return np.concatenate([left, left[1 : count - len(left) + 1]])


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, min(start + _CHUNK, size)) for start in range(0, size, _CHUNK))
