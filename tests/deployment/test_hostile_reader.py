"""A reader with server A's whole disk, keys included, at every moment, and all of its traffic: what it cannot find.

The reader looks for a marked update in any form in which it could stand there. Each search is also done where the thing
is meant to be, so that a search that finds nothing means something.
"""

import base64
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.deployment import sealing
from precad.deployment.store import Store
from precad.mpc import field as fields
from precad.mpc.secret import Secret
from precad.protocol import states, submission
from precad.protocol.codec import Blob
from precad.protocol.messages import Close, Nonce, PartA, PartB, Sealed, Tally, decode, encode
from precad.protocol.params import Round
from precad.protocol.states import Accepted, Agreed, Checking, Closing, Role, Tallied
from precad.protocol.submission import Submission
from tests.deployment import world
from tests.deployment.consortium import Consortium, Crash

UPDATE = np.linspace(0.011, 1.7, world.DIM) * np.where(np.arange(world.DIM) % 3, 1, -1)
WORLD = world.make()


@dataclass
class Reader:
    """All that server A has ever had on its disk, and all that it has sent or received."""

    parties: Consortium
    disk: list[bytes] = field(default_factory=list)

    def look(self, _party: str = "", _what: str = "") -> None:
        self.disk += self.now()

    def now(self) -> list[bytes]:
        return [path.read_bytes() for path in self.parties.folder.glob("alpha*")]

    def traffic(self) -> list[bytes]:
        return [message for messages in self.parties.wire.values() for message in messages]


@dataclass
class Known:
    """What the client drew and sent, from its own memory."""

    x: NDArray[np.int64]
    round: Round
    sent: Submission

    @property
    def part_a(self) -> PartA:
        return decode(self.sent.part_a, PartA, **submission.part_a_sizes(world.PARAMS))

    @property
    def part_b(self) -> PartB:
        return decode(self.sent.part_b, PartB)

    def plain(self) -> dict[str, bytes]:
        """The update as floats, before and after the grid; its integers, signed and in the field."""
        scale = 2.0**-self.round.params.fractional_bits
        return {
            "float64": UPDATE.tobytes(),
            "float32": UPDATE.astype(np.float32).tobytes(),
            "on the grid": (self.x * scale).tobytes(),
            "on the grid, float32": (self.x * scale).astype(np.float32).tobytes(),
            "int64": self.x.tobytes(),
            "int32": self.x.astype(np.int32).tobytes(),
            "field": fields.embed(self.x).tobytes(),
            "decimal": ",".join(map(str, self.x[:8])).encode(),
        }

    def of_b(self) -> dict[str, bytes]:
        """What is for B's eyes: with any of it A could subtract. The part ends with A's commitment, which is public."""
        share = submission.share_of(self.round, "bank", self.part_b)
        assert np.array_equal(fields.lift(fields.add(self.part_a.share, share))[: world.DIM], self.x)
        masks = submission.masks_of(self.round, "bank", self.part_b.seed)
        found = {"seed": self.part_b.seed.value, "salt": self.part_b.salt.value}
        return {**found, "share": share.tobytes(), "masks": masks.tobytes(), "part": self.sent.part_b[:-32]}

    def of_a(self) -> dict[str, bytes]:
        """What A must hold while the round is open, and not after."""
        return {"share": self.part_a.share.tobytes(), "tail": self.part_a.tail.tobytes(), "part": self.sent.part_a}


def found(needles: dict[str, bytes], places: list[bytes]) -> set[str]:
    """Those of which a piece of 24 bytes, at any of a few offsets, is in a place, as it is or written as text."""
    hits = set()
    for name, needle in needles.items():
        assert len(needle) >= 24
        pieces = [needle[at : at + 24] for at in range(0, len(needle) - 23, max(8, len(needle) // 40))]
        forms = [form for piece in pieces for form in (piece, piece.hex().encode(), base64.b64encode(piece))]
        if any(form in place for form in forms for place in places):
            hits.add(name)
    return hits


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Consortium]:
    consortium = Consortium(tmp_path, WORLD)
    WORLD.task.save(tmp_path / "task.json")
    WORLD.servers[Role.A].save(tmp_path)  # A's disk has A's key
    yield consortium
    consortium.close()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Known]:
    """Every submission of the bank, as the client's memory had it."""
    known: list[Known] = []
    real = submission.submit

    def submit(round_: Round, client: str, x: NDArray[np.int64], head: Blob) -> Submission:
        sent = real(round_, client, x, head=head)
        if client == "bank":
            known.append(Known(x, round_, sent))
        return sent

    monkeypatch.setattr(submission, "submit", submit)
    return known


def play(reader: Reader) -> None:
    parties = reader.parties
    parties.hook = reader.look
    parties.a.start_round()
    for name in sorted(parties.a.selected()):
        assert parties.a.submit(parties.reply(name, UPDATE if name == "bank" else None)) is None
        reader.look()
    parties.a.finish_round()
    reader.look()


def test_the_marked_update_is_nowhere(parties: Consortium, drawn: list[Known]) -> None:
    reader = Reader(parties)
    play(reader)
    (known,) = drawn
    every = [*reader.disk, *reader.traffic()]
    assert found(known.plain(), every) == set()
    assert found(known.of_b(), every) == set()
    assert found(known.of_a(), reader.disk) == set(known.of_a()), "the search finds what is there"
    assert found(known.of_a(), reader.now()) == set(), "A's shares are erased"
    assert found(known.of_a(), reader.traffic()) == set(), "and never travelled in the clear"


def test_the_search_finds_what_b_holds(parties: Consortium, drawn: list[Known]) -> None:
    reader = Reader(parties)
    beta: list[bytes] = []
    parties.hook = lambda _party, _what: beta.extend(path.read_bytes() for path in parties.folder.glob("beta.db*"))
    parties.a.start_round()
    parties.a.submit(parties.reply("bank", UPDATE))
    parties.a.finish_round()
    assert {"seed", "salt", "part"} <= found(drawn[0].of_b(), beta)
    assert found(drawn[0].of_b(), [path.read_bytes() for path in parties.folder.glob("beta.db*")]) == set()
    assert found(drawn[0].plain(), [*drawn[0].plain().values()]) == set(drawn[0].plain())
    assert found(drawn[0].of_b(), reader.now()) == set()


def test_recorded_traffic_stays_closed(parties: Consortium, drawn: list[Known]) -> None:
    """With A's key of the epoch a reader opens A's own part, and never B's; after the epoch, neither."""
    reader = Reader(parties)
    play(reader)
    (reply,) = parties.wire[0, "reply", "bank"]
    sealed, task = decode(reply, Sealed), parties.task

    def opened() -> list[bytes | None]:
        with sqlite3.connect(parties.folder / "alpha.db") as connection:
            keys = [key for (key,) in connection.execute("SELECT private FROM epochs")]
        connection.close()
        parts = ((sealed.part_a, task.server_a), (sealed.part_b, task.server_a), (sealed.part_b, task.server_b))
        return [sealing.unseal(key, part, sealed.header, server) for key in keys for part, server in parts]

    assert opened() == [drawn[0].sent.part_a, None, None]
    for _ in range(2):
        parties.round()
    assert set(opened()) == {None}


def test_the_seeds_of_the_noise_are_nowhere(parties: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither server's is ever written or sent: nobody can take the noise off later. The nonces are: they are found."""
    seeds: list[bytes] = []
    nonces: list[bytes] = []
    aggregate, agree = states.aggregate, states.agree

    def keep_seed(judged: Checking, accepted: Iterable[Accepted], seed: Secret) -> tuple[Tallied, Tally]:
        seeds.append(seed.value)
        return aggregate(judged, accepted, seed)

    def keep_nonce(closing: Closing, peer: Close, nonce: Secret) -> tuple[Agreed, Nonce]:
        nonces.append(nonce.value)
        return agree(closing, peer, nonce)

    monkeypatch.setattr(states, "aggregate", keep_seed)
    monkeypatch.setattr(states, "agree", keep_nonce)
    reader = Reader(parties)
    play(reader)
    assert len(seeds) == 2
    beta = [path.read_bytes() for path in parties.folder.glob("beta.db*")]
    assert found({value.hex(): value for value in seeds}, [*reader.disk, *reader.traffic(), *beta]) == set()
    sought = {value.hex(): value for value in nonces}
    assert found(sought, reader.traffic()) == set(sought)


def test_a_crash_before_the_wipe_leaves_nothing(
    parties: Consortium, drawn: list[Known], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dies when the round is opened and its log file still holds the shares; the next start takes them out."""
    reader = Reader(parties)
    parties.a.start_round()
    parties.a.submit(parties.reply("bank", UPDATE))
    real = Store.finish

    def finish(store: Store, *arguments: object) -> None:
        if store is parties.b.store:
            return real(store, *arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(Store, "_wipe", lambda _store: None)
        real(store, *arguments)  # type: ignore[arg-type]
        raise Crash("alpha")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "finish", finish)
        with pytest.raises(Crash):
            parties.a.finish_round()
    assert found(drawn[0].of_a(), reader.now())
    monkeypatch.undo()
    again = Consortium(parties.folder / "again", WORLD)
    again.folder.mkdir()
    for path in parties.folder.glob("alpha.db*"):  # as a kill leaves them: to close in good order would tidy up
        (again.folder / path.name).write_bytes(path.read_bytes())
    assert again.a.store.opened_rounds() == 1
    assert found(drawn[0].of_a(), Reader(again).now()) == set()
    again.close()


def test_receipts_and_refusals_hold_no_secret(parties: Consortium, drawn: list[Known]) -> None:
    """What is kept for ever: the log, the ledger, what clients are told, and every word that a server says."""
    reader = Reader(parties)
    play(reader)
    kept = "\n".join(parties.a.store.log()).encode() + (parties.a.told("bank") or b"")
    words = repr((drawn[0].part_a, drawn[0].part_b, parties.a, parties.a.last())).encode()
    needles = {**drawn[0].plain(), **drawn[0].of_a(), **drawn[0].of_b()}
    assert found(needles, [kept, words]) == set()
    assert encode(drawn[0].part_b) == drawn[0].sent.part_b
