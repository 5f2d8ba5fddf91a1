"""The ledger of a data set: what all tasks on it have cost together, and the budget that they keep (PROTOCOL §9).

A task's budget is agreed with the other parties; this one is the operator's own. Its file lies outside of every task's
folder, and every client of any task that trains on the data counts its rounds here: when it *joins* one, before it
trains, so that a client which was let in always has its place. A round is counted once, however often it is asked for.

Each client's own state keeps a :class:`Mark` of how far this ledger had come. A ledger that was put back from a backup
does not have that mark, and is refused; a client of a new task has none yet. Nothing here can tell that two ledgers are
about the same data, nor that this file and every client's state were put back together.
"""

import json
import math
import secrets
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from precad import __version__
from precad.deployment.data_file import (
    FILE,
    SCHEMA,
    DataBudget,
    Mark,
    TaskRow,
    link_of,
    read_budget,
    read_tasks,
    said,
)
from precad.deployment.disk import StoreError, connect, in_words, transaction
from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.privacy.epsilon import most, total
from precad.privacy.terms import Adversary, Spent
from precad.tables import finite, parse_json, to_table

_VERSION = (__version__,)
_REMEMBERED = 16
"""How many costs are kept, so that a client need not load the accountant in every round."""


class SpentError(PrecadError):
    """A round that would pass the data set's budget. It was not counted."""


class DataLedger:
    """The open ledger of a data set. Any number of clients, tasks and processes may count in it at once.

    Raises:
        StoreError: There is none in this folder, or its file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / FILE).is_file():
            raise StoreError(f"there is no ledger of a data set in {folder}: make one with `precad data new {folder}`")
        self._folder = folder
        self._connection = connect(folder / FILE, SCHEMA)
        with in_words():
            self._stored, self._name, self.budget = read_budget(self._connection, folder)

    @classmethod
    def new(cls, folder: Path, budget: DataBudget) -> "DataLedger":
        """Begin the ledger of a data set. One that is there is never begun anew, unless whoever began it was killed."""
        stored = json.dumps({"data": secrets.token_hex(16)} | to_table(budget), sort_keys=True)
        with closing(connect(folder / FILE, SCHEMA)) as connection, transaction(connection):
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise ValueError(f"{folder / FILE} exists: what was spent on these data is not forgotten")
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO budget VALUES (0, ?)", (stored,))
        return cls(folder)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def count(self, task: Task, client: str, round_: int) -> None:
        """Count a round that a client is about to join, durably. The same round again counts once.

        Raises:
            SpentError: It would cost more than the budget; nothing was counted.
            StoreError: Another client holds these data in this task, or the disk fails.
        """
        while True:
            with transaction(self._connection):
                rows = self._rows(task, client)
                counted = self._has(rows[-1].task, round_)
                cost = None if counted else self._known(rows)
                if cost is not None and cost <= self.budget.epsilon:
                    self._insert(rows[-1], round_)
                    counted = True
            if counted:
                return
            if cost is not None:
                words = f"ε = {cost:.6g}" if math.isfinite(cost) else "no ε at all"
                raise SpentError(
                    f"with this round, what these data have cost would come to {words} at δ = {self.budget.delta:g}, "
                    f"above the data set's budget of {self.budget.epsilon:g}: the client sits out"
                )
            self._work_out(rows, task.training.participations)

    def adopt(self, task: Task, client: str, rounds: Iterable[int], mark: Mark | None) -> None:
        """Compare the ledger with what a client remembers: the rounds that it sent in, and the last mark it saw.

        A client that had no ledger of a data set until now brings its rounds along: they were spent.

        Raises:
            StoreError: The ledger is another one, or knows less than the client does.
        """
        with transaction(self._connection):
            row = self._rows(task, client)[-1]
            missing = [round_ for round_ in rounds if not self._has(row.task, round_)]
            if mark is None:
                for round_ in missing:
                    self._insert(row, round_)
                return
            if mark.data != self._name:
                raise StoreError(
                    f"{self._folder} is the ledger {self._name}, and this client's rounds are counted in {mark.data}"
                )
            link = self._connection.execute("SELECT link FROM rounds WHERE number = ?", (mark.number,)).fetchone()
            if missing or (mark.number and (link is None or link[0] != mark.link)):
                raise StoreError(
                    f"{self._folder} has forgotten rounds that were counted in it: it had {mark.number} when this "
                    "client last joined a round. It was put back from a backup, and can count no more"
                )

    def mark(self) -> Mark:
        """How far the ledger has come."""
        with in_words():
            last = self._connection.execute("SELECT number, link FROM rounds ORDER BY number DESC LIMIT 1").fetchone()
        return Mark(self._name, *(last or (0, "")))

    def _rows(self, task: Task, client: str) -> list[TaskRow]:
        """All tasks, with this one at the end; it counts nothing before it is counted for the first time."""
        known = {row.task: row for row in read_tasks(self._connection, self.budget)}
        own = known.pop(task.digest.hex(), TaskRow(task.digest.hex(), client, self.budget.terms(task), 0))
        if own.client != client:
            raise StoreError(
                f"{self._folder} is the data of {own.client} in this task: if {client} had them too, one record would "
                "move the sum twice"
            )
        return [*known.values(), own]

    def _has(self, task: str, round_: int) -> bool:
        query = "SELECT 1 FROM rounds WHERE task = ? AND round = ?"
        return self._connection.execute(query, (task, round_)).fetchone() is not None

    def _insert(self, row: TaskRow, round_: int) -> None:
        """Inside a transaction."""
        before = self.mark()
        link = link_of(self._stored, before.link, row, round_)
        self._connection.execute(
            "INSERT INTO tasks VALUES (?, ?, ?, 1) "
            "ON CONFLICT (task) DO UPDATE SET participations = participations + 1",
            (row.task, row.client, said(row.terms)),
        )
        self._connection.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (before.number + 1, row.task, round_, link))

    def _known(self, rows: list[TaskRow]) -> float | None:
        """What one more round of the last task costs, or an allowed cost of more than that; None if none is kept."""
        wanted = _after(rows, 1)
        for counts, kept in self._connection.execute("SELECT counts, epsilon FROM costs WHERE version = ?", _VERSION):
            paid, cost = parse_json(counts), math.inf if kept is None else float(kept)
            enough = all(paid.get(task, 0) >= count for task, count in wanted.items())
            if paid == wanted or (enough and cost <= self.budget.epsilon):
                return cost
        return None

    def _work_out(self, rows: list[TaskRow], limit: int) -> None:
        """Keep what one more round of the last task costs; if that is allowed, of as many more of all tasks as are.

        A cost is a proven bound, and so bounds every smaller number of rounds too. No lock is held meanwhile.
        """

        def cost(more: int) -> float:
            counts = _after(rows, more)
            spent = (Spent(row.terms, counts[row.task]) for row in rows)
            return total(spent, Adversary.SERVER, self.budget.delta)

        ahead = most(lambda more: cost(more) <= self.budget.epsilon, limit, within=1.25) or 1
        kept = json.dumps(_after(rows, ahead), sort_keys=True), finite(cost(ahead))
        with transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO costs VALUES (?, ?, ?)", (*_VERSION, *kept))
            self._connection.execute(
                "DELETE FROM costs WHERE rowid NOT IN (SELECT rowid FROM costs ORDER BY rowid DESC LIMIT ?)",
                (_REMEMBERED,),
            )


def _after(rows: list[TaskRow], more: int) -> dict[str, int]:
    """Participations by task, after so many more rounds of the last one, and one less of each other."""
    return {row.task: row.participations + more - (row is not rows[-1]) for row in rows}
