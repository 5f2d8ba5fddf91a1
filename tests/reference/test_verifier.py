"""A second implementation, written from docs/protocol.md alone, finds what the package finds."""

from dataclasses import replace

import numpy as np
import pytest

from precad.mpc import field
from precad.mpc.field import FieldVector, P
from precad.mpc.secret import Secret
from precad.protocol import submission
from precad.protocol.params import Round, Unit, Validation
from precad.protocol.submission import ClientSecrets, Submission
from precad.simulation import forging
from precad.simulation.forging import forge
from tests.reference import vectors, verifier
from tests.reference.book import make_round, transcript
from tests.reference.transcripts import Table, expected

CLIENTS = ["bank", "clinic", "lab"]
ROUNDS = 10_000
AT_ONCE = 500
Generator = np.random.Generator


@pytest.mark.parametrize("vector", vectors.stored(), ids=lambda each: f"{each['kind']}: {each['name']}")
def test_every_vector(vector: Table) -> None:
    assert verifier.expected(vector["kind"], vector["given"]) == vector["expected"]


def test_garbage_is_refused() -> None:
    """Whatever stands in the place of bytes."""
    for vector in vectors.stored():
        for name, value in vector["given"].items():
            if (
                isinstance(value, str)
                and name not in ("message", "recipient", "role")
                and vector["kind"] in ("message", "receipt", "head", "seal", "start")
            ):
                given = {**vector["given"], name: value[:-2] if len(value) > 2 else "00"}
                assert verifier.expected(vector["kind"], given) == expected(vector["kind"], given), (
                    name,
                    vector["name"],
                )


def random_round(draw: Generator) -> Round:
    validation = Validation.NONE if draw.random() < 0.1 else Validation.PROOF
    unit = Unit.CLIENT if draw.random() < 0.5 else Unit.RECORD
    bound = float(draw.choice([2.0**-10, 2.0**-8, 2.0**-5]))
    dim, number = int(draw.integers(1, 150 if draw.random() < 0.05 else 10)), int(draw.integers(0, 1 << 40))
    return make_round(dim, number, validation=validation, unit=unit, client_bound=bound, record_bound=bound / 2)


def random_update(round_: Round, draw: Generator) -> FieldVector:
    """Anything within the bound, at its edge too."""
    direction = draw.normal(size=round_.params.dim)
    length = np.sqrt(round_.params.squared_bound) * draw.choice([0.0, 0.5, 1.0])
    return field.embed(np.trunc(direction / np.linalg.norm(direction) * length).astype(np.int64))


def random_secrets(draw: Generator) -> ClientSecrets:
    return ClientSecrets(*(Secret(draw.bytes(32)) for _ in range(4)))


def honest(round_: Round, client: str, draw: Generator) -> Submission:
    x = field.lift(random_update(round_, draw))
    return submission.submit(round_, client, x, lambda: random_secrets(draw))


def cheating(round_: Round, client: str, draw: Generator) -> Submission:
    """Of a vector that is too long, or with one claim, one bit or one h that is false."""

    def plus(vector: FieldVector) -> None:
        at = int(draw.integers(vector.size))
        vector[at] = (int(vector[at]) + int(draw.choice([1, P - 1, 1 << 40]))) % P

    x, secrets = random_update(round_, draw), random_secrets(draw)
    lies: list[Table] = [{"edit_bits": plus}, {"edit_tail": plus}, {"h": int(draw.integers(P)), "claimed_h": 0}]
    lies += [
        {"x": forging.scaled(round_, 1 + 1e-6)},
        {"x": forging.scaled(round_, 10)},
        {"x": forging.wrapped(round_, 2)},
    ]
    lie = lies[int(draw.integers(len(lies)))]
    return forge(round_, client, **{"x": x, "secrets": secrets, **lie})


def spoilt(raw: bytes, draw: Generator) -> bytes:
    """With a bit changed, a byte less, a byte more, or nothing at all."""
    at = int(draw.integers(len(raw)))
    changed = raw[:at] + bytes([raw[at] ^ 1 << int(draw.integers(8))]) + raw[at + 1 :]
    return [changed, changed, changed, raw[:-1], raw + b"\0", b""][int(draw.integers(6))]


def by_client(round_: Round, client: str, draw: Generator) -> Submission:
    kind = draw.random()
    if kind < 0.6:
        return honest(round_, client, draw)
    if kind < 0.8:
        return cheating(round_, client, draw)
    name = str(draw.choice(["header", "part_a", "part_b"]))
    sent = honest(round_, client, draw)
    return replace(sent, **{name: spoilt(getattr(sent, name), draw)})


def by_server(given: Table, draw: Generator) -> Table:
    """The messages of a server that lies, in one round of five."""
    if draw.random() < 0.8:
        return given
    name = str(draw.choice(["tally_a", "tally_b", "share_a", "share_b"]))
    return {**given, name: spoilt(bytes.fromhex(given[name]), draw).hex()}


def test_random_rounds() -> None:
    _agree(range(60))


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, ROUNDS, AT_ONCE))
def test_ten_thousand_random_rounds(first: int) -> None:
    _agree(range(first, first + AT_ONCE))


def _agree(seeds: range) -> None:
    for seed in seeds:
        draw = np.random.default_rng(seed)
        round_ = random_round(draw)
        senders = [name for name in CLIENTS if draw.random() < 0.6]
        selected = [name for name in CLIENTS if draw.random() < 0.9]
        sent = {name: by_client(round_, name, draw) for name in senders}
        given = by_server(transcript(round_, sent, selected), draw)
        assert verifier.expected("round", given) == expected("round", given), seed
