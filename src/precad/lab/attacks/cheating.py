"""Clients that cheat at the protocol itself: false vectors, false proofs, false messages.

Each cheat makes a submission that the servers must reject, leaving the round as if the client had not been there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from precad.errors import Reason
from precad.mpc import field
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import digest
from precad.protocol import submission
from precad.protocol.messages import Header, PartB, decode, encode
from precad.protocol.norm_proof import Shape
from precad.protocol.params import Round, Validation
from precad.protocol.submission import ClientSecrets, Submission
from precad.simulation import forging
from precad.simulation.forging import Edit, forge, honest, scaled, wrapped


@dataclass(frozen=True)
class Cheat:
    """A way to cheat, with a name for tables, and the reason for which it must be rejected."""

    name: str
    submit: Callable[[Round, str], Submission]
    expected: Reason = Reason.INVALID
    only_proof: bool = False


def _right(round_: Round, client: str) -> Submission:
    """A submission with nothing false in it."""
    return forge(round_, client, honest(round_))


def _vector(name: str, make: Callable[[Round], FieldVector]) -> Cheat:
    return Cheat(name, lambda round_, client: forge(round_, client, make(round_)))


def _claims(name: str, make: Callable[[Shape], dict[str, Edit]]) -> Cheat:
    """An honest vector with false bits, or other false claims."""

    def submit(round_: Round, client: str) -> Submission:
        return forge(round_, client, honest(round_), **make(submission.proof_shape(round_.params)))  # type: ignore[arg-type]

    return Cheat(name, submit, only_proof=True)


def _after(name: str, expected: Reason, change: Callable[[Submission], Submission]) -> Cheat:
    """A right submission, changed on its way."""
    return Cheat(name, lambda round_, client: change(_right(round_, client)), expected)


def _mixed(name: str, mix: Callable[[Submission, Submission], Submission]) -> Cheat:
    """Parts of two right submissions of one client, whose secrets differ."""
    return Cheat(name, lambda round_, client: mix(_right(round_, client), _right(round_, client)), Reason.COMMITMENT)


def _plus(at: int, error: int) -> Edit:
    def edit(vector: FieldVector) -> None:
        vector[at] = (int(vector[at]) + error) % P

    return edit


def _two_for_a_bit(vector: FieldVector) -> None:
    """Bits (0, 1) become (2, 0): the same number, with something that is not a bit."""
    low = next(i for i in range(vector.size) if vector[i] == 0 and vector[i + 1] == 1)
    vector[low], vector[low + 1] = 2, 0


def _projections_plus(shape: Shape, errors: dict[int, int]) -> Edit:
    """Add to the numbers that the bits of some projections stand for; the bits stay bits."""

    def edit(bits: FieldVector) -> None:
        for row, error in errors.items():
            start = shape.norm_bits + row * shape.projection_bits
            place = slice(start, start + shape.projection_bits)
            value = sum(int(bit) << i for i, bit in enumerate(bits[place])) + error
            bits[place] = [value >> i & 1 for i in range(shape.projection_bits)]

    return edit


def _cancelling_non_bits(round_: Round, client: str) -> Submission:
    """Norm 3 C, hidden in three numbers in place of bits, in three wires, whose errors b² − b add up to 0."""
    x = scaled(round_, 3)
    rest = (round_.params.squared_bound - field.dot(x, x)) % P
    m = submission.proof_shape(round_.params).wire
    first, second = 1 << m, 1 << 2 * m

    def edit(bits: FieldVector) -> None:
        bits[: submission.proof_shape(round_.params).norm_bits] = 0
        for c in range(2, 1000):  # a + first·b + second·c = rest, and a² − a + b² − b + c² − c = 0: a quadratic in b
            t = rest - second * c
            qa, qb, qc = first * first + 1, first - 1 - 2 * first * t, t * t - t + c * c - c
            for root in forging.square_roots(qb * qb - 4 * qa * qc):
                b = (root - qb) * pow(2 * qa, -1, P) % P
                bits[0], bits[m], bits[2 * m] = (t - first * b) % P, b, c
                return

    return forge(round_, client, x, edit_bits=edit)


def _false_h(error: int) -> Callable[[Round, str], Submission]:
    def submit(round_: Round, client: str) -> Submission:
        x = honest(round_)
        true = int(field.lift(x).sum()) // 2
        return forge(round_, client, x, h=true + error, claimed_h=true)

    return submit


def _ground(round_: Round, client: str) -> Submission:
    x = wrapped(round_, 1)
    return forge(round_, client, x, secrets=forging.best_ground_salts(round_, client, x, 10_000))


def _resized(dim: Callable[[int], int]) -> Callable[[Round, str], Submission]:
    """A submission that is right in every way, for a model of another size."""
    return lambda round_, client: _right(
        replace(round_, params=replace(round_.params, dim=dim(round_.params.dim))), client
    )


def _non_canonical(at: int, k: int) -> Callable[[Round, str], Submission]:
    """Add k·p to a word of A's share, commit to that, and prove all the rest."""

    def edit(words: FieldVector) -> None:
        words[at] += np.uint64(k * P)

    return lambda round_, client: forge(round_, client, honest(round_), edit_share=edit)


def _relabelled(sent: Submission, **changes: Any) -> Submission:
    """The same parts under a header with some fields changed."""
    return replace(sent, header=encode(replace(decode(sent.header, Header), **changes)))


def _reseeded(sent: Submission) -> Submission:
    part = replace(decode(sent.part_b, PartB), seed=ClientSecrets.fresh().seed_b)
    return replace(sent, part_b=encode(part))


_FALSE = digest(b"precad cheat")

CHEATS: tuple[Cheat, ...] = (
    _vector("norm C plus one", forging.just_over),
    _vector("norm 10 C", lambda r: scaled(r, 10)),
    _vector("norm 1,000,000 C", lambda r: scaled(r, 1e6)),
    _vector("the entry ⌈√p⌉", lambda r: wrapped(r, 1)),
    *(_vector(f"{n} wrapped entries", partial(wrapped, count=n)) for n in (2, 3, 10, 100)),
    *(_vector(f"entries at p/2 + {offset}", partial(forging.near_half, offset=offset)) for offset in (-5, 0, 1)),
    _vector("x·x ≡ 0", forging.null_norm),
    Cheat("projections of a Z that is not used", lambda r, c: forge(r, c, forging.known_projections(r, c), h=0)),
    Cheat("salts ground through 10,000 tries", _ground),
    Cheat(
        "right proof of another vector", lambda r, c: forge(r, c, scaled(r, 10), proof_of=honest(r)), only_proof=True
    ),
    Cheat("non-bits that cancel between wires", _cancelling_non_bits, only_proof=True),
    _claims("a bit that is 2", lambda _: {"edit_bits": _two_for_a_bit}),
    _claims("a norm bit off by one", lambda _: {"edit_bits": _plus(0, 1)}),
    _claims("the first projection off by one", lambda s: {"edit_bits": _projections_plus(s, {0: 1})}),
    _claims("the last projection off by one", lambda s: {"edit_bits": _projections_plus(s, {127: 1})}),
    _claims("two projections off, by 1 and −1", lambda s: {"edit_bits": _projections_plus(s, {0: 1, 1: -1})}),
    _claims("P(0) off by one", lambda s: {"edit_tail": _plus(s.bits, 1)}),
    _claims("P(1) off by one", lambda s: {"edit_tail": _plus(s.bits + 1, 1)}),
    _claims("P(2m) off by one", lambda s: {"edit_tail": _plus(s.bits + 2 * s.wire - 1, 1)}),
    _claims("the first P_n off by one", lambda s: {"edit_tail": _plus(s.bits + 2 * s.wire, 1)}),
    _claims("the last P_n off by one", lambda s: {"edit_tail": _plus(s.tail - 1, 1)}),
    Cheat("h off by one", _false_h(1), only_proof=True),
    Cheat("h far off", _false_h(1 << 40)),
    Cheat("of another round", lambda r, c: _right(replace(r, number=12_345), c), Reason.FOREIGN),
    Cheat("of another task", lambda r, c: _right(replace(r, task=_FALSE), c), Reason.FOREIGN),
    Cheat("of another model", lambda r, c: _right(replace(r, model=_FALSE), c), Reason.FOREIGN),
    Cheat("of another client", lambda r, c: _right(r, c + "'"), Reason.FOREIGN),
    Cheat("of another client, relabelled", lambda r, c: _relabelled(_right(r, c + "'"), client=c)),
    Cheat("share one entry short", _resized(lambda d: d - 1), Reason.MALFORMED),
    Cheat("share one entry long", _resized(lambda d: d + 1), Reason.MALFORMED),
    Cheat("share twice as long", _resized(lambda d: 2 * d), Reason.MALFORMED),
    *(
        Cheat(f"{where} plus {k}·p", _non_canonical(at, k), Reason.MALFORMED)
        for where, at in {"x_1": 0, "x_d": -2, "h": -1}.items()
        for k in (1, 7)
    ),
    _after("parts swapped", Reason.MALFORMED, lambda s: replace(s, part_a=s.part_b, part_b=s.part_a)),
    _mixed("part A of another submission", lambda s, other: replace(s, part_a=other.part_a)),
    _mixed("part B of another submission", lambda s, other: replace(s, part_b=other.part_b)),
    _after("false commitment to A's share", Reason.COMMITMENT, lambda s: _relabelled(s, commitment_a=_FALSE)),
    _after("false commitment to B's share", Reason.COMMITMENT, lambda s: _relabelled(s, commitment_b=_FALSE)),
    _after("another seed for B", Reason.COMMITMENT, _reseeded),
    _after("no part A", Reason.MALFORMED, lambda s: replace(s, part_a=b"")),
    _after("no part B", Reason.MALFORMED, lambda s: replace(s, part_b=b"")),
    _after("part A cut off", Reason.MALFORMED, lambda s: replace(s, part_a=s.part_a[:-8])),
    _after("bytes after the end", Reason.MALFORMED, lambda s: replace(s, part_a=s.part_a + bytes(8))),
    _after("garbage", Reason.MALFORMED, lambda s: Submission(s.header[::-1], s.part_a[::-1], s.part_b[::-1])),
)
"""Every way to cheat that we know."""


def against(validation: Validation) -> tuple[Cheat, ...]:
    """The cheats that a validation must catch."""
    return tuple(cheat for cheat in CHEATS if validation is Validation.PROOF or not cheat.only_proof)
