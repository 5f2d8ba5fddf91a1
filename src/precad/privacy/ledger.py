"""The ledger: which client took part in which round, for ever, and what that has cost it (PROTOCOL §7).

A client counts a round when it *sends*, before the first byte leaves; a server when it *opens*. One round is one
transaction of SQLite and one link of a hash chain, so a round is in the ledger whole or not at all, is never
counted twice, and no entry can be changed, removed or inserted without breaking every link after it. Who keeps the
last link elsewhere notices a ledger that was cut off or written anew.
"""

import csv
import io
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.mpc.prg import check_name, digest
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary, Terms
from precad.tables import finite


@dataclass(frozen=True)
class Entry:
    """One round."""

    round: int
    participants: tuple[str, ...]
    link: str
    """The hash of this entry and of all before it, in hexadecimal."""


class LedgerError(PrecadError):
    """A ledger that does not fit its task, was tampered with, or cannot be read or written."""


class Ledger:
    """An open ledger. Every method reads or writes the disk; nothing is remembered.

    Threads take turns, processes too; a process that was forked opens the ledger anew. ``durable=False`` is for
    simulations: what is counted then outlives the process, but not a power cut.
    """

    def __init__(self, path: Path, task: str, terms: Terms, *, durable: bool = True) -> None:
        """Open or begin the ledger of the task with this digest, in hexadecimal."""
        if terms != Terms(**{name: getattr(terms, name) for name in _TERMS}):
            raise ValueError(f"a ledger counts one record or client under the noise of two servers, got {terms}")
        self._terms = terms
        self._path = path
        self._turn = threading.Lock()
        self._process = os.getpid()
        with _plain_errors(path):
            # Kept open while the ledger is: a commit is then one write that the disk confirms.
            self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        weakref.finalize(self, self._connection.close)
        with self._transaction() as connection:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT OR IGNORE INTO terms VALUES (0, ?)", (_canonical(task, terms),))
            (self._stored,) = connection.execute("SELECT json FROM terms").fetchone()
        if _read_terms(self._stored) != (task, terms):
            raise LedgerError(f"{path} is the ledger of other terms: {self._stored}")

    @classmethod
    def load(cls, path: Path) -> "Ledger":
        """The ledger at ``path``, with the terms that it was made with."""
        task, terms, _, _ = _look(path)
        return cls(path, task, terms)

    @property
    def terms(self) -> Terms:
        """What a participation costs."""
        return self._terms

    def record(self, round_: int, participants: Iterable[str]) -> Entry:
        """Count a round, durably. The same round again is the same entry; with other participants it is an error."""
        names = tuple(sorted(set(participants)))
        for name in names:
            check_name(name)
        if type(round_) is not int or not 0 <= round_ < 1 << 63:
            raise ValueError(f"round must be a whole number in [0, 2^63), got {round_}")
        with self._transaction() as connection:
            known = connection.execute(
                "SELECT round, participants, link FROM entries WHERE round = ?", (round_,)
            ).fetchone()
            if known is not None:
                entry = _entry(known)
                if entry.participants != names:
                    raise LedgerError(f"round {round_} is in the ledger with other participants")
                return entry
            last = connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1").fetchone()
            link = _link(self._stored, last[0] if last else "", round_, names)
            connection.execute(
                "INSERT INTO entries (round, participants, link) VALUES (?, ?, ?)", (round_, json.dumps(names), link)
            )
            connection.executemany(
                "INSERT INTO counts VALUES (?, 1) ON CONFLICT (client) DO UPDATE SET count = count + 1",
                [(name,) for name in names],
            )
        return Entry(round_, names, link)

    def participations(self) -> dict[str, int]:
        """T_i of every client that took part."""
        with self._mine():
            return dict(self._connection.execute("SELECT client, count FROM counts ORDER BY client"))

    def entries(self) -> list[Entry]:
        """All rounds, in the order in which they were counted."""
        return self._contents()[0]

    def verify(self) -> str:
        """Recompute every link and every count; the last link, or a :class:`LedgerError` that names the first fault."""
        return _check(self._stored, *self._contents())

    def export(self) -> dict[str, Any]:
        """Everything an auditor needs to recompute each figure: terms, rounds, counts, ε, and the last link.

        ε is None where there is none. All is read at one moment, whoever else writes.
        """
        entries, counts = self._contents()
        last = _check(self._stored, entries, counts)
        costs = {
            count: {adversary.value: finite(epsilon(self._terms, adversary, count)) for adversary in Adversary}
            for count in sorted(set(counts.values()))
        }
        return {
            "terms": json.loads(self._stored),
            "rounds": [asdict(entry) for entry in entries],
            "clients": {name: {"participations": count, "epsilon": costs[count]} for name, count in counts.items()},
            "digest": last,
        }

    def export_csv(self) -> str:
        """One line a client: participations, ε against a server, ε against clients; the last link at the end.

        A name that a spreadsheet would take for a formula has an apostrophe before it.
        """
        exported = self.export()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["client", "participations", *(f"epsilon_{adversary.value}" for adversary in Adversary)])
        for name, client in exported["clients"].items():
            shown = f"'{name}" if name[0] in "=+-@'" else name
            costs = (client["epsilon"][adversary.value] for adversary in Adversary)
            writer.writerow([shown, client["participations"], *("none" if cost is None else cost for cost in costs)])
        writer.writerow(["digest", exported["digest"]])
        return out.getvalue()

    def _contents(self) -> tuple[list[Entry], dict[str, int]]:
        """All rounds and all counts, at one moment."""
        with self._mine(), self._connection as connection:
            connection.execute("BEGIN")
            rows = connection.execute("SELECT round, participants, link FROM entries ORDER BY number").fetchall()
            counts = dict(connection.execute("SELECT client, count FROM counts ORDER BY client"))
        return [_entry(row) for row in rows], counts

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing: what is not confirmed by the disk is undone, and an error."""
        with self._mine(), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _mine(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise LedgerError(f"{self._path} was opened before this process was forked: open it again")
        with self._turn, _plain_errors(self._path):
            yield


@dataclass(frozen=True)
class LedgerView:
    """A ledger at one moment. Its links are shown, not recomputed: :meth:`Ledger.verify` does that."""

    terms: Terms
    rounds: tuple[tuple[int, str], ...]
    """(round counted from 0, its participants as a JSON list), in the order in which they were counted."""
    last_link: str
    """Empty before the first round."""


def view(path: Path) -> LedgerView:
    """The ledger at ``path`` as it is now, only looked at: nothing is written, and whoever counts goes on counting."""
    return LedgerView(*_look(path)[1:])


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A file that nobody has open, so without a write-ahead log, is read as the file it is: no other file appears."""
    at_rest = not path.with_name(f"{path.name}-wal").exists()
    way = "mode=ro&immutable=1" if at_rest else "mode=ro"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, isolation_level=None)


_TERMS = ("sigma", "record_rate", "delta", "dim")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS terms (id INTEGER PRIMARY KEY CHECK (id = 0), json TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS entries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        round INTEGER NOT NULL UNIQUE,
        participants TEXT NOT NULL,
        link TEXT NOT NULL
    )""",
    "CREATE TABLE IF NOT EXISTS counts (client TEXT PRIMARY KEY, count INTEGER NOT NULL)",
)


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} cannot be read or written: {error}") from None


def _look(path: Path) -> tuple[str, Terms, tuple[tuple[int, str], ...], str]:
    """The task, the terms, the rounds and the last link of the ledger at ``path``, all at one moment."""
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path}")
    try:
        with closing(connect_to_read(path)) as connection:
            connection.execute("BEGIN")
            (stored,) = connection.execute("SELECT json FROM terms").fetchone()
            rows = connection.execute("SELECT round, participants FROM entries ORDER BY number").fetchall()
            last = connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        return *_read_terms(stored), tuple(rows), last[0] if last else ""
    except (sqlite3.Error, TypeError, LedgerError) as error:
        raise LedgerError(f"{path} is not a ledger that can be read: {error}") from None


def _read_terms(stored: str) -> tuple[str, Terms]:
    try:
        value = json.loads(stored)
        task, terms = value.pop("task"), Terms(**value)
        if type(task) is not str or value.keys() != set(_TERMS):
            raise ValueError("other names, or another type of task")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise LedgerError(f"a ledger's terms are a task and {', '.join(_TERMS)}, got {stored}: {error}") from None
    return task, terms


def _entry(row: tuple[int, str, str]) -> Entry:
    try:
        names = json.loads(row[1])
    except (ValueError, TypeError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LedgerError(f"round {row[0]} was changed: its participants are not a list of names")
    return Entry(row[0], tuple(names), row[2])


def _check(terms: str, entries: list[Entry], claimed: dict[str, int]) -> str:
    """The last link, if every link and every count is what the rounds say."""
    link, counts = "", dict[str, int]()
    for entry in entries:
        link = _link(terms, link, entry.round, entry.participants)
        if entry.link != link:
            raise LedgerError(f"round {entry.round} was changed, or one before it was removed")
        for name in entry.participants:
            counts[name] = counts.get(name, 0) + 1
    for name, count in claimed.items():
        if counts.pop(name, 0) != count:
            raise LedgerError(f"the count of {name} is {count}, which is not what the rounds say")
    if counts:
        raise LedgerError(f"the count of {min(counts)} is missing")
    return link


def _link(terms: str, previous: str, round_: int, participants: tuple[str, ...]) -> str:
    """H(terms, link before, round, participants)."""
    start = digest(b"precad ledger", terms.encode(), previous.encode())
    return digest(b"precad entry", start, str(round_).encode(), *(name.encode() for name in participants)).hex()


def _canonical(task: str, terms: Terms) -> str:
    """As they stand in the file, and so in every link."""
    value = {"task": task} | {name: getattr(terms, name) for name in _TERMS}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
