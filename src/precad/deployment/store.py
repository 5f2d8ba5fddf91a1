"""What a server may not forget: one SQLite file, written to the disk before any byte that depends on it leaves.

A round's state is not stored: its inputs are, and :mod:`precad.deployment.replay` replays them. ``pins`` is the durable
form of :class:`precad.mpc.single_use.Pins`: the first value of each kind stands for ever, in this process and in every
later one. Updates' shares, seeds and sealed parts are overwritten with zeros when their round ends.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from precad import databases
from precad.deployment.disk import OWNER, check_owner, claim, connect, in_words, transaction
from precad.deployment.sealing import EpochKey
from precad.deployment.task import Task
from precad.deployment.transport import Exchange
from precad.errors import ProtocolError
from precad.mpc.prg import Digest
from precad.mpc.secret import Redacted, Secret
from precad.privacy.ledger import SCHEMA as LEDGER
from precad.privacy.ledger import parse_names
from precad.protocol.digests import model_digest
from precad.protocol.update import Model

_Found = TypeVar("_Found")


class Status(Enum):
    """How far a round has come."""

    OPEN = "open"
    """Submissions may come."""
    CLOSED = "closed"
    REVEALED = "revealed"
    """This server's noisy share may have left: the round can only go forward."""
    OPENED = "opened"
    """The next model is there; the shares are erased."""
    SETTLED = "settled"
    """Both servers have signed the same receipt."""
    ABANDONED = "abandoned"


class Pin(StrEnum):
    """What a server pins in a round, beside the digests of the other's messages (:func:`digest_of_theirs`)."""

    BEGIN = "begin"
    """At B: A's message that began the round."""
    BEGUN = "begun"
    """B's answer to it."""
    THEIR_CLOSE = "close"
    """The list of submissions that the other server closed with."""
    DRAWN = "drawn"
    """The secret that this server's nonce and noise come from: drawn when the round begins, erased when it ends."""
    NONCES = "nonces"
    """H of both servers' commitments to their nonces, which every header of the round names."""
    THEIR_NONCE = "their half"
    """The other server's half of the challenge."""
    VALID = "valid"
    """The clients whose updates are within their bounds."""
    OWN_TALLY = "own tally"
    """The commitment to this server's noisy share, and to its list of valid clients."""
    OWN_SHARE = "own share"
    """The noisy share itself: its noise is drawn once."""
    THEIR_TALLY = "tally"
    """The other server's commitment."""
    EVENTS = "events"
    """What the receipt of the round says."""


def digest_of_theirs(what: Exchange) -> str:
    """The name of the pin that holds the digest of the other server's message in an exchange."""
    return f"their {what.value}"


@dataclass(frozen=True)
class RoundRow:
    """A round as it was begun, and its status."""

    number: int
    model: Digest
    selected: frozenset[str]
    status: Status


@dataclass(frozen=True, repr=False)
class Kept(Redacted):
    """A submission that was accepted."""

    client: str
    header: bytes
    signature: bytes
    part: bytes
    relayed: bytes
    """At A, the part that is sealed to B."""


class Store:
    """An open store. Each method is one transaction: done for ever when it returns, or not at all.

    The task's budget is checked when the store is made; a store that is opened again starts without the accountant.

    ``durable=False`` is for simulations: see :func:`connect`.
    """

    def __init__(self, path: Path, task: Task, party: str, *, durable: bool = True) -> None:
        self._lock = threading.RLock()
        self._connection = connect(path, _SCHEMA, durable=durable)
        claim(self._connection, path, "store", task, party, _SCHEMA)

    @classmethod
    def look(cls, path: Path, task: Task, party: str, ask: Callable[["Store"], _Found]) -> _Found:
        """What ``ask`` finds in a party's store, which stays as it is, and in use: it may only read."""

        def read(connection: sqlite3.Connection) -> _Found:
            store = cls.__new__(cls)
            store._lock, store._connection = threading.RLock(), connection
            check_owner(connection, path, "store", task, party)
            return ask(store)

        with in_words():
            return databases.look(path, (OWNER, *_SCHEMA), read, LEDGER)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def together(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """All that is written inside is one transaction; one inside another is a part of it."""
        with self._lock, in_words():
            inside: bool = self._connection.in_transaction
            with nullcontext() if inside else transaction(self._connection):
                yield self._connection.execute

    def start_from(self, model: Model) -> None:
        """Take the initial model, unless there is a later one. What a crash left in the log file is taken out of it."""
        with self.together() as execute:
            execute("INSERT OR IGNORE INTO model VALUES (0, ?, ?, ?, ?)", _columns(model))
        self._wipe()

    def model(self) -> NDArray[np.float64]:
        """The parameters of the current model."""
        return self.optimised().theta

    def optimised(self) -> Model:
        """The current model, with what its optimiser remembers."""
        ((*raw, steps),) = self._rows("SELECT parameters, first, second, steps FROM model", bytes, bytes, bytes, int)
        theta, first, second = (np.frombuffer(vector, np.float64) for vector in raw)
        return Model(theta, first, second, steps)

    def begin(self, number: int, selected: Iterable[str]) -> RoundRow:
        """Begin a round from the current model. What was pinned in earlier rounds, now final, is forgotten."""
        names = sorted(selected)
        with self.together() as execute:
            model = model_digest(self.model())
            row = (number, model, json.dumps(names), Status.OPEN.value)
            execute("DELETE FROM pins WHERE round < ?", (number,))
            execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", row)
            self.pin(number, {Pin.DRAWN: Secret.fresh().value})
        self._wipe()
        return RoundRow(number, model, frozenset(names), Status.OPEN)

    def last_round(self) -> RoundRow | None:
        """The round that was begun last."""
        for row in self._rows("SELECT * FROM rounds ORDER BY number DESC LIMIT 1", int, bytes, str, str):
            return RoundRow(row[0], Digest(row[1]), frozenset(parse_names(row[2])), Status(row[3]))
        return None

    def opened_rounds(self) -> int:
        """How many rounds were opened, or can only be opened."""
        done = (Status.REVEALED.value, Status.OPENED.value, Status.SETTLED.value)
        return int(self._one("SELECT count(*) FROM rounds WHERE status IN (?, ?, ?)", *done)[0])

    def closed_rounds(self) -> set[int]:
        """The rounds that were closed, and not abandoned."""
        others = (Status.OPEN.value, Status.ABANDONED.value)
        with self._lock, in_words():
            rows = self._connection.execute("SELECT number FROM rounds WHERE status NOT IN (?, ?)", others)
            return {number for (number,) in rows}

    def advance(self, number: int, status: Status) -> None:
        """Move a round on."""
        with self.together() as execute:
            execute("UPDATE rounds SET status = ? WHERE number = ?", (status.value, number))

    def keep(self, number: int, kept: Kept, header: Digest) -> None:
        """Keep a submission, and its header's digest for ever."""
        with self.together() as execute:
            if execute("SELECT 1 FROM seen WHERE header = ?", (header,)).fetchone():
                raise ProtocolError("a header that was seen before")
            execute("INSERT INTO seen VALUES (?, ?)", (header, number))
            values = (number, kept.client, kept.header, kept.signature, kept.part, kept.relayed)
            execute("INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?)", values)

    def replace_relayed(self, number: int, client: str, relayed: bytes) -> None:
        """Take the part for B from a submission that came again: A cannot tell whether the first one was damaged."""
        with self.together() as execute:
            execute("UPDATE submissions SET relayed = ? WHERE round = ? AND client = ?", (relayed, number, client))

    def headers(self, number: int) -> dict[str, bytes]:
        """The headers that were kept, by client."""
        with self._lock, in_words():
            headers = "SELECT client, header FROM submissions WHERE round = ? ORDER BY client"
            return dict(self._connection.execute(headers, (number,)))

    def kept(self, number: int, clients: Iterable[str]) -> Iterator[Kept]:
        """The submissions of these clients, one at a time."""
        for client in clients:
            row = self._one("SELECT * FROM submissions WHERE round = ? AND client = ?", number, client)
            if row is None:
                raise ProtocolError("a submission that was not kept")
            yield Kept(*row[1:])

    def pinned(self, number: int, what: str) -> bytes | None:
        """What was pinned in a round."""
        row = self._one("SELECT value FROM pins WHERE round = ? AND what = ?", number, what)
        return None if row is None else bytes(row[0])

    def pin(self, number: int, values: dict[str, bytes]) -> None:
        """Pin all of these, or none; one that was another before is a ``ProtocolError``, for ever."""
        with self.together() as execute:
            for what, value in values.items():
                execute("INSERT OR IGNORE INTO pins VALUES (?, ?, ?)", (number, what, value))
                if self.pinned(number, what) != value:
                    raise ProtocolError(f"{what} was another before, and there is no second one in a round")

    def finish(self, number: int, model: Model, pins: dict[str, bytes]) -> None:
        """End a round with its next model: erase its shares and seeds."""
        with self.together() as execute:
            self.pin(number, pins)
            execute("UPDATE model SET parameters = ?, first = ?, second = ?, steps = ?", _columns(model))
            self.advance(number, Status.OPENED)
            execute("DELETE FROM submissions WHERE round = ?", (number,))
            execute("DELETE FROM pins WHERE round = ? AND what = ?", (number, Pin.DRAWN))
        self._wipe()

    def abandon(self, number: int, line: str) -> None:
        """End a round without a model: erase its shares, seeds, nonces and noisy share, and log it."""
        with self.together() as execute:
            execute("INSERT INTO log (round, line) VALUES (?, ?)", (number, line))
            self.advance(number, Status.ABANDONED)
            execute("DELETE FROM submissions WHERE round = ?", (number,))
            execute("DELETE FROM pins WHERE round = ?", (number,))
        self._wipe()

    def epoch_key(self, epoch: int, make: Callable[[], EpochKey]) -> EpochKey:
        """The sealing key of an epoch, a new one if there was none; those of earlier epochs are deleted."""
        row = self._one("SELECT private, announced FROM epochs WHERE epoch = ?", epoch)
        if row is not None:
            return EpochKey(*row)
        key = make()
        with self.together() as execute:
            execute("DELETE FROM epochs WHERE epoch < ?", (epoch,))
            execute("INSERT INTO epochs VALUES (?, ?, ?)", (epoch, key.private, key.announced))
        self._wipe()
        return key

    def settle(self, number: int, line: str, pins: dict[str, bytes], told: dict[str, bytes]) -> None:
        """Add a round's line to the audit log, and keep what each client is to be told: nothing is left to do in it."""
        with self.together() as execute:
            self.pin(number, pins)
            execute("INSERT INTO log (round, line) VALUES (?, ?)", (number, line))
            for client, message in told.items():
                execute("INSERT OR REPLACE INTO told VALUES (?, ?)", (client, message))
            self.advance(number, Status.SETTLED)

    def told(self, client: str) -> bytes | None:
        """What a client is to be told about its last submission."""
        row = self._one("SELECT message FROM told WHERE client = ?", client)
        return None if row is None else bytes(row[0])

    def log(self, after: int = -1) -> list[str]:
        """The audit log, or what is in it about the rounds after one."""
        with self._lock, in_words():
            lines = "SELECT line FROM log WHERE round > ? ORDER BY number"
            return [line for (line,) in self._connection.execute(lines, (after,))]

    def line_of(self, number: int) -> str | None:
        """The line of the audit log about a round."""
        row = self._one("SELECT line FROM log WHERE round = ?", number)
        return None if row is None else str(row[0])

    def note_set_back(self, found: str) -> None:
        """Remember, for ever, that this store was set back."""
        with self.together() as execute:
            execute("INSERT OR IGNORE INTO set_back VALUES (0, ?)", (found,))

    def set_back(self) -> str | None:
        """How it was found that this store was set back, if it was."""
        row = self._one("SELECT found FROM set_back")
        return None if row is None else str(row[0])

    def last_line(self) -> str | None:
        """The last line of the audit log."""
        row = self._one("SELECT line FROM log ORDER BY number DESC LIMIT 1")
        return None if row is None else str(row[0])

    def _one(self, query: str, *values: object) -> Any:
        """The first row that a query finds, or None."""
        with self._lock, in_words():
            return self._connection.execute(query, values).fetchone()

    def _rows(self, query: str, *kinds: type) -> list[Any]:
        """All rows, with values of these types."""
        with self._lock, in_words():
            return databases.typed("the store", self._connection.execute(query), *kinds)

    def _wipe(self) -> None:
        """Deleted content is zeros in the main file (``secure_delete``); this takes it out of the log file too."""
        with self._lock, in_words():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _columns(model: Model) -> tuple[bytes, bytes, bytes, int]:
    return model.theta.tobytes(), model.first.tobytes(), model.second.tobytes(), model.steps


LOG = (
    """CREATE TABLE IF NOT EXISTS log (
        number INTEGER PRIMARY KEY AUTOINCREMENT, round INTEGER NOT NULL UNIQUE, line TEXT NOT NULL)""",
)
"""The table of the audit log."""
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS model (
        id INTEGER PRIMARY KEY CHECK (id = 0), parameters BLOB NOT NULL, first BLOB NOT NULL, second BLOB NOT NULL,
        steps INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS rounds (
        number INTEGER PRIMARY KEY, model BLOB NOT NULL, selected TEXT NOT NULL, status TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS submissions (
        round INTEGER NOT NULL, client TEXT NOT NULL, header BLOB NOT NULL, signature BLOB NOT NULL,
        part BLOB NOT NULL, relayed BLOB NOT NULL, PRIMARY KEY (round, client))""",
    "CREATE TABLE IF NOT EXISTS seen (header BLOB PRIMARY KEY, round INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS pins (
        round INTEGER NOT NULL, what TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (round, what))""",
    "CREATE TABLE IF NOT EXISTS told (client TEXT PRIMARY KEY, message BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS set_back (id INTEGER PRIMARY KEY CHECK (id = 0), found TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, private BLOB NOT NULL, announced BLOB NOT NULL)",
    *LOG,
)
BESIDE_LEDGER = (OWNER, *_SCHEMA)
"""What a server's file holds beside its ledger."""
