"""What several runs on the same data cost together: ledgers of many kinds, composed (PROTOCOL §7).

A run is given as its folder, or as the folder of a server or a client of a task, or as a ledger's file or its export.
Clients of the same name are taken to hold the same data. Whatever would make a total too small is refused by name: a
seed, another protocol than PRECAD, a ledger that was changed or that lacks rounds, and the same rounds given twice.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from precad.deployment import config as settings
from precad.deployment import task as tasks
from precad.deployment.client import BESIDE_LEDGER as OF_CLIENT
from precad.deployment.data_file import FILE as DATA_FILE
from precad.deployment.store import BESIDE_LEDGER as OF_SERVER
from precad.errors import PrecadError
from precad.files import read_text
from precad.privacy import ledger
from precad.privacy.epsilon import total
from precad.privacy.ledger import Contents
from precad.privacy.terms import Adversary, Spent, Terms
from precad.protocol.params import Params, Unit
from precad.report.run import read_run
from precad.settings import Protocol
from precad.tables import build, finite, parse_json


class TotalError(PrecadError):
    """Runs over which no total holds, and why."""


@dataclass(frozen=True)
class Book:
    """One run, as far as its cost goes."""

    name: str
    """As the person called it."""
    contents: Contents
    unit: Unit
    bounds: Params | None = None
    """Unknown where a ledger was given without its run."""
    results: tuple[tuple[str | None, float | None], ...] = ()
    """Of each round of a run of `precad train`: the next model's digest, and the norm of the noisy sum."""
    randomness: str | None = None
    """Which randomness made it, where a run says so: that of its copies is the same."""
    deployed: bool = False
    """Whether two servers and clients of a task counted: they all count the same rounds."""

    def terms(self, unit: Unit, delta: float, group: int) -> Terms:
        """What a participation costs, in this unit and at this δ."""
        own = self.contents.terms
        if unit is self.unit:
            return replace(own, delta=delta, group=group)
        if self.bounds is None:
            raise TotalError(
                f"{self.name} counts by {self.unit.value}, and a ledger alone does not say what that is by "
                f"{unit.value}: give the folder of its run or task"
            )
        return replace(self.bounds.terms(own.record_rate, delta, unit), group=group)

    def check_apart(self, other: "Book") -> None:
        """Refuse two that count the same rounds of the same client.

        Two runs of the same settings, in which everybody takes part, have ledgers that are equal to the last link: it
        is their randomness that differs then; earlier versions do not tell it, and the result of the first round does.
        Copies of one run draw the same noise for ever.
        """
        if self.contents.task != other.contents.task or not self.contents.counts.keys() & other.contents.counts.keys():
            return
        both = f"{self.name} and {other.name}"
        results = list(zip(self.results, other.results, strict=False))
        if self.randomness and other.randomness:
            if self.randomness != other.randomness:
                return
        elif results and results[0][0] != results[0][1]:
            return
        if any(one != two for one, two in results):
            raise TotalError(f"{both} are one run up to a copy, and then two: one noise hides two sums, and no ε holds")
        rows = zip(self.contents.rows, other.contents.rows, strict=False)
        if results or self.deployed or other.deployed or all(one == two for one, two in rows):
            raise TotalError(f"{both} count the same rounds: give the one that counts more of them")


@dataclass(frozen=True)
class ClientTotal:
    """What one client's data have cost."""

    participations: tuple[int, ...]
    """In each of the runs."""
    epsilon: Mapping[Adversary, float]


@dataclass(frozen=True)
class Totals:
    """Several runs together."""

    books: tuple[Book, ...]
    unit: Unit
    group: int
    delta: float
    clients: Mapping[str, ClientTotal]

    def as_json(self) -> dict[str, Any]:
        """For machines; ``null`` where there is no ε."""
        runs = [
            {
                "run": book.name,
                "unit": book.unit.value,
                "private": book.contents.origin.private,
                "terms": parse_json(book.contents.stored),
                "rounds": len(book.contents.rows),
                "digest": book.contents.last_link,
            }
            for book in self.books
        ]
        clients = {
            name: {
                "participations": list(each.participations),
                "epsilon": {adversary.value: finite(value) for adversary, value in each.epsilon.items()},
            }
            for name, each in self.clients.items()
        }
        return {"unit": self.unit.value, "group": self.group, "delta": self.delta, "runs": runs, "clients": clients}

    def notes(self) -> str:
        """What the figures rest on, in words."""
        said = [
            "The runs are composed as privacy loss distributions, for one adversary that sees all of them. Clients of "
            "the same name are taken to hold the same data; a record that two clients hold costs more."
        ]
        if trusted := [book.name for book in self.books if book.contents.origin.private is None]:
            said.append(f"That no seed made the noise is taken on trust: {', '.join(trusted)} does not say.")
        return " ".join(said)


def compose(
    books: Sequence[Book],
    *,
    unit: Unit | None = None,
    delta: float | None = None,
    group: int = 1,
    same_data: bool = False,
) -> Totals:
    """What the runs cost each client together.

    Args:
        books: The runs, in any order.
        unit: What is protected; if not given, a record if any run protects records, else a client.
        delta: The δ of the total; if not given, the smallest of the runs'. No run's own ε is then above the total.
        group: How many records, or clients, are protected together.
        same_data: Whether the one client of each run holds the same data as that of every other, whatever its name.

    Raises:
        TotalError: No total holds, or none that is not too small.
    """
    for one, two in combinations(books, 2):
        one.check_apart(two)
    if delta is not None and not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    delta = delta or min(book.contents.terms.delta for book in books)
    unit = unit or (Unit.RECORD if any(book.unit is Unit.RECORD for book in books) else Unit.CLIENT)
    terms = [book.terms(unit, delta, group) for book in books]
    counts = [dict(book.contents.counts) for book in books]
    if same_data:
        for book, found in zip(books, counts, strict=True):
            if len(found) > 1:
                raise TotalError(f"{book.name} counts {len(found)} clients: which of them holds the data is not known")
        counts = [{"the data": sum(found.values())} for found in counts]
    clients = {}
    for name in sorted({name for found in counts for name in found}):
        often = tuple(found.get(name, 0) for found in counts)
        spent = [Spent(*each) for each in zip(terms, often, strict=True)]
        clients[name] = ClientTotal(often, {each: total(spent, each, delta) for each in Adversary})
    return Totals(tuple(books), unit, group, delta, clients)


def read_book(path: Path) -> Book:
    """The run at a path, every link and count of its ledger checked. Nothing is written.

    Raises:
        PrecadError: It is no run, is damaged, or was not private.
        ValueError: A file in it is not what it must be.
    """
    folder = path if path.is_dir() else path.parent
    if (folder / "config.toml").is_file() and path in (folder, folder / "ledger.sqlite"):
        book = _read_run(path, folder)
    elif (folder / "task.json").is_file() and (path.is_dir() or path.suffix == ".db"):
        book = _read_party(path, folder)
    elif (folder / DATA_FILE).is_file() and path in (folder, folder / DATA_FILE):
        raise TotalError(f"{path} is the ledger of a data set, and counts over tasks already: see `precad data show`")
    else:
        book = _read_alone(ledger_file(path))
    book.contents.verify()
    if book.contents.origin.private is False:
        raise TotalError(_seeded(path))
    return book


def ledger_file(path: Path) -> Path:
    """The file of a ledger, given as itself or as the folder of a run, or of a server or client of a task."""
    if not path.is_dir():
        return path
    if (path / "config.toml").is_file():
        return path / "ledger.sqlite"
    if (path / "task.json").is_file():
        return _store(path)
    raise TotalError(f"{path} is not the folder of a run, or of a server or client of a task")


def read_ledger(path: Path) -> Contents:
    """The ledger in a file of its own, or in that of a server or client of a task, which may hold their tables too."""
    beside = () if path.name == "ledger.sqlite" else (*OF_SERVER, *OF_CLIENT)
    return ledger.read(path, beside)


def _read_run(path: Path, folder: Path) -> Book:
    run = read_run(folder)
    training, done = run.config.training, run.done
    if training.protocol is not Protocol.PRECAD:
        raise TotalError(f"{path} has the protocol {training.protocol.value}, whose rounds no ledger counts")
    if run.config.seed is not None or any(line.private is False for line in run.rounds):
        raise TotalError(_seeded(path))
    contents = read_ledger(folder / "ledger.sqlite")
    if contents.terms != training.terms(contents.terms.dim):
        raise TotalError(f"{path}: its configuration and its ledger do not agree on what a round costs")
    if len(contents.rows) < done:
        raise TotalError(f"{path}: its ledger counts {len(contents.rows)} of the {done} rounds that were played")
    bounds = training.params(contents.terms.dim, run.clients or 1)
    results = tuple((line.model, line.update_norm) for line in run.rounds)
    return Book(str(path), contents, training.unit, bounds, results, run.randomness)


def _read_party(path: Path, folder: Path) -> Book:
    task = tasks.load(folder / "task.json")
    contents = read_ledger(ledger_file(path))
    if (contents.task, contents.terms) != (task.digest.hex(), task.terms):
        raise TotalError(f"{path}: its ledger is not of the task in {folder / 'task.json'}")
    return Book(str(path), contents, task.bounds.unit, task.bounds, deployed=True)


def _store(folder: Path) -> Path:
    """The file of the server, or the client, whose folder this is."""
    place = next((folder / name for name in ("a.toml", "b.toml") if (folder / name).is_file()), None)
    if place is not None:
        return settings.load(place).store
    found = sorted(folder.glob("*.db"))
    if len(found) != 1:
        raise TotalError(f"{folder} has {len(found)} files of the kind NAME.db, expected one: name the file itself")
    return found[0]


def _read_alone(path: Path) -> Book:
    """A ledger's file, or its export, without its run."""
    contents = _exported(path) if path.suffix == ".json" else read_ledger(path)
    known = contents.origin.unit or ("record" if contents.terms.record_rate < 1 else None)
    if known is None:
        raise TotalError(f"{path} does not say whether it counts by record or by client: give its run's folder")
    return Book(str(path), contents, Unit(known))


@dataclass(frozen=True)
class _Round:
    round: int
    participants: tuple[str, ...]
    link: str


@dataclass(frozen=True)
class _Client:
    participations: int
    epsilon: Mapping[str, Any]


@dataclass(frozen=True)
class _Export:
    """What `precad ledger export` prints."""

    terms: Mapping[str, Any]
    rounds: tuple[_Round, ...]
    clients: Mapping[str, _Client]
    digest: str


def _exported(path: Path) -> Contents:
    try:
        table = build(_Export, parse_json(read_text(path)), "the export")
    except ValueError as error:
        raise TotalError(f"{path} is not what `precad ledger export` prints: {error}") from None
    contents = Contents(
        json.dumps(table.terms, sort_keys=True, separators=(",", ":")),
        tuple((each.round, json.dumps(each.participants), each.link) for each in table.rounds),
        {name: client.participations for name, client in table.clients.items()},
    )
    if contents.last_link != table.digest:
        raise TotalError(f"{path} was changed: its last link is not its digest")
    return contents


def _seeded(path: Path) -> str:
    return f"{path} was made with a seed: whoever has it can take the noise away, and no ε holds over this run"
