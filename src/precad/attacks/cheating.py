"""Clients that cheat at the protocol itself: false vectors, false proofs, false messages.

Each cheat makes a submission that the servers must reject, leaving the round as if the client had not been there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from precad.attacks.forging import (
    Edit,
    best_ground_salts,
    forge,
    honest,
    just_over,
    known_projections,
    near_half,
    null_norm,
    scaled,
    wrapped,
)
from precad.messages import Header, PartA, PartB, decode, encode
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import digest
from precad.mpc.wires import M
from precad.params import Round, Validation
from precad.protocol import digests, submission
from precad.protocol.norm_proof import Shape
from precad.protocol.submission import ClientSecrets, Submission


@dataclass(frozen=True)
class Cheat:
    """A way to cheat, with a name for tables; some make sense only against proofs."""

    name: str
    submit: Callable[[Round, str], Submission]
    only_proof: bool = False


def _vector(name: str, make: Callable[[Round], FieldVector]) -> Cheat:
    return Cheat(name, lambda round_, client: forge(round_, client, make(round_)))


def _tail(name: str, edit: Callable[[Shape], Edit]) -> Cheat:
    def submit(round_: Round, client: str) -> Submission:
        return forge(round_, client, honest(round_), edit_tail=edit(submission.proof_shape(round_.params)))

    return Cheat(name, submit, only_proof=True)


def _after(name: str, change: Callable[[Round, Submission], Submission]) -> Cheat:
    return Cheat(name, lambda round_, client: change(round_, forge(round_, client, honest(round_))))


def _off_by_one(at: Callable[[Shape], int]) -> Callable[[Shape], Edit]:
    def make(shape: Shape) -> Edit:
        def edit(tail: FieldVector) -> None:
            tail[at(shape)] = (int(tail[at(shape)]) + 1) % P

        return edit

    return make


def _two_for_a_bit(shape: Shape) -> Edit:
    """Bits (0, 1) become (2, 0): the same number, with something that is not a bit."""

    def edit(tail: FieldVector) -> None:
        lower = next(i for i in range(shape.bits) if (tail[i], tail[i + 1]) == (0, 1) and i + 1 != shape.norm_bits)
        tail[lower], tail[lower + 1] = 2, 0

    return edit


def _other_bits(shape: Shape) -> Edit:
    def edit(tail: FieldVector) -> None:
        tail[shape.norm_bits : shape.bits] = np.roll(tail[shape.norm_bits : shape.bits], shape.projection_bits)

    return edit


def _false_h(error: int) -> Callable[[Round, str], Submission]:
    def submit(round_: Round, client: str) -> Submission:
        return forge(round_, client, honest(round_), h_error=error)

    return submit


def _right_proof_of_another(round_: Round, client: str) -> Submission:
    return forge(round_, client, scaled(round_, 10), proof_of=honest(round_))


def _ground(round_: Round, client: str) -> Submission:
    x, secrets = best_ground_salts(round_, client, 10_000)
    return forge(round_, client, x, secrets=secrets)


def _elsewhere(**changes: object) -> Callable[[Round, str], Submission]:
    def submit(round_: Round, client: str) -> Submission:
        return forge(replace(round_, **changes), client, honest(round_))  # type: ignore[arg-type]

    return submit


def _relabelled(round_: Round, client: str) -> Submission:
    """A submission made for another client, with its name changed in the header."""
    other = forge(round_, client + "'", honest(round_))
    return replace(other, header=encode(replace(decode(other.header, Header), client=client)))


def _reparted(round_: Round, sent: Submission, **changes: object) -> Submission:
    """Change part A and put its new digest into the header: only what the part says is false."""
    part = replace(_part_a(round_, sent), **changes)  # type: ignore[arg-type]
    commitment_a = digests.commit_a(part.salt, part.share)
    header = replace(decode(sent.header, Header), part_a=digests.part_a(part, commitment_a))
    return replace(sent, header=encode(header), part_a=encode(part))


def _part_a(round_: Round, sent: Submission) -> PartA:
    return decode(sent.part_a, PartA, **submission.part_a_sizes(round_.params))


def _foreign_part(name: str) -> Callable[[Round, Submission], Submission]:
    def change(round_: Round, sent: Submission) -> Submission:
        other = forge(round_, decode(sent.header, Header).client, honest(round_))
        return replace(sent, **{name: getattr(other, name)})

    return change


def _resized(size: Callable[[int], int]) -> Callable[[Round, Submission], Submission]:
    def change(round_: Round, sent: Submission) -> Submission:
        share = _part_a(round_, sent).share
        return _reparted(round_, sent, share=np.resize(share, size(share.size)))

    return change


def _non_canonical(at: Callable[[Round], int], k: int) -> Callable[[Round, Submission], Submission]:
    """Add k·p to one word of part A, where a share's or a tail's entry stands."""

    def change(round_: Round, sent: Submission) -> Submission:
        raw = bytearray(sent.part_a)
        words = np.frombuffer(raw, np.uint64, offset=16 + 96)
        place = at(round_)
        words[place] = words[place] % np.uint64(P) + np.uint64(k * P)
        return replace(sent, part_a=bytes(raw))

    return change


def _false_commitment(name: str) -> Callable[[Round, Submission], Submission]:
    def change(_round: Round, sent: Submission) -> Submission:
        changes: dict[str, Any] = {name: digest(b"precad cheat")}
        return replace(sent, header=encode(replace(decode(sent.header, Header), **changes)))

    return change


def _false_seed(_round: Round, sent: Submission) -> Submission:
    part = replace(decode(sent.part_b, PartB), seed=ClientSecrets.fresh().seed_b)
    return replace(sent, part_b=encode(part))


CHEATS: tuple[Cheat, ...] = (
    _vector("norm C plus one", just_over),
    _vector("norm 10 C", lambda r: scaled(r, 10)),
    _vector("norm 1,000,000 C", lambda r: scaled(r, 1e6)),
    _vector("the entry ⌈√p⌉", lambda r: wrapped(r, 1)),
    *(_vector(f"{n} wrapped entries", partial(wrapped, count=n)) for n in (2, 3, 10, 100, 10_000)),
    *(_vector(f"entries at p/2 + {offset}", partial(near_half, offset=offset)) for offset in (-5, 0, 1)),
    _vector("x·x ≡ 0", null_norm),
    Cheat("known projections", lambda r, c: forge(r, c, known_projections(r, c))),
    Cheat("salts ground through 10,000 tries", _ground),
    Cheat("right proof of another vector", _right_proof_of_another),
    _tail("a bit that is 2", _two_for_a_bit),
    _tail("the bits of other projections", _other_bits),
    _tail("a norm bit off by one", _off_by_one(lambda _: 0)),
    _tail("a projection bit off by one", _off_by_one(lambda s: s.norm_bits)),
    _tail("P(0) off by one", _off_by_one(lambda s: s.bits)),
    _tail("P(1) off by one", _off_by_one(lambda s: s.bits + 1)),
    _tail("P(2m) off by one", _off_by_one(lambda s: s.bits + 2 * M - 1)),
    _tail("the first P_n off by one", _off_by_one(lambda s: s.bits + 2 * M)),
    _tail("the last P_n off by one", _off_by_one(lambda s: s.tail - 1)),
    Cheat("h off by one", _false_h(1), only_proof=True),
    Cheat("h far off", _false_h(1 << 40)),
    Cheat("of another round", _elsewhere(number=12_345)),
    Cheat("of another task", _elsewhere(task=digest(b"precad cheat", b"task"))),
    Cheat("of another model", _elsewhere(model=digest(b"precad cheat", b"model"))),
    Cheat("of another client", lambda r, c: forge(r, c + "'", honest(r))),
    Cheat("of another client, relabelled", _relabelled),
    _after("parts swapped", lambda _, s: replace(s, part_a=s.part_b, part_b=s.part_a)),
    _after("part A of another submission", _foreign_part("part_a")),
    _after("part B of another submission", _foreign_part("part_b")),
    _after("share one entry short", _resized(lambda n: n - 1)),
    _after("share one entry long", _resized(lambda n: n + 1)),
    _after("share twice as long", _resized(lambda n: 2 * n)),
    *(
        _after(f"{where} plus {k}·p", _non_canonical(at, k))
        for k in (1, 7)
        for where, at in {
            "x_1": lambda _: 1,
            "x_d": lambda r: r.params.dim,
            "h": lambda r: r.params.dim + 1,
        }.items()
    ),
    _after("false commitment to A's share", _false_commitment("commitment_a")),
    _after("false commitment to B's share", _false_commitment("commitment_b")),
    _after("another seed for B", _false_seed),
    _after("no part A", lambda _, s: replace(s, part_a=b"")),
    _after("no part B", lambda _, s: replace(s, part_b=b"")),
    _after("part A cut off", lambda _, s: replace(s, part_a=s.part_a[:-8])),
    _after("part A with bytes after its end", lambda _, s: replace(s, part_a=s.part_a + bytes(8))),
    _after("garbage", lambda _, s: Submission(s.header[::-1], s.part_a[::-1], s.part_b[::-1])),
)
"""Every way to cheat that we know."""


def against(validation: Validation) -> tuple[Cheat, ...]:
    """The cheats that a validation must catch."""
    if validation is Validation.PROOF:
        return CHEATS
    return tuple(cheat for cheat in CHEATS if not cheat.only_proof)
