"""What is bound to what: every digest of a round, in the order in which they are made (PROTOCOL §4, §6)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from precad.mpc.field import FieldVector
from precad.mpc.prg import Digest, digest, vector_digest
from precad.mpc.secret import Secret
from precad.protocol.messages import Header, PartA, PartB, encode
from precad.protocol.params import Round


def commit_a(salt: Secret, share: FieldVector) -> Digest:
    """c_A = H(salt_A, share_A)."""
    return digest(b"precad commit A", salt.value, vector_digest(share))


def commit_b(salt: Secret, seed: Secret) -> Digest:
    """c_B = H(salt_B, seed_B)."""
    return digest(b"precad commit B", salt.value, seed.value)


def rho(round_: Round, client: str, commitment_a: Digest, commitment_b: Digest) -> Digest:
    """ρ = H(task, round, client, c_A, c_B), the seed of Z: fixed only when x and h are."""
    return digest(b"precad rho", *round_.context(client).parts(), commitment_a, commitment_b)


def part_a(part: PartA, commitment_a: Digest) -> Digest:
    """H(part A). The share enters through its commitment, so that it is hashed once."""
    tail = vector_digest(part.tail)
    return digest(b"precad part A", part.salt.value, part.seed.value, part.commitment_b, commitment_a, tail)


def part_b(part: PartB, commitment_b: Digest) -> Digest:
    """H(part B)."""
    return digest(b"precad part B", part.salt.value, part.seed.value, part.commitment_a, commitment_b)


def header(message: Header) -> Digest:
    """H of a header: all that a client has fixed."""
    return digest(b"precad header", encode(message))


def model_digest(model: NDArray[np.float64]) -> Digest:
    """H of a model: its parameters in order, as float64."""
    if model.dtype != np.float64 or model.ndim != 1 or not model.flags.c_contiguous:
        raise ValueError(f"a model is a contiguous float64 vector, got {model.dtype} of shape {model.shape}")
    if not np.isfinite(model).all():
        raise ValueError("a model has an entry that is not finite")
    return digest(b"precad model", vector_digest(model.view(np.uint64)))


def commit_nonce(nonce: Secret) -> Digest:
    """A server's commitment to its nonce, made before the first client is invited."""
    return digest(b"precad nonce", nonce.value)


def nonces(commitment_a: Digest, commitment_b: Digest) -> Digest:
    """H of both commitments: what every header names."""
    return digest(b"precad nonces", commitment_a, commitment_b)


def closed(round_: Round, headers: Iterable[Digest]) -> Digest:
    """D: the closed set, with the task, its parameters, the round and the model that it is closed for."""
    task, number, _ = round_.context("servers").parts()
    return digest(b"precad closed", task, round_.params.digest, number, round_.model, *sorted(headers))


def challenge(round_: Round, nonce_a: Secret, nonce_b: Secret) -> Digest:
    """H(task, parameters, round, model, commitments, nonces): all that the servers draw together comes from it.

    All of it is fixed before the first submission. So a round has one challenge, whatever is closed, however often.
    """
    task, number, _ = round_.context("servers").parts()
    fixed = (task, round_.params.digest, number, round_.model, round_.nonces)
    return digest(b"precad chal seed", *fixed, nonce_a.value, nonce_b.value)


def tally_salt(noise: Secret, outcome_: Digest) -> Secret:
    """The salt of a server's tally, from the secret of its noise."""
    return Secret(digest(b"precad salt", noise.value, outcome_))


def tally(salt: Secret, share: FieldVector) -> Digest:
    """A server's commitment to its noisy share: with the salt, it tells nothing about a share that can be guessed."""
    return digest(b"precad tally", salt.value, vector_digest(share))


def outcome(closed_set: Digest, seed: Digest, valid: Iterable[str]) -> Digest:
    """What is about to be opened: this closed set, this challenge, these valid clients."""
    return digest(b"precad outcome", closed_set, seed, *(name.encode() for name in sorted(valid)))
