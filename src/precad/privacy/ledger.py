"""The ledger: which client took part in which round, for ever, and what that has cost it (PROTOCOL §7).

A client counts a round when it *sends*, before the first byte leaves; a server when it *opens*. One round is one
transaction of SQLite and one link of a hash chain, so a round is in the ledger whole or not at all, is never
counted twice, and no entry can be changed, removed or inserted without breaking every link after it. Who keeps the
last link elsewhere notices a ledger that was cut off or written anew.

The accountant is loaded when a figure is asked for, not before: a client that only counts starts in half the time.
"""

import csv
import io
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precad.errors import PrecadError
from precad.mpc.prg import Digest, check_name, digest

if TYPE_CHECKING:
    from precad.privacy.accounting import Adversary


@dataclass(frozen=True)
class Terms:
    """What a participation costs: the same for all rounds of a task. A change is a new task, and a new ledger."""

    task: str
    """The task's digest, in hexadecimal."""
    dim: int
    sigma: float
    record_rate: float
    delta: float


@dataclass(frozen=True)
class Entry:
    """One round."""

    round: int
    participants: tuple[str, ...]
    link: str
    """The hash of this entry and of all before it, in hexadecimal."""


class LedgerError(PrecadError):
    """A ledger that does not fit its task, or was tampered with."""


class Ledger:
    """An open ledger. Every method reads or writes the disk; nothing is remembered."""

    def __init__(self, path: Path, terms: Terms) -> None:
        self._terms = terms
        self._path = path
        with closing(self._connect()) as connection, connection:
            connection.executescript(_SCHEMA)
            connection.execute("INSERT OR IGNORE INTO terms VALUES (0, ?)", (_canonical(asdict(terms)),))
            (stored,) = connection.execute("SELECT json FROM terms").fetchone()
        if stored != _canonical(asdict(terms)):
            raise LedgerError(f"{path} is the ledger of other terms: {stored}")

    @classmethod
    def load(cls, path: Path) -> "Ledger":
        """The ledger at ``path``, with the terms that it was made with."""
        if not path.is_file():
            raise LedgerError(f"there is no ledger at {path}")
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                (stored,) = connection.execute("SELECT json FROM terms").fetchone()
            return cls(path, Terms(**json.loads(stored)))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise LedgerError(f"{path} is not a ledger: {error}") from None

    @property
    def terms(self) -> Terms:
        """What a participation costs."""
        return self._terms

    def record(self, round_: int, participants: Iterable[str]) -> Entry:
        """Count a round, durably. The same round again is the same entry; with other participants it is an error."""
        names = tuple(sorted(set(participants)))
        for name in names:
            check_name(name)
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                known = connection.execute(
                    "SELECT round, participants, link FROM entries WHERE round = ?", (round_,)
                ).fetchone()
                if known is not None:
                    entry = _entry(known)
                    if entry.participants != names:
                        raise LedgerError(f"round {round_} is in the ledger with other participants")
                    return entry
                last = connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1").fetchone()
                link = _link(self._terms, last[0] if last else "", round_, names)
                connection.execute(
                    "INSERT INTO entries (round, participants, link) VALUES (?, ?, ?)",
                    (round_, json.dumps(names), link),
                )
                connection.executemany(
                    "INSERT INTO counts VALUES (?, 1) ON CONFLICT (client) DO UPDATE SET count = count + 1",
                    [(name,) for name in names],
                )
        return Entry(round_, names, link)

    def participations(self) -> dict[str, int]:
        """T_i of every client that took part."""
        with closing(self._connect()) as connection:
            return dict(connection.execute("SELECT client, count FROM counts ORDER BY client"))

    def epsilon(self, adversary: "Adversary", participations: int) -> float:
        """What so many participations cost, by the rigorous accountant, the sampler's distance included."""
        from precad.privacy.accounting import PldAccountant, epsilon_as_run, record_mechanism

        terms = self._terms
        mechanism = record_mechanism(
            adversary, sigma=terms.sigma, record_rate=terms.record_rate, participations=participations
        )
        return epsilon_as_run(PldAccountant(interval=1e-3), mechanism, terms.delta, terms.dim)

    def would_exceed(self, clients: Iterable[str], budget: float) -> frozenset[str]:
        """Those of ``clients`` whose next round would cost more than ``budget`` against a server: they sit out."""
        from precad.privacy.accounting import Adversary

        counts = self.participations()
        names = list(clients)
        costs = {count: self.epsilon(Adversary.SERVER, count + 1) for count in {counts.get(name, 0) for name in names}}
        return frozenset(name for name in names if costs[counts.get(name, 0)] > budget)

    def entries(self) -> Iterator[Entry]:
        """All rounds, in the order in which they were counted."""
        with closing(self._connect()) as connection:
            for row in connection.execute("SELECT round, participants, link FROM entries ORDER BY number"):
                yield _entry(row)

    def verify(self) -> str:
        """Recompute every link and every count; the last link, or a :class:`LedgerError` that names the first fault."""
        link, counts = "", dict[str, int]()
        for entry in self.entries():
            link = _link(self._terms, link, entry.round, entry.participants)
            if entry.link != link:
                raise LedgerError(f"round {entry.round} was changed, or one before it was removed")
            for name in entry.participants:
                counts[name] = counts.get(name, 0) + 1
        for name, count in self.participations().items():
            if counts.pop(name, 0) != count:
                raise LedgerError(f"the count of {name} is {count}, which is not what the rounds say")
        if counts:
            raise LedgerError(f"the count of {min(counts)} is missing")
        return link

    def export(self) -> dict[str, Any]:
        """Everything an auditor needs to recompute each figure: terms, rounds, counts, ε, and the last link."""
        from precad.privacy.accounting import Adversary

        last = self.verify()
        counts = self.participations()
        costs = {
            count: {adversary.value: self.epsilon(adversary, count) for adversary in Adversary}
            for count in sorted(set(counts.values()))
        }
        return {
            "terms": asdict(self._terms),
            "rounds": [asdict(entry) for entry in self.entries()],
            "clients": {name: {"participations": count, "epsilon": costs[count]} for name, count in counts.items()},
            "digest": last,
        }

    def export_csv(self) -> str:
        """One line a client: participations, ε against a server, ε against clients; the last link at the end."""
        from precad.privacy.accounting import Adversary

        exported = self.export()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["client", "participations", *(f"epsilon_{adversary.value}" for adversary in Adversary)])
        for name, client in exported["clients"].items():
            writer.writerow([name, client["participations"], *(client["epsilon"][a.value] for a in Adversary)])
        writer.writerow(["digest", exported["digest"]])
        return out.getvalue()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection


_SCHEMA = """
CREATE TABLE IF NOT EXISTS terms (id INTEGER PRIMARY KEY CHECK (id = 0), json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    round INTEGER NOT NULL UNIQUE,
    participants TEXT NOT NULL,
    link TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS counts (client TEXT PRIMARY KEY, count INTEGER NOT NULL);
"""


def _entry(row: tuple[int, str, str]) -> Entry:
    return Entry(row[0], tuple(json.loads(row[1])), row[2])


def _link(terms: Terms, previous: str, round_: int, participants: tuple[str, ...]) -> str:
    """H(terms, link before, round, participants)."""
    start: Digest = digest(b"precad ledger", _canonical(asdict(terms)).encode(), previous.encode())
    return digest(b"precad entry", start, str(round_).encode(), *(name.encode() for name in participants)).hex()


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
