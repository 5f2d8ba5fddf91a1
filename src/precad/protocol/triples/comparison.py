"""The comparison gate: shared bits against public numbers, 64 comparisons in a word (PROTOCOL §5).

Both circuits here are trees of AND gates. A circuit gives the operands of its next layer, and takes their products;
how the servers multiply, and that they must exchange a message to do it, is not its business (``beaver.py``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from precad.mpc.secret import Redacted
from precad.protocol.triples.beaver import MASK_BITS, Layer, Rows


@dataclass(frozen=True, repr=False)
class Greater(Redacted):
    """A server's shares of [μ > k], on the way from single bits to the whole number.

    For a block of bits, ``greater`` says that μ > k on these bits alone, ``equal`` that μ = k on them. Two
    neighbouring blocks combine to (g_high ⊕ e_high·g_low, e_high·e_low). Blocks go from low to high; nobody
    asks whether the lowest is equal, so ``equal`` begins with the second.
    """

    greater: Rows
    equal: Rows

    @property
    def done(self) -> bool:
        """Whether one block is left."""
        return len(self.greater) == 1

    @property
    def result(self) -> Rows:
        """The shares of [μ > k], if done."""
        return self.greater.ravel()

    def operands(self) -> tuple[Rows, Rows]:
        """The operands of the next layer: e_high; g_low and then e_low."""
        pairs = len(self.greater) // 2
        low = [self.greater[: 2 * pairs : 2], self.equal[1 : 2 * pairs - 1 : 2]]
        return self.equal[: 2 * pairs : 2], np.concatenate(low)

    def merge(self, products: Rows) -> "Greater":
        """Half as many blocks; the highest stays alone if their number is odd."""
        pairs = len(self.greater) // 2
        high, alone = self.greater[1 : 2 * pairs : 2], self.greater[2 * pairs :]
        return Greater(
            np.concatenate([high ^ products[:pairs], alone]),
            np.concatenate([products[pairs:], self.equal[2 * pairs - 1 :]]),
        )


def compare(mask_bits: Rows, constants: Rows, *, leader: bool) -> Greater:
    """Begin [μ > k] for shared bits of μ and public bits of k: one bit is greater if it is 1 where k has 0."""
    equal = mask_bits[1:]
    return Greater(mask_bits & ~constants, equal ^ ~constants[1:] if leader else equal)


def comparison_layers(words: int) -> Iterator[Layer]:
    """The layers of :class:`Greater`: ⌈log2 61⌉ = 6."""
    blocks = MASK_BITS
    while blocks > 1:
        pairs = blocks // 2
        yield Layer(pairs, 2 * pairs - 1, words)
        blocks -= pairs


@dataclass(frozen=True, repr=False)
class Conjunction(Redacted):
    """A server's shares of the AND of all rows, on the way from all to one."""

    rows: Rows

    @property
    def done(self) -> bool:
        """Whether one row is left."""
        return len(self.rows) == 1

    @property
    def result(self) -> Rows:
        """The shares of the AND, if done."""
        return self.rows.ravel()

    def operands(self) -> tuple[Rows, Rows]:
        """The operands of the next layer: the first rows, and as many after them."""
        pairs = len(self.rows) // 2
        return self.rows[:pairs], self.rows[pairs : 2 * pairs]

    def merge(self, products: Rows) -> "Conjunction":
        """Half as many rows; the last stays alone if their number is odd."""
        return Conjunction(np.concatenate([products, self.rows[2 * len(products) :]]))


def conjunction_layers(rows: int, words: int) -> Iterator[Layer]:
    """The layers of :class:`Conjunction`: ⌈log2 rows⌉."""
    while rows > 1:
        yield Layer(rows // 2, rows // 2, words)
        rows -= rows // 2
