"""The ledger: which client took part in which round, for ever, and what that has cost it (PROTOCOL §7).

A client counts a round when it *sends*, before the first byte leaves; a server when it *opens*. One round is one
transaction of SQLite and one link of a hash chain, so a round is in the ledger whole or not at all, and is never
counted twice. To change, remove or insert an entry is to compute every link after it anew. Whoever can write the file
can do that: the chain is evidence only beside a last link that somebody else keeps, or files that repeat it.
"""

import csv
import io
import json
import os
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from precad.databases import connect, look, typed
from precad.errors import PrecadError
from precad.files import words_of
from precad.mpc.prg import check_name, digest, digest_of_framed, framed
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary, Terms
from precad.tables import build, finite, parse_json


@dataclass(frozen=True)
class Entry:
    """One round."""

    round: int
    participants: tuple[str, ...]
    link: str
    """The hash of this entry and of all before it, in hexadecimal."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a ledger knows of its run beside the price. None is what it was not told: earlier versions told nothing."""

    unit: str | None = None
    """What ε protects: ``record`` or ``client``."""
    private: bool | None = None
    """Whether nobody can take the noise away: not with a seed."""

    def __post_init__(self) -> None:
        if self.unit not in (None, "record", "client"):
            raise ValueError(f"unit must be record or client, got {self.unit!r}")

    def fits(self, other: "Origin") -> bool:
        """Whether the two do not contradict each other."""
        pairs = ((self.unit, other.unit), (self.private, other.private))
        return all(None in pair or pair[0] == pair[1] for pair in pairs)


UNTOLD = Origin()
"""Of a ledger that was told nothing."""


class LedgerError(PrecadError):
    """A ledger that does not fit its task, was tampered with, or cannot be read or written."""


class Ledger:
    """An open ledger. Every method reads or writes the disk; nothing is remembered.

    Threads take turns, processes too; a process that was forked opens the ledger anew. ``durable=False`` is for
    simulations: what is counted then outlives the process, but not a power cut.
    """

    def __init__(self, path: Path, task: str, terms: Terms, origin: Origin = UNTOLD, *, durable: bool = True) -> None:
        """Open or begin the ledger of the task with this digest, in hexadecimal."""
        if terms != Terms(**{name: getattr(terms, name) for name in _TERMS}):
            raise ValueError(f"a ledger counts one record or client under the noise of two servers, got {terms}")
        self._terms = terms
        self._path = path
        self._turn = threading.Lock()
        self._process = os.getpid()
        with _plain_errors(path):
            # Kept open while the ledger is: a commit is then one write that the disk confirms.
            self._connection = connect(path, SCHEMA, durable=durable)
        weakref.finalize(self, self._connection.close)
        with self._transaction() as connection:
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT OR IGNORE INTO terms VALUES (0, ?)", (_canonical(task, terms, origin),))
            (self._stored,) = connection.execute("SELECT json FROM terms").fetchone()
        stored_task, stored_terms, self._origin = _read_terms(self._stored)
        if (stored_task, stored_terms) != (task, terms) or not origin.fits(self._origin):
            raise LedgerError(f"{path} is the ledger of other terms: {self._stored}")

    @property
    def terms(self) -> Terms:
        """What a participation costs."""
        return self._terms

    @property
    def origin(self) -> Origin:
        """What the ledger was told of its run when it began."""
        return self._origin

    def close(self) -> None:
        """Leave a file at rest: all that was counted is in it, and nothing of SQLite's is beside it."""
        with self._mine():
            self._connection.close()

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
                    raise LedgerError(f"round {round_ + 1} is in the ledger with other participants")
                return entry
            last = connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1").fetchone()
            link = link_of(self._stored, last[0] if last else "", round_, names)
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

    def contents(self) -> "Contents":
        """All of it, at one moment."""
        with self._mine(), self._connection as connection:
            connection.execute("BEGIN")
            return _read(connection)

    def entries(self) -> list[Entry]:
        """All rounds, in the order in which they were counted."""
        return self.contents().entries()

    def verify(self) -> str:
        """See :meth:`Contents.verify`."""
        return self.contents().verify()

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
class Contents:
    """All that a ledger's file holds, at one moment."""

    stored: str
    """The terms as they stand in the file, and so in every link."""
    rows: tuple[tuple[int, str, str], ...]
    """(round counted from 0, its participants as a JSON list, link), in the order in which they were counted."""
    counts: Mapping[str, int]
    """T_i of every client that took part, as the file claims it."""

    @cached_property
    def task(self) -> str:
        """The digest of the task, in hexadecimal."""
        return _read_terms(self.stored)[0]

    @cached_property
    def terms(self) -> Terms:
        """What a participation costs."""
        return _read_terms(self.stored)[1]

    @cached_property
    def origin(self) -> Origin:
        """What the ledger was told of its run when it began."""
        return _read_terms(self.stored)[2]

    @property
    def last_link(self) -> str:
        """Empty before the first round."""
        return self.rows[-1][2] if self.rows else ""

    def entries(self) -> list[Entry]:
        """All rounds, in the order in which they were counted."""
        return [_entry(row) for row in self.rows]

    def verify(self) -> str:
        """Recompute every link and every count; the last link, or a :class:`LedgerError` that names the first fault."""
        return _check(self.stored, self.entries(), self.counts)

    def export(self) -> dict[str, Any]:
        """Everything an auditor needs to recompute each figure: terms, rounds, counts, ε, and the last link.

        ε is None where there is none.
        """
        last = self.verify()
        costs = {
            count: {adversary.value: finite(epsilon(self.terms, adversary, count)) for adversary in Adversary}
            for count in sorted(set(self.counts.values()))
        }
        return {
            "terms": parse_json(self.stored),
            "rounds": [asdict(entry) for entry in self.entries()],
            "clients": {
                name: {"participations": count, "epsilon": costs[count]} for name, count in self.counts.items()
            },
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


def read(path: Path, beside: Iterable[str] = ()) -> Contents:
    """The ledger at ``path`` as it is now. Neither it nor any other file is changed, and whoever counts goes on.

    Args:
        path: Its file.
        beside: The statements of the other tables that the file may have, where a party of a task keeps more in it.

    Raises:
        LedgerError: It is not there, is damaged, or has something in it that is not of a ledger.
    """
    try:
        contents = look(path, SCHEMA, _read, beside)
        _read_terms(contents.stored)
    except FileNotFoundError:
        raise LedgerError(f"there is no ledger at {path}") from None
    except (sqlite3.Error, OSError, LedgerError) as error:
        raise LedgerError(f"{path} is not a ledger that can be read: {words_of(error)}") from None
    return contents


def read_verified(path: Path, beside: Iterable[str] = ()) -> Contents:
    """The same, with every link and every count recomputed; a :class:`LedgerError` that names file and fault."""
    contents = read(path, beside)
    try:
        contents.verify()
    except LedgerError as error:
        raise LedgerError(f"the chain of {path} does not hold: {error}") from None
    return contents


_TERMS = ("sigma", "record_rate", "delta", "dim")
_ORIGIN = ("unit", "private")
SCHEMA = (
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
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"the ledger {path} cannot be read or written: {words_of(error)}") from None


def _read(connection: sqlite3.Connection) -> Contents:
    terms = typed("the terms", connection.execute("SELECT json FROM terms"), str)
    rows = typed(
        "a round", connection.execute("SELECT round, participants, link FROM entries ORDER BY number"), int, str, str
    )
    counts = typed("a count", connection.execute("SELECT client, count FROM counts ORDER BY client"), str, int)
    if not terms:
        raise LedgerError("it has no terms")
    return Contents(terms[0][0], tuple(rows), dict(counts))


@dataclass(frozen=True)
class _Stored:
    """A ledger's terms as they stand in the file."""

    task: str
    sigma: float
    record_rate: float
    delta: float
    dim: int


def _read_terms(stored: str) -> tuple[str, Terms, Origin]:
    try:
        table = parse_json(stored)
        if not isinstance(table, dict):
            raise ValueError("it must be a table")
        origin = {name: table.pop(name) for name in _ORIGIN if name in table}
        value, known = build(_Stored, table, "it"), build(Origin, origin, "a ledger")
        return value.task, Terms(**{name: getattr(value, name) for name in _TERMS}), known
    except ValueError as error:
        words = f"a ledger's terms are a task and {', '.join(_TERMS)}, got {stored[:400]}"
        raise LedgerError(f"{words}: {error}") from None


def _entry(row: tuple[int, str, str]) -> Entry:
    try:
        names = parse_names(row[1])
    except ValueError:
        raise LedgerError(f"round {row[0] + 1} was changed: its participants are not a list of names") from None
    if row[0] < 0:
        raise LedgerError(f"a round was changed: it has the number {row[0]}")
    return Entry(row[0], names, row[2])


@lru_cache(64)  # with q = 1 all rounds are alike
def parse_names(text: str) -> tuple[str, ...]:
    """The names in a JSON list; what is none is a ``ValueError``."""
    names = parse_json(text)
    if not isinstance(names, list):
        raise ValueError("it must be a list of names")
    for name in names:
        check_name(name)
    return tuple(names)


def _check(terms: str, entries: list[Entry], claimed: Mapping[str, int]) -> str:
    """The last link, if every link and every count is what the rounds say."""
    link, counts = "", Counter[str]()
    for entry in entries:
        link = link_of(terms, link, entry.round, entry.participants)
        if entry.link != link:
            terms_too = ", or the terms were" if entry is entries[0] else ""
            raise LedgerError(f"round {entry.round + 1} was changed{terms_too}, or one before it was removed")
        counts.update(entry.participants)
    for name, count in claimed.items():
        if counts.pop(name, 0) != count:
            raise LedgerError(f"the count of {name} is {count}, which is not what the rounds say")
    if counts:
        raise LedgerError(f"the count of {min(counts)} is missing")
    return link


def link_of(terms: str, previous: str, round_: int, participants: tuple[str, ...]) -> str:
    """H(terms, link before, round, participants)."""
    start = digest(b"precad ledger", terms.encode(), previous.encode())
    names = b"".join(map(_framed_name, participants))
    return digest_of_framed(b"precad entry", framed(start), framed(str(round_).encode()), names).hex()


@lru_cache(maxsize=1 << 14)
def _framed_name(name: str) -> bytes:
    return framed(name.encode())


def _canonical(task: str, terms: Terms, origin: Origin) -> str:
    """As they stand in the file, and so in every link."""
    known = {name: value for name, value in asdict(origin).items() if value is not None}
    value = {"task": task} | known | {name: getattr(terms, name) for name in _TERMS}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
