"""The dealer of validation by triples: what it makes for one closed round, and how large it is (PROTOCOL §5).

Dealer and servers take every size from one :class:`Plan` and every stream from one function here, so that they cannot
disagree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from precad.mpc import field
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Digest, Purpose, Stream
from precad.mpc.projection import ROUND_ROWS
from precad.mpc.secret import Secret
from precad.protocol.messages import DealA, DealB
from precad.protocol.params import Round
from precad.protocol.triples import beaver as triples
from precad.protocol.triples import comparison
from precad.protocol.triples.beaver import MASK_BITS, Layer, Rows, Words


@dataclass(frozen=True)
class Plan:
    """The sizes of all that a round needs, from d and the number of clients: the same for dealer and servers.

    Sliced bits lie in the order of the projections, one word a client, and then of the norms, one bit a client.
    """

    dim: int
    clients: int

    @cached_property
    def client_words(self) -> int:
        """Words that have one bit a client."""
        return -(-self.clients // 64)

    @cached_property
    def mask_words(self) -> int:
        """Words that have one bit for each of the 65 masks a client."""
        return self.clients + self.client_words

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All AND gates: the comparisons, one a norm and two a projection, then the conjunction."""
        return (
            *comparison.comparison_layers(self.mask_words + self.clients),
            *comparison.conjunction_layers(ROUND_ROWS + 1, self.client_words),
        )

    @cached_property
    def deal_sizes(self) -> dict[str, int]:
        """The lengths of the vectors of :class:`DealB`."""
        return {
            "norms": self.clients,
            "mask_bits": MASK_BITS * self.mask_words,
            "and_bits": sum(layer.corrections for layer in self.layers),
        }

    @cached_property
    def masked_sizes(self) -> dict[str, int]:
        """The lengths of the vectors of :class:`Masked`."""
        return {"b": self.dim, "projections": ROUND_ROWS}

    def gate_sizes(self, level: int) -> dict[str, int]:
        """The lengths of the vectors of :class:`Gate`; after the last layer comes the verdict."""
        return {"words": self.layers[level].opened if level < len(self.layers) else self.client_words}

    @cached_property
    def exchanges(self) -> int:
        """How often the servers exchange messages, whatever the number of clients."""
        return 2 + len(self.layers) + 1


def plan(round_: Round, clients: Sequence[str]) -> Plan:
    """The sizes of a round with these clients, which must be sorted and distinct: all parties count them alike."""
    if list(clients) != sorted(set(clients)):
        raise ValueError("the clients of a round must be sorted, each named once")
    return Plan(round_.params.dim, len(clients))


def deal(round_: Round, clients: Sequence[str], closed: Digest, seed_a: Secret, seed_b: Secret) -> tuple[DealA, DealB]:
    """The dealer: fresh seeds become the correlated randomness of one closed round."""
    sizes = plan(round_, clients)
    norms, all_masks = np.empty(len(clients), np.uint64), np.empty((len(clients), ROUND_ROWS + 1), np.uint64)
    for i, client in enumerate(clients):
        square = triples.square(sizes.dim, square_stream(round_, seed_a, client), square_stream(round_, seed_b, client))
        norms[i] = (square - square_share(round_, seed_a, client)) % P
        all_masks[i] = field.add(masks(round_, seed_a, client), masks(round_, seed_b, client))
    in_order = np.concatenate([all_masks[:, :ROUND_ROWS].ravel(), all_masks[:, ROUND_ROWS]])
    bits = triples.slice_bits(in_order, MASK_BITS) ^ mask_bits(round_, seed_a, sizes)
    streams = and_stream(round_, seed_a), and_stream(round_, seed_b)
    and_bits = np.concatenate([triples.correct(layer, *streams) for layer in sizes.layers])
    return DealA(closed, seed_a), DealB(closed, seed_b, norms, Words(bits.ravel()), Words(and_bits))


def square_stream(round_: Round, seed: Secret, client: str) -> Stream:
    """The stream of a server's share of a."""
    return Stream(seed, Purpose.SQUARE, round_.context(client))


def masks(round_: Round, seed: Secret, client: str) -> FieldVector:
    """A server's share of a client's masks μ: of its projections, then of its norm."""
    return Stream(seed, Purpose.MASK, round_.context(client)).field(ROUND_ROWS + 1)


def square_share(round_: Round, seed_a: Secret, client: str) -> int:
    """A's share of r = a·a."""
    return int(Stream(seed_a, Purpose.SQUARE_SHARE, round_.context(client)).field(1)[0])


def mask_bits(round_: Round, seed_a: Secret, sizes: Plan) -> Rows:
    """A's share of the bits of all masks."""
    return triples.draw_rows(Stream(seed_a, Purpose.MASK_BITS, round_.context("dealer")), MASK_BITS, sizes.mask_words)


def and_stream(round_: Round, seed: Secret) -> Stream:
    """The stream of a server's shares of all AND triples."""
    return Stream(seed, Purpose.AND, round_.context("dealer"))
