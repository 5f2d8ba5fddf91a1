"""Validation by Beaver triples and a comparison gate: the paper's own protocol, with a dealer (§4.3; PROTOCOL §5).

::

    Masking    mask each submission, send Masked; absorb it, with the other's Masked
               open_norms                             ──▶  OpeningNorms, send NormOpening
    OpeningNorms
               compare, with the other's NormOpening  ──▶  Comparing, send Gate
    Comparing  step, with the other's Gate            ──▶  Comparing, send Gate; for each of 13 levels
               decide, with the other's last Gate     ──▶  Decided

The servers learn, about all submissions of a closed round at once and nothing else, whether ‖x‖² ≤ S:

1. They open b = x − a, and hold y = x·x − S − 1 = r + 2·b·a + (b·b − S − 1). The paper splits the public term between
   them; A alone adds it here. If x·x did not wrap around p, the vector is within its bound iff y is negative, iff
   2y mod p is odd. They open c = 2y + μ; the low bit of 2y is that of c, plus that of μ, plus [μ > c].
2. The paper overlooks that x·x may wrap. As in ``norm_proof.py``, 64 random projections u_j = Z_j·x − h must lie in
   [−τ, τ). They open c = u_j + τ + μ_j; u_j is inside iff μ_j ∈ (c − 2τ, c] mod p. Both servers draw Z after closing,
   so nobody can search for a vector that passes: one that wraps does so with probability at most 2^-64.
3. The AND of a client's 65 bits is opened, and no other bit.

All that is opened before is masked by randomness of the dealer that neither server knows, and that is used once: a
:class:`SingleUse` gives it out, and a crash burns it. A step may be repeated, but only with the same message of the
other: :class:`Pins` hold the first.

Both servers are trusted to follow the protocol: unlike with a proof (PROTOCOL §4), one that lies can turn a
verdict, or learn from it. What was altered on the way between them is noticed, since each message names, by H, all
that its sender has seen opened before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precad.errors import ProtocolError
from precad.mpc import field, fixed_point, projection
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Digest, Purpose, Stream, digest, vector_digest
from precad.mpc.projection import ROUND_ROWS
from precad.mpc.secret import Redacted, Secret
from precad.mpc.single_use import Pins, SingleUse
from precad.protocol.messages import DealA, DealB, Gate, Masked, Message, NormOpening
from precad.protocol.params import Round
from precad.protocol.triples import beaver as triples
from precad.protocol.triples import comparison, dealing
from precad.protocol.triples.beaver import MASK_BITS, AndTriples, Rows, Words
from precad.protocol.triples.comparison import Conjunction, Greater
from precad.protocol.triples.dealing import Plan


@dataclass(frozen=True, repr=False)
class Absorbed(Redacted):
    """What a server keeps of one submission: its share of 2y + μ, and what both have opened."""

    norm: int
    projections: FieldVector
    opened: Digest


@dataclass(frozen=True, repr=False)
class Masking(Redacted):
    """The correlation is taken; submissions are masked, opened and absorbed, one at a time and in any order."""

    round: Round
    leader: bool
    clients: tuple[str, ...]
    plan: Plan
    closed: Digest
    z_seed: Digest
    deal: DealA | DealB
    unused: Mapping[str, SingleUse[Secret]]
    """For each client the seed of a, given out to mask one vector and no other."""
    pins: Pins
    absorbed: Mapping[str, Absorbed]


@dataclass(frozen=True, repr=False)
class OpeningNorms(Redacted):
    """All submissions are absorbed; the other's shares of the masked norms are awaited."""

    masking: Masking
    own: NormOpening


@dataclass(frozen=True, repr=False)
class Comparing(Redacted):
    """The gates up to a level are done; the other's shares of its operands are awaited."""

    masking: Masking
    triples: tuple[AndTriples, ...]
    circuit: Greater | Conjunction
    offset: Words
    """This server's share of what is added to the comparisons: the low bits of the norms, and where windows wrap."""
    own: Gate


@dataclass(frozen=True)
class Decided:
    """The verdicts, the same at both servers."""

    closed: Digest
    valid: frozenset[str]


def begin(
    round_: Round,
    leader: bool,
    clients: Sequence[str],
    closed: Digest,
    z_seed: Digest,
    deal: SingleUse[DealA] | SingleUse[DealB],
    pins: Pins,
) -> Masking:
    """Take the round's correlation, for ever. ``z_seed`` must be unknown to all clients until the round is closed."""
    pins.claim("the correlation")
    sizes, dealt = dealing.plan(round_, clients), deal.take()
    if isinstance(dealt, DealA) is not leader:
        raise ValueError("A is the leader: it takes DealA, and B takes DealB")
    if dealt.closed != closed:
        raise ProtocolError("the dealer dealt for another closed set")
    if isinstance(dealt, DealB):
        _check_lengths(dealt, sizes.deal_sizes)
    unused = {client: SingleUse(f"the mask of {client}", dealt.seed) for client in clients}
    return Masking(round_, leader, tuple(clients), sizes, closed, z_seed, dealt, unused, pins, {})


def mask(state: Masking, client: str, share: FieldVector) -> Masked:
    """This server's message about one submission, from its share of (x, h) (paper, step 1). Once for each client."""
    dim = state.plan.dim
    if client not in state.unused:
        raise ValueError(f"{client} is not a client of this round")
    if share.size != dim + 1:
        raise ValueError(f"a share has {dim + 1} entries, got {share.size}")
    seed = state.unused[client].take()
    x, h = share[:dim], int(share[dim])
    b = triples.blind(x, dealing.square_stream(state.round, seed, client))
    z = Stream(Secret(state.z_seed), Purpose.ROUND_Z, state.round.context("challenge"))
    constant = (fixed_point.window(state.round.params.squared_bound) if state.leader else 0) - h
    masks = dealing.masks(state.round, seed, client)[:ROUND_ROWS]
    projections = field.add(projection.project_share(x, z), masks)
    return Masked(client, b, field.add(projections, np.full(ROUND_ROWS, constant % P, np.uint64)))


def absorb(state: Masking, own: Masked, peer: Masked) -> Masking:
    """Both servers' messages about one submission open it under its masks (paper, step 2); b is not kept."""
    client = own.client
    if peer.client != client:
        raise ProtocolError("the other server masks another submission")
    if client not in state.unused or client in state.absorbed:
        raise ProtocolError("a submission that is not of this round, or was opened before")
    _check_lengths(peer, state.plan.masked_sizes)
    seed = state.deal.seed
    b, projections = field.add(own.b, peer.b), field.add(own.projections, peer.projections)
    y = 2 * triples.product(b, dealing.square_stream(state.round, seed, client))
    if isinstance(state.deal, DealB):
        y += int(state.deal.norms[state.clients.index(client)])
    else:
        y += dealing.square_share(state.round, seed, client) + field.dot(b, b) - state.round.params.squared_bound - 1
    norm = (2 * y + int(dealing.masks(state.round, seed, client)[ROUND_ROWS])) % P
    opened = digest(b"precad opened", client.encode(), vector_digest(b), vector_digest(projections))
    state.pins.pin(f"what {client} opened", opened)
    return replace(state, absorbed={**state.absorbed, client: Absorbed(norm, projections, opened)})


def open_norms(state: Masking) -> tuple[OpeningNorms, NormOpening]:
    """Send the shares of all masked norms; from here on all submissions go together."""
    if len(state.absorbed) < len(state.clients):
        raise ProtocolError("submissions of the closed set are not masked yet")
    absorbed = [state.absorbed[client] for client in state.clients]
    context = state.round.context("challenge").parts()
    opened = digest(b"precad opened", *context, state.z_seed, *(item.opened for item in absorbed))
    own = NormOpening(opened, np.array([item.norm for item in absorbed], np.uint64))
    return OpeningNorms(state, own), own


def compare(state: OpeningNorms, peer: NormOpening) -> tuple[Comparing, Gate]:
    """Open the masked norms, and begin all comparisons of the round (paper, step 3)."""
    masking, sizes = state.masking, state.masking.plan
    _check_lengths(peer, {"values": sizes.clients})
    _check_opened(peer, state.own)
    norms = field.add(state.own.values, peer.values)
    opened = digest(b"precad opened", state.own.opened, vector_digest(norms))
    masking.pins.pin("the masked norms", opened)

    nothing = np.empty(0, np.uint64)
    upper = np.concatenate([nothing, *(masking.absorbed[client].projections for client in masking.clients)])
    width = 2 * fixed_point.window(masking.round.params.squared_bound)
    lower = field.add(upper, np.full(upper.size, P - width, np.uint64))
    bits, ands = _expand(masking)
    numbers = triples.slice_bits(np.concatenate([upper, norms]), MASK_BITS)
    constants = np.hstack([numbers, triples.slice_bits(lower, MASK_BITS)])
    circuit = comparison.compare(np.hstack([bits, bits[:, : sizes.clients]]), constants, leader=masking.leader)

    offset = np.zeros(sizes.mask_words, np.uint64)
    offset[sizes.clients :] = bits[0, sizes.clients :]
    if masking.leader:
        offset[: sizes.clients] ^= triples.slice_bits((upper < np.uint64(width)).astype(np.uint64), 1)[0]
        offset[sizes.clients :] ^= numbers[0, sizes.clients :]
    own = Gate(0, opened, triples.hide(ands[0], *circuit.operands()))
    return Comparing(masking, ands, circuit, Words(offset), own), own


def step(state: Comparing, peer: Gate) -> tuple[Comparing, Gate]:
    """One level of gates, of the layers of the plan."""
    level, words = state.own.level, _open_gate(state, peer)
    circuit = state.circuit.merge(triples.multiply(state.triples[level], words, leader=state.masking.leader))
    if isinstance(circuit, Greater) and circuit.done:
        circuit = Conjunction(_inside(state, circuit.result))
    own = Gate(
        level + 1,
        digest(b"precad opened", state.own.opened, vector_digest(words)),
        Words(circuit.result) if circuit.done else triples.hide(state.triples[level + 1], *circuit.operands()),
    )
    return replace(state, circuit=circuit, own=own), own


def decide(state: Comparing, peer: Gate) -> Decided:
    """After the last level: open the verdicts, and nothing else."""
    if state.own.level != len(state.triples):
        raise ProtocolError(f"level {state.own.level} of {len(state.triples)} of the gates: no verdict yet")
    verdicts = np.unpackbits(_open_gate(state, peer).view(np.uint8), bitorder="little")
    valid = (client for client, bit in zip(state.masking.clients, verdicts, strict=False) if bit)
    return Decided(state.masking.closed, frozenset(valid))


def _open_gate(state: Comparing, peer: Gate) -> Words:
    """Both servers' shares of a level, opened, once."""
    level = state.own.level
    if peer.level != level:
        raise ProtocolError(f"the other server is at level {peer.level} of the gates, expected {level}")
    _check_lengths(peer, state.masking.plan.gate_sizes(level))
    _check_opened(peer, state.own)
    words = Words(state.own.words ^ peer.words)
    state.masking.pins.pin(f"level {level} of the gates", vector_digest(words))
    return words


def _expand(state: Masking) -> tuple[Rows, tuple[AndTriples, ...]]:
    """A server's shares of the bits of all masks, and of all AND triples."""
    sizes, stream = state.plan, dealing.and_stream(state.round, state.deal.seed)
    if isinstance(state.deal, DealA):
        ands = tuple(triples.expand_a(layer, stream) for layer in sizes.layers)
        return dealing.mask_bits(state.round, state.deal.seed, sizes), ands
    ends = np.cumsum([layer.corrections for layer in sizes.layers])
    gammas = np.split(state.deal.and_bits, ends[:-1])
    return state.deal.mask_bits.reshape(MASK_BITS, sizes.mask_words), tuple(
        triples.expand_b(layer, stream, Words(gamma)) for layer, gamma in zip(sizes.layers, gammas, strict=True)
    )


def _inside(state: Comparing, greater: Rows) -> Rows:
    """Shares of a client's 65 bits, one row a bit, from the comparisons: [μ > c] ⊕ [μ > c − 2τ], and the norm's."""
    sizes = state.masking.plan
    bits = greater[: sizes.mask_words] ^ state.offset
    bits[: sizes.clients] ^= greater[sizes.mask_words :]
    return np.vstack([triples.slice_bits(bits[: sizes.clients], ROUND_ROWS), bits[sizes.clients :]])


def _check_lengths(message: Message, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if getattr(message, name).size != size:
            raise ProtocolError(f"{type(message).__name__}.{name} must have {size} entries")


def _check_opened(peer: NormOpening | Gate, own: NormOpening | Gate) -> None:
    if peer.opened != own.opened:
        raise ProtocolError("the other server has opened other values")
