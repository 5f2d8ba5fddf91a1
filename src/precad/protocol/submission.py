"""The client: an update becomes two parts, one for each server (paper, Algorithm 2, line 8; PROTOCOL §4)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from precad.errors import Reason
from precad.mpc import field, sharing
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Digest, Purpose, Stream
from precad.mpc.secret import Redacted, Secret
from precad.mpc.sharing import BLOCK
from precad.privacy import clipping
from precad.protocol import digests, norm_proof
from precad.protocol.codec import Blob
from precad.protocol.messages import NOTHING, Header, PartA, PartB, encode
from precad.protocol.norm_proof import Shape, Shares
from precad.protocol.params import Params, Round, Validation


@dataclass(frozen=True, repr=False)
class ClientSecrets(Redacted):
    """A submission's randomness: never used for two submissions."""

    seed_a: Secret
    seed_b: Secret
    salt_a: Secret
    salt_b: Secret

    @classmethod
    def fresh(cls) -> "ClientSecrets":
        """From the operating system's generator."""
        return cls(Secret.fresh(), Secret.fresh(), Secret.fresh(), Secret.fresh())


@dataclass(frozen=True, repr=False)
class Submission(Redacted):
    """What a client sends: a header for both servers, and a part for each."""

    header: bytes
    part_a: bytes
    part_b: bytes


def submit(
    round_: Round,
    client: str,
    x: NDArray[np.int64],
    draw: Callable[[], ClientSecrets] = ClientSecrets.fresh,
    head: Blob = NOTHING,
) -> Submission:
    """Share the encoded update x, with a proof that ‖x‖² ≤ S if the task asks for one.

    ``draw`` is called again in the rare case (below 2^-120) that the proof needs new salts. ``head`` is what the client
    has heard last.
    """
    params = round_.params
    if x.shape != (params.dim,):
        raise ValueError(f"the update must have {params.dim} entries, got shape {x.shape}")
    if params.validation is not Validation.NONE and clipping.squared_norm(x) > params.squared_bound:
        raise ValueError(f"the update's squared norm exceeds S = {params.squared_bound}: clip it to C first")
    h = int(x.sum()) // 2
    extended = np.empty(params.dim + 1, np.uint64)
    field.embed(x, out=extended[:-1])
    extended[-1] = h % P
    while True:
        submission = _assemble(round_, client, x, h, extended, draw(), head)
        if submission is not None:
            return submission


def _assemble(
    round_: Round, client: str, x: NDArray[np.int64], h: int, extended: FieldVector, secrets: ClientSecrets, head: Blob
) -> Submission | None:
    """The submission of x with these secrets, or None if they do not suit x. (x, h) is ``extended``, in the field."""
    share = sharing.share_a(extended, secrets.seed_b, round_.context(client))
    commitment_a = digests.commit_a(secrets.salt_a, share)
    commitment_b = digests.commit_b(secrets.salt_b, secrets.seed_b)
    tail = np.empty(0, np.uint64)
    if round_.params.validation is Validation.PROOF:
        masks = field.add(masks_of(round_, client, secrets.seed_a), masks_of(round_, client, secrets.seed_b))
        z = projections(round_, client, commitment_a, commitment_b)
        proof = norm_proof.prove(proof_shape(round_.params), x, h, masks, z)
        if proof is None:
            return None
        tail = field.sub(proof, tail_b(round_, client, secrets.seed_b), out=proof)
    part_a = PartA(secrets.salt_a, secrets.seed_a, commitment_b, share, tail)
    part_b = PartB(secrets.salt_b, secrets.seed_b, commitment_a)
    parts = digests.part_a(part_a, commitment_a), digests.part_b(part_b, commitment_b)
    start = round_.task, round_.number, round_.model, round_.nonces
    header = Header(*start, client, commitment_a, commitment_b, *parts, head)
    return Submission(encode(header), encode(part_a), encode(part_b))


@lru_cache(maxsize=16)
def proof_shape(params: Params) -> Shape:
    """The sizes of a proof of this task."""
    return Shape(params.dim, params.squared_bound)


def check_sizes(params: Params) -> dict[str, int]:
    """The lengths of the vectors of :class:`Check`."""
    shape = proof_shape(params)
    return {"wires": shape.entry_wires + shape.bit_wires, "sums": 2}


def part_a_sizes(params: Params) -> dict[str, int]:
    """The lengths of the vectors of :class:`PartA`."""
    tail = proof_shape(params).tail if params.validation is Validation.PROOF else 0
    return {"share": params.dim + 1, "tail": tail}


def foreign(round_: Round, client: str, header: Header) -> Reason | None:
    """Why a header is not one of this round and client, if it is not."""
    here = (round_.task, round_.number, round_.model, round_.nonces, client)
    there = (header.task, header.round, header.model, header.nonces, header.client)
    return None if here == there else Reason.FOREIGN


def mismatch(header: Header, part: PartA | PartB) -> Reason | None:
    """Why a part is not the one that its header names, if it is not."""
    if isinstance(part, PartA):
        own, other = digests.commit_a(part.salt, part.share), part.commitment_b
        commitments, named, actual = (own, other), header.part_a, digests.part_a(part, own)
    else:
        own, other = digests.commit_b(part.salt, part.seed), part.commitment_a
        commitments, named, actual = (other, own), header.part_b, digests.part_b(part, own)
    if commitments != (header.commitment_a, header.commitment_b):
        return Reason.COMMITMENT
    return None if actual == named else Reason.PART


def projections(round_: Round, client: str, commitment_a: Digest, commitment_b: Digest) -> Stream:
    """The stream of Z: PRG(ρ)."""
    rho = digests.rho(round_, client, commitment_a, commitment_b)
    return Stream(Secret(rho), Purpose.Z, round_.context(client))


def masks_of(round_: Round, client: str, seed: Secret) -> FieldVector:
    """One party's summand of the values of all wires at 0."""
    shape = proof_shape(round_.params)
    return Stream(seed, Purpose.WIRE, round_.context(client)).field(shape.entry_wires + shape.bit_wires)


def tail_b(round_: Round, client: str, seed_b: Secret) -> FieldVector:
    """B's share of the tail."""
    return Stream(seed_b, Purpose.TAIL, round_.context(client)).field(proof_shape(round_.params).tail)


def expand(round_: Round, client: str, part: PartA | PartB) -> Shares:
    """A server's shares of a proven submission: A received most of them, B expands all of them from its seed."""
    tail = part.tail if isinstance(part, PartA) else tail_b(round_, client, part.seed)
    return Shares(share_blocks(round_, client, part), tail, masks_of(round_, client, part.seed))


def share_blocks(round_: Round, client: str, part: PartA | PartB) -> Iterator[FieldVector]:
    """A server's share of (x, h), a block at a time. A block is to be used before the next one is taken."""
    if isinstance(part, PartA):
        return (part.share[start : start + BLOCK] for start in range(0, part.share.size, BLOCK))
    return sharing.blocks_b(part.seed, round_.context(client), round_.params.dim + 1)


def share_of(round_: Round, client: str, part: PartA | PartB) -> FieldVector:
    """A server's share of (x, h), whole."""
    if isinstance(part, PartA):
        return part.share
    return sharing.share_b(part.seed, round_.context(client), round_.params.dim + 1)
