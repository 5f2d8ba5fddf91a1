"""One round in memory: Algorithms 1 and 2 of the paper from line to line, over n clients and two servers.

``states.py`` has the same steps one by one, for parties that do not share a memory.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.errors import ProtocolError, Reason, Rejected
from precad.mpc.field import FieldVector
from precad.mpc.prg import Digest
from precad.mpc.secret import Redacted, Secret
from precad.mpc.single_use import Once
from precad.privacy import clipping
from precad.protocol import aggregation, digests, norm_proof, submission
from precad.protocol.messages import Header, PartA, PartB, decode
from precad.protocol.norm_proof import Opening
from precad.protocol.params import Round, Validation
from precad.protocol.states import Opened, Role, open_part
from precad.protocol.submission import Submission
from precad.protocol.triples import dealing
from precad.protocol.triples import norm as norm_triples


@dataclass(frozen=True, repr=False)
class ServerSecrets(Redacted):
    """A server's randomness for one round."""

    nonce: Secret
    noise: Secret
    deal: Secret
    """What the dealer gives this server in validation by triples."""

    @classmethod
    def fresh(cls) -> "ServerSecrets":
        """From the operating system's generator."""
        return cls(Secret.fresh(), Secret.fresh(), Secret.fresh())


def client_submits(round_: Round, client: str, update: NDArray[np.floating]) -> Submission:
    """Algorithm 2, lines 7 and 8: clip the update to C, put it on the grid, split it into two shares."""
    x = clipping.encode_clipped(update, round_.params.client_bound, round_.params.fractional_bits)
    return submission.submit(round_, client, x)


def run_round(
    round_: Round, submissions: Mapping[str, Submission], secrets_a: ServerSecrets, secrets_b: ServerSecrets
) -> Opened:
    """What both servers do with the submissions of the selected clients, each on a core of its own."""
    # Algorithm 1, line 3: the servers receive the shares, and close the round.
    headers, rejected = _read_headers(round_, submissions)
    received = _both(
        lambda role: {client: _receive(role, round_, headers[client], submissions[client]) for client in headers}
    )
    parts, refused = _agreed(headers, *received)
    closed = digests.closed(round_, (digests.header(header) for header, _, _ in parts.values()))

    # Line 4: they verify ‖Δ_i‖ ≤ C, learning nothing else.
    seed = digests.challenge(closed, secrets_a.nonce, secrets_b.nonce)
    valid = _validate(round_, parts, closed, seed, secrets_a.deal, secrets_b.deal)
    invalid = {client: Rejected(Reason.INVALID) for client in parts if client not in valid}

    # Line 5: each adds its own noise to its share of the sum of the valid updates.
    def add_up(role: Role) -> FieldVector:
        shares = (submission.share_of(round_, client, _part(parts[client], role)) for client in valid)
        return aggregation.noisy_sum(round_, role.value, shares, (secrets_a if role is Role.A else secrets_b).noise)

    # Line 6: they exchange the noisy shares and open the sum, which update.py adds to the model.
    return Opened(aggregation.open_sum(*_both(add_up)), frozenset(valid), rejected | refused | invalid)


Parts = dict[str, tuple[Header, PartA, PartB]]


def _read_headers(
    round_: Round, submissions: Mapping[str, Submission]
) -> tuple[dict[str, Header], dict[str, Rejected]]:
    headers: dict[str, Header] = {}
    rejected: dict[str, Rejected] = {}
    for client, sent in submissions.items():
        try:
            header = decode(sent.header, Header)
        except ProtocolError:
            rejected[client] = Rejected(Reason.MALFORMED)
            continue
        reason = submission.foreign(round_, client, header)
        if reason is None:
            headers[client] = header
        else:
            rejected[client] = Rejected(reason)
    return headers, rejected


def _receive(role: Role, round_: Round, header: Header, sent: Submission) -> PartA | PartB | Reason:
    """One server's part of a submission, or why it is none."""
    try:
        part = open_part(round_, role, sent.part_a if role is Role.A else sent.part_b)
    except ProtocolError:
        return Reason.MALFORMED
    return submission.mismatch(header, part) or part


def _agreed(
    headers: dict[str, Header],
    received_a: dict[str, PartA | PartB | Reason],
    received_b: dict[str, PartA | PartB | Reason],
) -> tuple[Parts, dict[str, Rejected]]:
    """The submissions that both servers hold."""
    parts: Parts = {}
    rejected: dict[str, Rejected] = {}
    for client, header in headers.items():
        match received_a[client], received_b[client]:
            case PartA() as part_a, PartB() as part_b:
                parts[client] = header, part_a, part_b
            case (Reason() as reason, _) | (_, Reason() as reason):
                rejected[client] = Rejected(reason)
    return parts, rejected


def _part(parts: tuple[Header, PartA, PartB], role: Role) -> PartA | PartB:
    return parts[1] if role is Role.A else parts[2]


def _validate(round_: Round, parts: Parts, closed: Digest, seed: Digest, deal_a: Secret, deal_b: Secret) -> list[str]:
    """The clients whose update is within C."""
    if round_.params.validation is Validation.NONE:
        return list(parts)
    if round_.params.validation is Validation.TRIPLES:
        return _validate_by_triples(round_, parts, closed, seed, deal_a, deal_b)
    shape = submission.proof_shape(round_.params)
    challenge = norm_proof.derive_challenge(shape, seed, round_.context("challenge"))

    def open_checks(role: Role) -> list[Opening]:
        openings = []
        for client, submitted in parts.items():
            shares = submission.expand(round_, client, _part(submitted, role))
            z = submission.projections(round_, client, submitted[0].commitment_a, submitted[0].commitment_b)
            openings.append(
                norm_proof.open_check(
                    shape, challenge, shares.share, shares.tail, shares.masks, z, leader=role is Role.A
                )
            )
        return openings

    pairs = zip(parts, *_both(open_checks), strict=True)
    return [client for client, *openings in pairs if norm_proof.accepts(shape, challenge, *openings)]


def _validate_by_triples(
    round_: Round, parts: Parts, closed: Digest, seed: Digest, deal_a: Secret, deal_b: Secret
) -> list[str]:
    """With the dealer, a third party, in the same memory."""
    clients = sorted(parts)
    for_a, for_b = dealing.deal(round_, clients, closed, deal_a, deal_b)

    def shares(client: str) -> tuple[FieldVector, FieldVector]:
        _, part_a, part_b = parts[client]
        return submission.share_of(round_, client, part_a), submission.share_of(round_, client, part_b)

    return norm_triples.validate(
        round_, clients, shares, closed, seed, Once("the deal", for_a), Once("the deal", for_b)
    )


_Result = TypeVar("_Result")


def _both(step: Callable[[Role], _Result]) -> tuple[_Result, _Result]:
    """The same step at both servers, B's in a thread of its own: kernels and ciphers hold no lock."""
    b = _thread_of_b().submit(step, Role.B)
    a = step(Role.A)
    return a, b.result()


@cache
def _thread_of_b() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "server B")
