"""One round in memory: Algorithms 1 and 2 of the paper from line to line, over n clients and two servers.

``states.py`` has the same steps one by one, for parties that do not share a memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precad.errors import ProtocolError, Reason, Rejected
from precad.messages import Header, PartA, PartB, decode
from precad.mpc.field import FieldVector
from precad.mpc.once import Once
from precad.mpc.prg import Digest
from precad.mpc.secret import Redacted, Secret
from precad.params import Round, Validation
from precad.privacy import clipping
from precad.protocol import aggregation, dealing, digests, norm_proof, norm_triples, submission
from precad.protocol.states import Opened
from precad.protocol.submission import Submission


@dataclass(frozen=True, repr=False)
class ServerSecrets(Redacted):
    """A server's randomness for one round."""

    nonce: Secret
    noise: Secret

    @classmethod
    def fresh(cls) -> "ServerSecrets":
        """From the operating system's generator."""
        return cls(Secret.fresh(), Secret.fresh())


def client_submits(round_: Round, client: str, update: NDArray[np.floating]) -> Submission:
    """Algorithm 2, lines 7 and 8: clip the update to C, put it on the grid, split it into two shares."""
    x = clipping.encode_clipped(update, round_.params.client_bound, round_.params.fractional_bits)
    return submission.submit(round_, client, x)


def run_round(
    round_: Round, submissions: Mapping[str, Submission], secrets_a: ServerSecrets, secrets_b: ServerSecrets
) -> Opened:
    """What both servers do with the submissions of the selected clients."""
    # Algorithm 1, line 3: the servers receive the shares, and close the round.
    parts, rejected = _receive(round_, submissions)
    closed = digests.closed(round_, (digests.header(header) for header, _, _ in parts.values()))

    # Line 4: they verify ‖Δ_i‖ ≤ C, learning nothing else.
    seed = digests.challenge(closed, secrets_a.nonce, secrets_b.nonce)
    valid = _validate(round_, parts, closed, seed)
    rejected |= {client: Rejected(Reason.INVALID) for client in parts if client not in valid}

    # Line 5: each adds its own noise to its share of the sum of the valid updates.
    shares_a = (submission.share_of(round_, client, parts[client][1]) for client in valid)
    shares_b = (submission.share_of(round_, client, parts[client][2]) for client in valid)
    noisy_a = aggregation.noisy_sum(round_, "server A", shares_a, secrets_a.noise)
    noisy_b = aggregation.noisy_sum(round_, "server B", shares_b, secrets_b.noise)

    # Line 6: they exchange the noisy shares and open the sum, which update.py adds to the model.
    return Opened(aggregation.open_sum(noisy_a, noisy_b), frozenset(valid), rejected)


Parts = dict[str, tuple[Header, PartA, PartB]]


def _receive(round_: Round, submissions: Mapping[str, Submission]) -> tuple[Parts, dict[str, Rejected]]:
    parts: Parts = {}
    rejected: dict[str, Rejected] = {}
    for client, sent in submissions.items():
        try:
            header = decode(sent.header, Header)
            part_a = decode(sent.part_a, PartA, **submission.part_a_sizes(round_.params))
            part_b = decode(sent.part_b, PartB)
        except ProtocolError:
            rejected[client] = Rejected(Reason.MALFORMED)
            continue
        reason = (
            submission.foreign(round_, client, header)
            or submission.mismatch(header, part_a)
            or submission.mismatch(header, part_b)
        )
        if reason is None:
            parts[client] = header, part_a, part_b
        else:
            rejected[client] = Rejected(reason)
    return parts, rejected


def _validate_by_triples(round_: Round, parts: Parts, closed: Digest, seed: Digest) -> list[str]:
    """With the dealer, a third party, in the same memory."""
    clients = sorted(parts)
    deal_a, deal_b = dealing.deal(round_, clients, closed, Secret.fresh(), Secret.fresh())

    def shares(client: str) -> tuple[FieldVector, FieldVector]:
        _, part_a, part_b = parts[client]
        return submission.share_of(round_, client, part_a), submission.share_of(round_, client, part_b)

    deals = Once("the deal", deal_a), Once("the deal", deal_b)
    return norm_triples.validate(round_, clients, shares, closed, seed, *deals)


def _validate(round_: Round, parts: Parts, closed: Digest, seed: Digest) -> list[str]:
    """The clients whose update is within C."""
    if round_.params.validation is Validation.NONE:
        return list(parts)
    if round_.params.validation is Validation.TRIPLES:
        return _validate_by_triples(round_, parts, closed, seed)
    shape = submission.proof_shape(round_.params)
    challenge = norm_proof.derive_challenge(shape, seed, round_.context("challenge"))
    valid = []
    for client, (header, part_a, part_b) in parts.items():
        openings = []
        for part in (part_a, part_b):
            shares = submission.expand(round_, client, part)
            z = submission.projections(round_, client, header.commitment_a, header.commitment_b)
            openings.append(
                norm_proof.open_check(
                    shape, challenge, shares.share, shares.tail, shares.masks, z, leader=part is part_a
                )
            )
        if norm_proof.accepts(shape, challenge, *openings):
            valid.append(client)
    return valid
