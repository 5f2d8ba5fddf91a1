"""The proof against a second implementation: PROTOCOL §3 and §4 in Python's integers, from hashing to the verdict.

Nothing here is taken from the package but the messages: its own Lagrange, its own expansion of AES, its own hashes.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from precad.mpc.prg import digest
from precad.protocol import norm_proof, submission
from precad.protocol.messages import Header, PartA, PartB, decode
from precad.protocol.params import Params, Round

P, M, ROWS = (1 << 61) - 1, 16, 128


def h(person: str, *parts: bytes) -> bytes:
    state = hashlib.blake2b(digest_size=32, person=person.encode())
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def vector_hash(vector: list[int]) -> bytes:
    raw = b"".join(v.to_bytes(8, "little") for v in vector)
    return blake3(raw, derive_key_context="precad 1 vector").digest()


def interpolate(values: list[int], t: int) -> int:
    """The value at t of the polynomial through the values at 0, 1, 2, …"""
    total = 0
    for j, value in enumerate(values):
        numerator, denominator = value, 1
        for k in range(len(values)):
            if k != j:
                numerator, denominator = numerator * (t - k) % P, denominator * (j - k) % P
        total += numerator * pow(denominator, -1, P)
    return total % P


def cut(entries: list[int]) -> list[list[int]]:
    return [(entries[i : i + M] + [0] * M)[:M] for i in range(0, len(entries), M)]


@dataclass(frozen=True)
class Reference:
    """One client's proof and both servers' checks."""

    task: bytes
    number: int
    client: str
    dim: int
    s: int

    @property
    def tau(self) -> int:
        tau = 1
        while 16 * (tau - 1) ** 2 < 729 * self.s:
            tau *= 2
        return tau

    @property
    def k(self) -> int:
        return self.tau.bit_length()

    @property
    def bits(self) -> int:
        return self.s.bit_length() + ROWS * self.k

    @property
    def wires(self) -> int:
        return -(-self.dim // M) + -(-self.bits // M)

    def words(self, seed: bytes, purpose: str, party: str | None = None) -> Iterator[int]:
        context = self.task, self.number.to_bytes(8, "little"), (party or self.client).encode()
        material = h(f"precad {purpose}", seed, *context)
        cipher = Cipher(algorithms.AES(material[:16]), modes.CTR(material[16:])).encryptor()
        while True:
            yield int.from_bytes(cipher.update(bytes(8)), "little")

    def draw(self, seed: bytes, purpose: str, count: int) -> list[int]:
        elements = (word & P for word in self.words(seed, purpose))
        return [next(e for e in elements if e != P) for _ in range(count)]

    def columns(self, c_a: bytes, c_b: bytes) -> list[int]:
        rho = h("precad rho", self.task, self.number.to_bytes(8, "little"), self.client.encode(), c_a, c_b)
        words = self.words(rho, "Z")
        return [next(words) + (next(words) << 64) for _ in range(self.dim)]

    def tail(self, x: list[int], masks: list[int], columns: list[int]) -> list[int]:
        half = sum(x) // 2
        u = [sum(v for v, z in zip(x, columns, strict=True) if z >> j & 1) - half + self.tau for j in range(ROWS)]
        slack = self.s - sum(v * v for v in x)
        bits = [slack >> i & 1 for i in range(self.s.bit_length())]
        bits += [value >> i & 1 for value in u for i in range(self.k)]
        entries, flags = cut(x), cut(bits)
        polynomial = [
            sum(interpolate([m, *wire], t) ** 2 for m, wire in zip(masks, entries, strict=False)) % P
            for t in range(2 * M + 1)
        ]
        squares = [
            interpolate([m, *wire], t) ** 2 % P
            for m, wire in zip(masks[len(entries) :], flags, strict=True)
            for t in (0, *range(M + 1, 2 * M + 1))
        ]
        return [*bits, *polynomial[:M], *polynomial[M + 1 :], *squares]

    def challenge(self, seed: bytes) -> tuple[int, list[int], list[int]]:
        elements = (word & P for word in self.words(seed, "challenge", "challenge"))
        drawn = (e for e in elements if e != P)
        r = next(e for e in drawn if not 1 <= e <= M)
        weights = [next(drawn) for _ in range(-(-self.bits // M))]
        return r, weights, [next(drawn) >> 4 for _ in range(ROWS)]

    def check(
        self,
        challenge: tuple[int, list[int], list[int]],
        share: list[int],
        tail: list[int],
        masks: list[int],
        columns: list[int],
        leader: bool,
    ) -> tuple[list[int], list[int]]:
        r, weights, v = challenge
        x, half, bits = share[:-1], share[-1], tail[: self.bits]
        flags, w = cut(bits), self.s.bit_length()
        opened = [interpolate([m, *wire], r) for m, wire in zip(masks, cut(x) + flags, strict=True)]
        p = [*tail[self.bits :][:M], 0, *tail[self.bits + M :][:M]]
        p[M] = (self.s if leader else 0) - sum(b << i for i, b in enumerate(bits[:w])) - sum(p[1:M])
        polynomial = interpolate(p, r)
        claims = tail[self.bits + 2 * M :]
        for n, wire in enumerate(flags):
            claim = claims[n * (M + 1) : (n + 1) * (M + 1)]
            polynomial += weights[n] * interpolate([claim[0], *wire, *claim[1:]], r)
        inside = 0
        for j in range(ROWS):
            u = sum(a for a, z in zip(x, columns, strict=True) if z >> j & 1) - half + (self.tau if leader else 0)
            inside += v[j] * (u - sum(b << i for i, b in enumerate(bits[w + j * self.k :][: self.k])))
        return opened, [polynomial % P, inside % P]


CASES = [(dim, bound) for dim in (1, 16, 17) for bound in (2.0**-12, 30.0, 9.9e6)]


@pytest.mark.parametrize(("dim", "bound"), CASES)
def test_client_and_servers_equal_the_reference(dim: int, bound: float) -> None:
    params = Params(dim=dim, clients=2, record_bound=bound, client_bound=bound, noise_multiplier=100.0)
    round_ = Round(params, digest(b"precad test", b"reference"), 2**64 - 1, digest(b"precad test", b"model"))
    ref = Reference(round_.task, round_.number, "hôpital", dim, params.squared_bound)
    largest = int((params.squared_bound / dim) ** 0.5)
    x = np.random.default_rng(dim).integers(-largest, largest + 1, dim)
    sent = submission.submit(round_, "hôpital", x)
    header = decode(sent.header, Header)
    part_a = decode(sent.part_a, PartA, **submission.part_a_sizes(params))
    part_b = decode(sent.part_b, PartB)

    share_b = ref.draw(part_b.seed.value, "share", dim + 1)
    share_a = [(v - b) % P for v, b in zip([*x.tolist(), int(x.sum()) // 2], share_b, strict=True)]
    assert part_a.share.tolist() == share_a
    assert header.commitment_a == h("precad commit A", part_a.salt.value, vector_hash(share_a))
    assert header.commitment_b == h("precad commit B", part_b.salt.value, part_b.seed.value)
    masks_a = ref.draw(part_a.seed.value, "wire", ref.wires)
    masks_b = ref.draw(part_b.seed.value, "wire", ref.wires)
    columns = ref.columns(header.commitment_a, header.commitment_b)
    tail = ref.tail(x.tolist(), [(a + b) % P for a, b in zip(masks_a, masks_b, strict=True)], columns)
    tail_b = ref.draw(part_b.seed.value, "tail", len(tail))
    tail_a = [(t - b) % P for t, b in zip(tail, tail_b, strict=True)]
    assert part_a.tail.tolist() == tail_a
    secrets = part_a.salt.value, part_a.seed.value, header.commitment_b, header.commitment_a
    assert header.part_a == h("precad part A", *secrets, vector_hash(tail_a))
    assert header.part_b == h(
        "precad part B", part_b.salt.value, part_b.seed.value, header.commitment_a, header.commitment_b
    )

    seed = digest(b"precad test", b"challenge")
    challenge = ref.challenge(seed)
    shape = submission.proof_shape(params)
    drawn = norm_proof.derive_challenge(shape, seed, round_.context("challenge"))
    openings = []
    for part, share, own_tail, masks in ((part_a, share_a, tail_a, masks_a), (part_b, share_b, tail_b, masks_b)):
        expanded = submission.expand(round_, "hôpital", part)
        z = submission.projections(round_, "hôpital", header.commitment_a, header.commitment_b)
        leader = part is part_a
        opening = norm_proof.open_check(shape, drawn, expanded, z, leader=leader)
        wires, sums = ref.check(challenge, share, own_tail, masks, columns, leader)
        assert opening.wires.tolist() == wires
        assert opening.sums.tolist() == sums
        openings.append(opening)
    assert norm_proof.accepts(shape, drawn, *openings)
