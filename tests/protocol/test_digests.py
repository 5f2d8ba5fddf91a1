"""What is bound to what: every digest changes with each of its inputs, and no stream is used twice."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from precad.mpc import prg
from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy.terms import Adversary
from precad.protocol import digests, norm_proof, submission
from precad.protocol.messages import Header, PartA, PartB
from precad.protocol.params import Unit, Validation
from precad.protocol.round import run_round
from precad.protocol.states import Role
from tests.protocol.drivers import SECRETS, make_round
from tests.protocol.test_conformance import honest_submissions

ROUND = make_round()
D = [Digest(bytes([i]) * 32) for i in range(8)]
S = [Secret(bytes([i]) * 32) for i in range(8)]
X, Y = np.arange(5, dtype=np.uint64), np.arange(1, 6, dtype=np.uint64)
PART_A, PART_B = PartA(S[0], S[1], D[0], X, X), PartB(S[0], S[1], D[0])
HEADER = Header(D[0], 1, D[1], D[6], "bank", D[2], D[3], D[4], D[5])
OTHERS = [replace(ROUND, task=D[7]), replace(ROUND, number=9)]
PARAMS = [
    replace(ROUND, params=replace(ROUND.params, **change))
    for change in (
        {"dim": 101},
        {"clients": 11},
        {"record_bound": 2.5},
        {"client_bound": 31.0},
        {"noise_multiplier": 1.0 + 2**-40},
        {"validation": Validation.NONE},
        {"noise": Adversary.CLIENTS},
        {"unit": Unit.CLIENT},
    )
]


def tally_salt(noise: Secret, outcome: Digest) -> Digest:
    return Digest(digests.tally_salt(noise, outcome).value)


CASES: dict[str, tuple[Callable[..., Digest], list[tuple[Any, ...]]]] = {
    "c_A": (digests.commit_a, [(S[0], X), (S[1], X), (S[0], Y)]),
    "c_B": (digests.commit_b, [(S[0], S[1]), (S[2], S[1]), (S[0], S[2])]),
    "rho": (
        digests.rho,
        [
            (ROUND, "c", D[0], D[1]),
            *((r, "c", D[0], D[1]) for r in OTHERS),
            (ROUND, "d", D[0], D[1]),
            (ROUND, "c", D[2], D[1]),
            (ROUND, "c", D[0], D[2]),
        ],
    ),
    "part A": (
        digests.part_a,
        [
            (PART_A, D[1]),
            (PART_A, D[2]),
            (replace(PART_A, salt=S[5]), D[1]),
            (replace(PART_A, seed=S[5]), D[1]),
            (replace(PART_A, commitment_b=D[5]), D[1]),
            (replace(PART_A, tail=Y), D[1]),
        ],
    ),
    "part B": (
        digests.part_b,
        [
            (PART_B, D[1]),
            (PART_B, D[2]),
            (replace(PART_B, salt=S[5]), D[1]),
            (replace(PART_B, seed=S[5]), D[1]),
            (replace(PART_B, commitment_a=D[5]), D[1]),
        ],
    ),
    "header": (
        digests.header,
        [(HEADER,), (replace(HEADER, round=2),), (replace(HEADER, client="lab"),)]
        + [
            (replace(HEADER, **{name: D[7]}),)  # type: ignore[arg-type]
            for name in ("task", "model", "nonces", "commitment_a", "commitment_b", "part_a", "part_b")
        ],
    ),
    "D": (
        digests.closed,
        [(ROUND, D[:2]), (ROUND, D[:1]), (ROUND, D[:3]), (ROUND, []), (replace(ROUND, model=D[7]), D[:2])]
        + [(r, D[:2]) for r in (*OTHERS, *PARAMS)],
    ),
    "nonce": (digests.commit_nonce, [(S[0],), (S[1],)]),
    "nonces": (digests.nonces, [(D[0], D[1]), (D[1], D[0]), (D[0], D[2])]),
    "challenge": (
        digests.challenge,
        [(ROUND, S[0], S[1]), (ROUND, S[2], S[1]), (ROUND, S[0], S[2]), (ROUND, S[1], S[0])]
        + [(r, S[0], S[1]) for r in (replace(ROUND, model=D[7]), replace(ROUND, nonces=D[7]), *OTHERS, *PARAMS)],
    ),
    "salt": (tally_salt, [(S[0], D[0]), (S[1], D[0]), (S[0], D[1])]),
    "tally": (digests.tally, [(S[0], X), (S[1], X), (S[0], Y)]),
    "outcome": (
        digests.outcome,
        [
            (D[0], D[1], ["a", "b"]),
            (D[2], D[1], ["a", "b"]),
            (D[0], D[2], ["a", "b"]),
            (D[0], D[1], ["a"]),
            (D[0], D[1], ["ab"]),
            (D[0], D[1], []),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_digest_changes_with_each_of_its_inputs(name: str) -> None:
    make, inputs = CASES[name]
    results = [make(*values) for values in inputs]
    assert len(set(results)) == len(inputs)
    assert [make(*values) for values in inputs] == results


def test_the_closed_set_has_no_order() -> None:
    assert digests.closed(ROUND, D[:3]) == digests.closed(ROUND, reversed(D[:3]))


@pytest.mark.parametrize("validation", Validation)
def test_no_stream_serves_two_purposes(validation: Validation, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a whole round a key is either expanded again for the same thing, by another party, or never."""
    made: dict[tuple[bytes, bytes], tuple[bytes, Purpose, Context]] = {}
    cipher = prg.Cipher  # type: ignore[attr-defined]
    original = Stream.__init__
    now = threading.local()  # the two servers run in two threads

    def recording(self: Stream, seed: Secret, purpose: Purpose, context: Context) -> None:
        now.stream = seed.value, purpose, context
        original(self, seed, purpose, context)

    def spying(algorithm: Any, mode: Any) -> Any:
        key = bytes(algorithm.key), bytes(mode.nonce)
        assert made.setdefault(key, now.stream) == now.stream
        return cipher(algorithm, mode)

    monkeypatch.setattr(Stream, "__init__", recording)
    monkeypatch.setattr(prg, "Cipher", spying)
    round_ = make_round(validation=validation)
    run_round(round_, honest_submissions(round_), SECRETS[Role.A], SECRETS[Role.B])
    used = {purpose for _, purpose, _ in made.values()}
    assert {Purpose.SHARE, Purpose.NOISE} <= used
    if validation is Validation.PROOF:
        assert {Purpose.WIRE, Purpose.TAIL, Purpose.Z, Purpose.CHALLENGE} <= used
    if validation is Validation.TRIPLES:
        of_proofs = {Purpose.WIRE, Purpose.TAIL, Purpose.Z, Purpose.CHALLENGE}
        assert set(Purpose) - of_proofs - {Purpose.SELECTION, Purpose.SAMPLE} == used
    assert len({purpose.value for purpose in Purpose}) == len(Purpose)


@pytest.mark.parametrize("first", [1, 7, 16])
def test_the_challenge_skips_the_points_of_the_entries(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At r ∈ {1..m} a wire's value would be an entry, without its mask."""
    original = Stream.field
    given = iter([first, 3, 99])

    def field(self: Stream, size: int) -> Any:
        return np.array([next(given)], np.uint64) if size == 1 else original(self, size)

    monkeypatch.setattr(Stream, "field", field)
    challenge = norm_proof.derive_challenge(submission.proof_shape(ROUND.params), D[0], ROUND.context("challenge"))
    assert sum(j * int(c) for j, c in enumerate(challenge.at_r)) % ((1 << 61) - 1) == 99
