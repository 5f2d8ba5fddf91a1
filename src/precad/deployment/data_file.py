"""What the file of a data set's ledger holds, and how it is read: nothing is written, whoever made it (PROTOCOL §9)."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from precad.databases import look, typed
from precad.deployment.disk import StoreError
from precad.deployment.task import Task
from precad.files import words_of
from precad.mpc.fixed_point import check_positive
from precad.mpc.prg import digest
from precad.privacy.epsilon import total
from precad.privacy.terms import Adversary, Spent, Terms
from precad.protocol.params import Unit
from precad.tables import build, finite, parse_json, to_table

FILE = "data.db"
"""The file in a data set's folder."""


@dataclass(frozen=True, kw_only=True)
class DataBudget:
    """What all tasks on a data set may cost together, against a server."""

    epsilon: float
    delta: float
    unit: Unit = Unit.RECORD
    """What the promise is about: one record of the data, or all of them."""

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be in (0, 1), far below one over the number of records; got {self.delta}")

    def terms(self, task: Task) -> Terms:
        """What a participation in a task costs, at this δ and for this unit."""
        return task.bounds.terms(task.training.record_rate, self.delta, self.unit)


@dataclass(frozen=True)
class Mark:
    """How far a data set's ledger had come."""

    data: str
    """Which ledger: a name that was drawn when it was made."""
    number: int
    """How many rounds it had counted."""
    link: str
    """The hash of them all."""


@dataclass(frozen=True)
class TaskRow:
    """A task, as the ledger knows it."""

    task: str
    client: str
    """Who holds the data in it. One client alone: two would move one sum twice."""
    terms: Terms
    participations: int

    @property
    def spent(self) -> Spent:
        """For the accountant."""
        return Spent(self.terms, self.participations)


@dataclass(frozen=True)
class DataView:
    """All of a data set's ledger at one moment, every link and count checked."""

    budget: DataBudget
    tasks: tuple[TaskRow, ...]
    mark: Mark

    def as_json(self) -> dict[str, Any]:
        """For machines: what each task has cost by itself, and all together; ``null`` where there is no ε."""
        return {
            "data": self.mark.data,
            "budget": to_table(self.budget),
            "tasks": [
                {
                    "task": row.task,
                    "client": row.client,
                    "participations": row.participations,
                    "epsilon": self._costs([row]),
                }
                for row in self.tasks
            ],
            "rounds": self.mark.number,
            "epsilon": self._costs(self.tasks),
            "digest": self.mark.link,
        }

    def _costs(self, rows: Iterable[TaskRow]) -> dict[str, float | None]:
        spent = [row.spent for row in rows]
        return {each.value: finite(total(spent, each, self.budget.delta)) for each in Adversary}


def view(folder: Path) -> DataView:
    """The ledger of a data set as it is now, only looked at; a :class:`StoreError` that names the first fault."""
    try:
        (stored, name, budget), tasks, rounds = look(folder / FILE, SCHEMA, lambda each: _read(each, folder))
    except FileNotFoundError:
        raise StoreError(f"there is no ledger of a data set in {folder}") from None
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{folder / FILE} is not the ledger of a data set: {words_of(error)}") from None
    rows, counts, link = {row.task: row for row in tasks}, Counter[str](), ""
    for expected, (number, task, round_, found) in enumerate(rounds, 1):
        link = link_of(stored, link, rows[task], round_) if task in rows else ""
        if number != expected or link != found:
            raise StoreError(f"{folder}: entry {number}, round {round_} of task {task}, was changed, or one before it")
        counts[task] += 1
    for row in tasks:
        if counts[row.task] != row.participations:
            raise StoreError(f"{folder}: the count of task {row.task} is {row.participations}, not what the rounds say")
    return DataView(budget, tuple(tasks), Mark(name, len(rounds), link))


def _read(
    connection: sqlite3.Connection, folder: Path
) -> tuple[tuple[str, str, DataBudget], list[TaskRow], list[tuple[int, str, int, str]]]:
    own, query = read_budget(connection, folder), "SELECT number, task, round, link FROM rounds ORDER BY number"
    rounds = typed("a round", connection.execute(query), int, str, int, str)
    return own, read_tasks(connection, own[2]), rounds


@dataclass(frozen=True, kw_only=True)
class _TermsTable:
    sigma: float
    record_rate: float
    dim: int


def said(terms: Terms) -> str:
    """A task's terms, as they stand in the file; δ is the budget's."""
    return json.dumps({item.name: getattr(terms, item.name) for item in fields(_TermsTable)}, sort_keys=True)


def read_tasks(connection: sqlite3.Connection, budget: DataBudget) -> list[TaskRow]:
    """All tasks that were ever counted."""
    query = "SELECT task, client, terms, participations FROM tasks ORDER BY task"
    rows = typed("a task", connection.execute(query), str, str, str, int)
    try:
        return [
            TaskRow(
                task, client, Terms(delta=budget.delta, **asdict(build(_TermsTable, parse_json(said), task))), count
            )
            for task, client, said, count in rows
        ]
    except ValueError as error:
        raise StoreError(f"the ledger of a data set is damaged: {error}") from None


def read_budget(connection: sqlite3.Connection, folder: Path) -> tuple[str, str, DataBudget]:
    """The budget as it stands in the file, the ledger's name, and the budget."""
    try:
        ((stored,),) = typed("the budget", connection.execute("SELECT json FROM budget"), str)
        value = parse_json(stored)
        return stored, str(value.pop("data")), build(DataBudget, value, "the budget", complete=True)
    except (ValueError, TypeError, AttributeError, KeyError, sqlite3.OperationalError) as error:
        raise StoreError(f"{folder / FILE} is not the ledger of a data set: {error}") from None


def link_of(budget: str, previous: str, row: TaskRow, round_: int) -> str:
    """H(budget, link before, task, client, terms, round)."""
    texts = (budget, previous, row.task, row.client, said(row.terms), str(round_))
    return digest(b"precad data", *(text.encode() for text in texts)).hex()


SCHEMA = (
    "CREATE TABLE IF NOT EXISTS budget (id INTEGER PRIMARY KEY CHECK (id = 0), json TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS tasks (
        task TEXT PRIMARY KEY, client TEXT NOT NULL, terms TEXT NOT NULL, participations INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS rounds (
        number INTEGER PRIMARY KEY, task TEXT NOT NULL, round INTEGER NOT NULL, link TEXT NOT NULL,
        UNIQUE (task, round))""",
    """CREATE TABLE IF NOT EXISTS costs (
        version TEXT NOT NULL, counts TEXT NOT NULL, epsilon REAL, PRIMARY KEY (version, counts))""",
)
