"""The proof: its numbers, its completeness, what it hides, and what would undo it."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.mpc import field
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Digest, digest
from precad.mpc.secret import Secret
from precad.protocol import norm_proof, submission
from precad.protocol.messages import Header, PartA, PartB, decode
from precad.protocol.norm_proof import Challenge, Opening, Shape
from precad.protocol.params import Round
from precad.protocol.submission import ClientSecrets, Submission
from precad.simulation import forging
from tests.messages import says
from tests.protocol.drivers import make_round
from tests.stat_tests import ALPHA, uniform_field_p_value

ROUND = make_round(dim=64)
SHAPE = submission.proof_shape(ROUND.params)


def new_challenge(round_: Round = ROUND, seed: Digest | None = None) -> Challenge:
    shape = submission.proof_shape(round_.params)
    return norm_proof.derive_challenge(shape, seed or digest(b"t", Secret.fresh().value), round_.context("challenge"))


@dataclass(frozen=True)
class Views:
    """What both servers send about a submission."""

    a: Opening
    b: Opening

    @classmethod
    def of(cls, sent: Submission, challenge: Challenge, round_: Round = ROUND, client: str = "c") -> "Views":
        header = decode(sent.header, Header)
        part_a = decode(sent.part_a, PartA, **submission.part_a_sizes(round_.params))
        openings = []
        for part in (part_a, decode(sent.part_b, PartB)):
            shares = submission.expand(round_, client, part)
            z = submission.projections(round_, client, header.commitment_a, header.commitment_b)
            shape = submission.proof_shape(round_.params)
            openings.append(norm_proof.open_check(shape, challenge, shares, z, leader=part is part_a))
        return cls(*openings)


def of_norm(squared: int, generator: np.random.Generator, dim: int = 64) -> NDArray[np.int64]:
    """A random integer vector with exactly this squared norm, if it is large: the last entries make up the rest."""
    if squared == 0:
        return np.zeros(dim, np.int64)
    direction = generator.standard_normal(dim - 8)
    x = np.trunc(direction * math.sqrt(squared) * 0.999 / np.linalg.norm(direction)).astype(np.int64)
    rest = squared - int((x * x).sum())
    tail = []
    while rest:
        tail.append(math.isqrt(rest))
        rest -= tail[-1] ** 2
    result = np.zeros(dim, np.int64)
    result[: dim - 8], result[dim - 8 : dim - 8 + len(tail)] = x, tail
    return generator.permutation(result)


def test_the_numbers_of_the_specification() -> None:
    shape = submission.proof_shape(make_round(dim=26_010).params)
    assert (shape.norm_bits, shape.projection_bits, shape.bits) == (42, 25, 3242)
    assert (shape.entry_wires, shape.bit_wires) == (1626, 203)
    assert shape.online_soundness < 2**-55
    assert shape.offline_soundness <= 2**-128
    assert shape.honest_redraw < 2**-120


@pytest.mark.parametrize("bound", [0.01, 1.0, 30.0, 151.0, 1e4, 9e6])
def test_the_soundness_holds_for_every_bound(bound: float) -> None:
    params = replace(make_round().params, client_bound=bound, record_bound=bound, clients=1)
    shape = submission.proof_shape(params)
    assert shape.online_soundness < 2**-55
    assert shape.offline_soundness <= 2**-128
    assert shape.honest_redraw < 2**-120


def test_parameters_outside_the_lemmas_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=says("Lemma 3", "τ ≤ √p/16")):
        Shape(100, (1 << 25) ** 2)
    with pytest.raises(ValueError, match=says("Lemma 3", "d ≤ 2^32")):
        Shape((1 << 32) + 1, 100)


@pytest.mark.parametrize("draws", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_honest_vectors_are_never_rejected(draws: int) -> None:
    """At norm 0, C/2, exactly C, and in between."""
    generator = np.random.default_rng(1)
    s = ROUND.params.squared_bound
    for turn in range(draws):
        if turn % 500 == 0:
            challenge = new_challenge()
        squared = (0, s // 4, s, int(s * generator.random()))[turn % 4]
        x = of_norm(squared, generator)
        assert int((x * x).sum()) == squared
        views = Views.of(submission.submit(ROUND, "c", x), challenge)
        assert norm_proof.accepts(SHAPE, challenge, views.a, views.b)


def test_a_vector_over_its_bound_is_not_even_submitted() -> None:
    x = of_norm(ROUND.params.squared_bound + 1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="clip"):
        submission.submit(ROUND, "c", x)
    with pytest.raises(ValueError, match="64 entries"):
        submission.submit(ROUND, "c", x[:-1])


def test_salts_that_do_not_suit_x_are_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three draws whose projections leave their window, and one that is sent."""
    prove, refused = norm_proof.prove, iter([True, True, True, False])
    monkeypatch.setattr(norm_proof, "prove", lambda *arguments: None if next(refused) else prove(*arguments))
    drawn = []

    def draw() -> ClientSecrets:
        drawn.append(ClientSecrets.fresh())
        return drawn[-1]

    sent = submission.submit(ROUND, "c", np.full(64, 1000), draw)
    assert len(drawn) == 4
    assert decode(sent.part_b, PartB).salt == drawn[-1].salt_b


def test_a_projection_outside_its_window_is_noticed() -> None:
    tight = Shape(64, 1)  # a window of 8 for a vector of norm 8000
    masks = np.zeros(tight.entry_wires + tight.bit_wires, np.uint64)
    header = decode(submission.submit(ROUND, "c", ZERO).header, Header)
    z = submission.projections(ROUND, "c", header.commitment_a, header.commitment_b)
    assert norm_proof.prove(tight, np.full(64, 1000), 32_000, masks, z) is None


WRAPPED = {
    "the entry ⌈√p⌉": forging.wrapped(ROUND, 1),
    "3 entries": forging.wrapped(ROUND, 3),
    "64 entries": forging.wrapped(ROUND, 64),
    "x·x ≡ 0": forging.null_norm(ROUND),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_vectors_would_pass_the_papers_check(name: str) -> None:
    """x·x mod p is within the bound, the norm is not: only the projections tell."""
    x = WRAPPED[name]
    assert field.dot(x, x) <= ROUND.params.squared_bound
    assert sum(int(v) ** 2 for v in field.lift(x)) > ROUND.params.squared_bound
    challenge = new_challenge()
    views = Views.of(forging.forge(ROUND, "c", x), challenge)
    polynomial, inside = (int(v) for v in field.add(views.a.sums, views.b.sums))
    opened = field.add(views.a.wires, views.b.wires)
    entries, bits = opened[: SHAPE.entry_wires], opened[SHAPE.entry_wires :]
    squares = field.dot(entries, entries) + field.dot(field.mul(bits, bits), challenge.wire_weights)
    assert squares % P == polynomial
    assert inside != 0


# What the servers learn.

ZERO = np.zeros(64, np.int64)
LARGE = of_norm(ROUND.params.squared_bound, np.random.default_rng(5))
SAMPLES = 400


def opened_wires(
    x: NDArray[np.int64], fixed: ClientSecrets, fresh: str
) -> tuple[FieldVector, list[tuple[Views, Challenge]]]:
    """Many submissions of x in which one server's seed and salt stay the same and all else is fresh."""
    challenge = new_challenge(seed=digest(b"t"))
    views = []
    for _ in range(SAMPLES):
        new = Secret.fresh(), Secret.fresh()
        secrets = replace(fixed, **dict(zip((f"seed_{fresh}", f"salt_{fresh}"), new, strict=True)))
        views.append(Views.of(submission.submit(ROUND, "c", x, lambda s=secrets: s), challenge))  # type: ignore[misc]
    return np.concatenate([field.add(v.a.wires, v.b.wires) for v in views]), [(v, challenge) for v in views]


@pytest.mark.parametrize("x", [ZERO, LARGE], ids=["zero", "norm C"])
@pytest.mark.parametrize("curious", ["a", "b"])
def test_a_servers_view_is_the_same_for_every_honest_input(x: NDArray[np.int64], curious: str) -> None:
    """Lemma 5. With the curious server's own secrets fixed, the opened wires are uniform, whatever x is.

    All the rest of the other's message follows from them and from the curious server's own shares: the sums are
    what makes the two checks hold. So the view can be simulated without x. False alarm: ALPHA per case.
    """
    opened, views = opened_wires(x, ClientSecrets.fresh(), fresh="b" if curious == "a" else "a")
    assert uniform_field_p_value(opened) > ALPHA
    for view, challenge in views:
        own, other = (view.a, view.b) if curious == "a" else (view.b, view.a)
        values = field.add(own.wires, other.wires)
        entries, bits = values[: SHAPE.entry_wires], values[SHAPE.entry_wires :]
        squares = field.dot(entries, entries) + field.dot(field.mul(bits, bits), challenge.wire_weights)
        simulated = [(squares - int(own.sums[0])) % P, -int(own.sums[1]) % P]
        assert other.sums.tolist() == simulated


def test_the_test_sees_masks_that_are_used_again() -> None:
    """Power: with all seeds fixed, the same masks come again, and the opened wires repeat."""
    fixed = ClientSecrets.fresh()
    challenge = new_challenge()
    again = [Views.of(submission.submit(ROUND, "c", LARGE, lambda: fixed), challenge) for _ in range(50)]
    opened = np.concatenate([field.add(v.a.wires, v.b.wires) for v in again])
    assert uniform_field_p_value(opened) < ALPHA


def test_seventeen_challenges_would_reveal_the_update() -> None:
    """Why there is one challenge per submission, ever: a wire has degree 16, and 17 of its values give it away."""
    sent = submission.submit(ROUND, "c", LARGE)
    points, values = [], []
    for turn in range(SHAPE.wire + 1):
        challenge = new_challenge(seed=digest(b"t", bytes([turn])))
        views = Views.of(sent, challenge)
        points.append(_point(challenge))
        values.append(field.add(views.a.wires, views.b.wires)[: SHAPE.entry_wires].tolist())
    at = range(1, SHAPE.wire + 1)
    recovered = [_interpolate(points, [v[n] for v in values], j) for n in range(SHAPE.entry_wires) for j in at]
    assert field.lift(np.array(recovered, np.uint64)).tolist() == LARGE.tolist()


def test_two_challenges_would_tell_two_candidates_apart() -> None:
    """The mask drops out of two openings: an equation in x alone, which a guess satisfies or does not."""
    sent = submission.submit(ROUND, "c", LARGE)
    challenges = [new_challenge() for _ in range(2)]
    opened = [field.add(v.a.wires, v.b.wires) for v in (Views.of(sent, challenge) for challenge in challenges)]

    def residue(guess: NDArray[np.int64]) -> int:
        """The mask that each opening implies for the first wire, if the guess is right; their difference."""
        masks = []
        for challenge, values in zip(challenges, opened, strict=True):
            rest = field.dot(field.embed(guess[: SHAPE.wire]), challenge.at_r[1:])
            masks.append((int(values[0]) - rest) * pow(int(challenge.at_r[0]), -1, P) % P)
        return (masks[0] - masks[1]) % P

    other = LARGE.copy()
    other[0] += 1
    assert residue(LARGE) == 0
    assert residue(other) != 0


def _point(challenge: Challenge) -> int:
    """r, from Σ j·ℓ_j(r) = r."""
    return sum(j * int(c) for j, c in enumerate(challenge.at_r)) % P


def _interpolate(points: list[int], values: list[int], at: int) -> int:
    total = 0
    for i, (x, y) in enumerate(zip(points, values, strict=True)):
        term = y
        for j, other in enumerate(points):
            if j != i:
                term = term * (at - other) * pow(x - other, -1, P) % P
        total += term
    return total % P
