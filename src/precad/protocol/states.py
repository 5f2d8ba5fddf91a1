"""One server's round as pure steps: state and message in, state and message out, no I/O (PROTOCOL §4, §6, §10).

::

    Collecting  receive each submission; close   ──▶  Closing, send Close
    Closing     agree, with the other's Close    ──▶  Agreed, send Nonce
    Agreed      challenge, with the other's Nonce ─▶  Checking
    Checking    check each submission, send Check; judge it, with the other's Check; conclude
                (or begin_triples, mask each submission, …, decide: see triples/norm.py)
                aggregate the valid shares       ──▶  Tallied, send Tally
    Tallied     reveal, with the other's Tally   ──▶  Revealed, send NoisyShare
    Revealed    finish, with the other's NoisyShare ▶ Opened

Each "send" is one exchange between the servers, whatever the number of clients. A state's memory is O(1) per
client: the accepted submissions stay with the caller, in memory or on disk, who hands them in one at a time, once to
be checked and once to be added. A bad client is :class:`Rejected`; a breach by the other server is a ``ProtocolError``.

States are values, and a step may be repeated on the same state and message: a retry gives the same bytes. What may
not vary is pinned when it is first answered to, for all states of the round: the closed set, both nonces, the
outcome. Two challenges on one submission, or one noise over two sums, would reveal updates, and are refused. (A
dealer's correlation is used once, not repeated: ``begin_triples`` and ``mask``.) The pins live with the ``Collecting``
that a server makes for a round, once: who restarts and has lost them abandons the round and destroys its submissions.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from precad.errors import ProtocolError, Reason, Rejected
from precad.mpc.field import FieldVector, is_canonical
from precad.mpc.prg import Digest
from precad.mpc.secret import Redacted, Secret
from precad.mpc.single_use import Pins, SingleUse
from precad.privacy import clipping
from precad.protocol import aggregation, digests, messages, norm_proof, submission
from precad.protocol.messages import DealA, DealB, Header, PartA, PartB, decode, encode
from precad.protocol.norm_proof import Challenge
from precad.protocol.params import Round, Validation
from precad.protocol.triples import norm as norm_triples
from precad.protocol.triples.norm import Decided, Masking


class Role(Enum):
    """The two servers: A leads, B helps."""

    A = "server A"
    B = "server B"

    @property
    def other(self) -> "Role":
        """The other server."""
        return Role.B if self is Role.A else Role.A


@dataclass(frozen=True)
class Collecting:
    """Submissions may come."""

    round: Round
    role: Role
    selected: frozenset[str]
    pins: Pins = field(default_factory=Pins)


@dataclass(frozen=True)
class Closing:
    """No submission comes any more; the other server's list is awaited."""

    round: Round
    role: Role
    headers: Mapping[str, Header]
    digests: Mapping[str, Digest]
    """H of each header."""
    pins: Pins


@dataclass(frozen=True, repr=False)
class Agreed(Redacted):
    """Both servers hold the same closed set, whose digest is D; the other's nonce is awaited."""

    round: Round
    role: Role
    headers: Mapping[str, Header]
    rejected: Mapping[str, Rejected]
    closed: Digest
    nonce: Secret
    pins: Pins


@dataclass(frozen=True)
class Checking:
    """The challenge is drawn, once; submissions are checked and judged."""

    round: Round
    role: Role
    headers: Mapping[str, Header]
    rejected: Mapping[str, Rejected]
    closed: Digest
    seed: Digest
    """Of both nonces, which were committed to before: all that both servers draw for this round comes from it."""
    proof: Challenge | None
    """The challenge to the clients' proofs, if the task validates by proof."""
    pins: Pins
    valid: frozenset[str] = frozenset()


@dataclass(frozen=True, repr=False)
class Tallied(Redacted):
    """The noisy share exists and will never be another; the other server's tally is awaited."""

    round: Round
    valid: frozenset[str]
    rejected: Mapping[str, Rejected]
    tally: messages.Tally
    opening: messages.NoisyShare
    pins: Pins


@dataclass(frozen=True, repr=False)
class Revealed(Redacted):
    """The noisy share may be sent; the other's, which its tally fixed, is awaited."""

    round: Round
    valid: frozenset[str]
    rejected: Mapping[str, Rejected]
    opening: messages.NoisyShare
    awaited: Digest


@dataclass(frozen=True)
class Opened:
    """The end of the round."""

    noisy_sum: NDArray[np.int64]
    """Σ_{valid} x_i + ξ_A + ξ_B, on the grid."""
    valid: frozenset[str]
    rejected: Mapping[str, Rejected]


@dataclass(frozen=True, repr=False)
class Accepted(Redacted):
    """A part that was found to be what its header says: made by :func:`receive` or :func:`restore` alone."""

    header: Header
    part: PartA | PartB


def receive(state: Collecting, client: str, header: bytes, part: bytes, known: Header | None) -> Accepted | Rejected:
    """Check one client's submission.

    Args:
        state: The round, which does not change: the caller keeps what is accepted, and hands all headers to ``close``.
        client: Who sent it.
        header: The bytes that the client sends to both servers.
        part: The bytes that it sends to this server.
        known: The header that was accepted of this client before. The first counts, and the same again is no other.
    """
    if client not in state.selected:
        return Rejected(Reason.NOT_SELECTED)
    try:
        head = decode(header, Header)
        body = open_part(state.round, state.role, part)
    except ProtocolError:
        return Rejected(Reason.MALFORMED)
    reason = submission.foreign(state.round, client, head) or submission.mismatch(head, body)
    if reason is not None:
        return Rejected(reason)
    if known is not None and encode(known) != header:
        return Rejected(Reason.REPEATED)
    return Accepted(head, body)


def restore(state: "Checking", client: str, part: bytes) -> Accepted:
    """A part that was accepted earlier and kept elsewhere as bytes: it must still be what the header says."""
    body = open_part(state.round, state.role, part)
    header = state.headers.get(client)
    if header is None or submission.mismatch(header, body) is not None:
        raise ProtocolError("a part that was not accepted in this round")
    return Accepted(header, body)


def close(state: Collecting, headers: Iterable[Header]) -> tuple[Closing, messages.Close]:
    """Accept no more submissions, and tell the other server which were accepted: those with these headers."""
    accepted: dict[str, Header] = {}
    for header in headers:
        if accepted.setdefault(header.client, header) is not header:
            raise ProtocolError("two submissions of one client to close with")
    named = {client: digests.header(header) for client, header in accepted.items()}
    closing = Closing(state.round, state.role, accepted, named, state.pins)
    return closing, messages.Close(state.round.task, state.round.number, tuple(sorted(named.values())))


def agree(state: Closing, peer: messages.Close, nonce: Secret) -> tuple[Agreed, messages.Nonce]:
    """Keep what both servers hold, to the last byte of the header; the digest D of the rest binds everything after."""
    if (peer.task, peer.round) != (state.round.task, state.round.number):
        raise ProtocolError("the other server closes another task or round")
    theirs, own = frozenset(peer.headers), state.digests
    headers = {client: header for client, header in state.headers.items() if own[client] in theirs}
    rejected = {client: Rejected(Reason.ONE_SIDED) for client in own if client not in headers}
    closed = digests.closed(state.round, (own[client] for client in headers))
    state.pins.pin("the closed set", closed)
    state.pins.pin("this server's nonce", nonce.value)
    return Agreed(state.round, state.role, headers, rejected, closed, nonce, state.pins), messages.Nonce(closed, nonce)


def challenge(state: Agreed, peer: messages.Nonce) -> Checking:
    """Draw the round's one challenge from both nonces. A second one is refused: it would reveal the updates."""
    if peer.closed != state.closed:
        raise ProtocolError("the other server closed another set of submissions")
    if peer.nonce == state.nonce:
        raise ProtocolError("the other server sent this server's own nonce")
    state.pins.pin("the other server's nonce", peer.nonce.value)
    first, second = (state.nonce, peer.nonce) if state.role is Role.A else (peer.nonce, state.nonce)
    if digests.nonces(digests.commit_nonce(first), digests.commit_nonce(second)) != state.round.nonces:
        raise ProtocolError("the nonces are not those that the servers committed to when the round began")
    seed = digests.challenge(state.round, first, second)
    params, proof = state.round.params, None
    if params.validation is Validation.PROOF:
        proof = norm_proof.derive_challenge(submission.proof_shape(params), seed, state.round.context("challenge"))
    checking = Checking(state.round, state.role, state.headers, state.rejected, state.closed, seed, proof, state.pins)
    return conclude(checking, state.headers) if params.validation is Validation.NONE else checking


def check(state: Checking, accepted: Accepted) -> messages.Check:
    """The message about one submission of the closed set (validation by proof)."""
    header, client = _of_this_round(state, accepted), accepted.header.client
    shape, proof = submission.proof_shape(state.round.params), _proof(state)
    shares = submission.expand(state.round, client, accepted.part)
    z = submission.projections(state.round, client, header.commitment_a, header.commitment_b)
    opening = norm_proof.open_check(shape, proof, shares, z, leader=state.role is Role.A)
    return messages.Check(client, header.commitment_a, header.commitment_b, opening.wires, opening.sums)


def judge(state: Checking, own: messages.Check, peer: messages.Check) -> bool:
    """Whether both servers' messages about one submission show that it is valid: the same verdict at both."""
    header = state.headers.get(own.client)
    if header is None or peer.client != own.client:
        raise ProtocolError("the other server checks another submission")
    if (peer.commitment_a, peer.commitment_b) != (header.commitment_a, header.commitment_b):
        raise ProtocolError("the other server checks other commitments than the header's")
    if {"wires": peer.wires.size, "sums": peer.sums.size} != submission.check_sizes(state.round.params):
        raise ProtocolError("the other server's check has vectors of other lengths")
    openings = (norm_proof.Opening(message.wires, message.sums) for message in (own, peer))
    return norm_proof.accepts(submission.proof_shape(state.round.params), _proof(state), *openings)


def begin_triples(state: Checking, deal: SingleUse[DealA] | SingleUse[DealB]) -> Masking:
    """Begin validation by triples, with the dealer's correlation for this closed set; ``norm_triples`` goes on."""
    if state.round.params.validation is not Validation.TRIPLES:
        raise ProtocolError(f"this task validates by {state.round.params.validation.value}, not by triples")
    leader, clients = state.role is Role.A, sorted(state.headers)
    return norm_triples.begin(state.round, leader, clients, state.closed, state.seed, deal, state.pins)


def mask(state: Checking, masking: Masking, accepted: Accepted) -> messages.Masked:
    """The message about one submission of the closed set (validation by triples)."""
    client = _of_this_round(state, accepted).client
    if masking.closed != state.closed:
        raise ProtocolError("a correlation that was begun for another round")
    return norm_triples.mask(masking, client, submission.share_of(state.round, client, accepted.part))


def decide(state: Checking, decided: Decided) -> Checking:
    """Record the verdicts of the gates."""
    if decided.closed != state.closed:
        raise ProtocolError("verdicts on another closed set")
    return conclude(state, decided.valid)


def conclude(state: Checking, valid: Collection[str]) -> Checking:
    """Record the verdicts, once and for all: of the closed set these clients are valid, and no others."""
    if state.valid or state.rejected.keys() & state.headers.keys() or not state.headers.keys() >= set(valid):
        raise ProtocolError("verdicts on submissions that are not open, or have one")
    invalid = {client: Rejected(Reason.INVALID) for client in state.headers.keys() - set(valid)}
    return replace(state, valid=frozenset(valid), rejected={**state.rejected, **invalid})


def outcome(state: Checking) -> Digest:
    """What is about to be opened: the closed set, the challenge, the valid clients."""
    return digests.outcome(state.closed, state.seed, state.valid)


def aggregate(state: Checking, submissions: Iterable[Accepted], noise: Secret) -> tuple[Tallied, messages.Tally]:
    """Add up the valid submissions' shares and this server's noise: the one noisy share of this round."""
    if not state.headers.keys() <= state.valid.union(state.rejected):
        raise ProtocolError("submissions of the closed set have no verdict yet")
    opened = outcome(state)
    state.pins.pin("the outcome", opened)
    state.pins.pin("this server's noise", noise.value)
    seen: set[str] = set()

    def shares() -> Iterator[Iterator[FieldVector]]:
        for accepted in submissions:
            client = _of_this_round(state, accepted).client
            if client not in state.valid or client in seen:
                raise ProtocolError("a submission to add that is not valid, or was added before")
            seen.add(client)
            yield submission.share_blocks(state.round, client, accepted.part)

    share = aggregation.noisy_sum(state.round, state.role.value, shares(), noise)
    if seen != state.valid:
        raise ProtocolError("a valid submission was not added")
    salt = digests.tally_salt(noise, opened)
    tally = messages.Tally(opened, digests.tally(salt, share))
    opening = messages.NoisyShare(opened, salt, share)
    return Tallied(state.round, state.valid, state.rejected, tally, opening, state.pins), tally


def reveal(state: Tallied, peer: messages.Tally) -> tuple[Revealed, messages.NoisyShare]:
    """Send the noisy share, only if the other server is about to open the same set."""
    if peer.outcome != state.tally.outcome:
        raise ProtocolError("the other server would open another set of submissions")
    if peer.share == state.tally.share:
        raise ProtocolError("the other server names this server's own noisy share")
    state.pins.pin("the other server's noisy share", peer.share)
    return Revealed(state.round, state.valid, state.rejected, state.opening, peer.share), state.opening


def finish(state: Revealed, peer: messages.NoisyShare) -> Opened:
    """Open the noisy sum, unless it is longer than honest servers can make it."""
    own, params = state.opening, state.round.params
    well_formed = peer.share.size == own.share.size and is_canonical(peer.share)
    if not well_formed or peer.outcome != own.outcome or digests.tally(peer.salt, peer.share) != state.awaited:
        raise ProtocolError("the other server's noisy share is not the one that its tally named")
    total = aggregation.open_sum(own.share, peer.share)
    length = math.sqrt(clipping.sum_of_squares(total.astype(np.float64)))  # the same on every machine
    longest = aggregation.longest_sum(params, len(state.valid))
    if length > longest:
        raise ProtocolError(
            f"the opened sum has length {length:.6g} on the grid, and no sum of {len(state.valid)} valid updates with "
            f"two noises is longer than {longest:.6g}: the other server did not follow the protocol"
        )
    return Opened(total, state.valid, state.rejected)


def open_part(round_: Round, role: Role, part: bytes) -> PartA | PartB:
    """A part's bytes, checked for this task: anything else is a ``ProtocolError``."""
    if role is Role.A:
        return decode(part, PartA, **submission.part_a_sizes(round_.params))
    return decode(part, PartB)


def _proof(state: Checking) -> Challenge:
    if state.proof is None:
        raise ProtocolError(f"this task validates by {state.round.params.validation.value}, not by proof")
    return state.proof


def _of_this_round(state: Checking, accepted: Accepted) -> Header:
    known = state.headers.get(accepted.header.client)
    if known is not accepted.header and (known is None or encode(known) != encode(accepted.header)):
        raise ProtocolError("a submission that is not of the closed set")
    return accepted.header
