"""Files of SQLite that may not forget: how a party opens one, writes to it, and says what went wrong."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.privacy.ledger import LedgerError

FULL = "the disk is full: nothing was lost, make room and try again"


class StoreError(PrecadError):
    """A file that cannot be written, or is not the store of this task and party."""


def connect(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return, to a file that its owner alone can read.

    Without ``durable`` they are the operating system's by then: they outlive the process, but not a power cut. Only
    a simulation, in which there is nothing to protect, may do without.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    with in_words():
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        synchronous = f"synchronous = {'FULL' if durable else 'OFF'}"
        for pragma in ("journal_mode = WAL", synchronous, "secure_delete = ON", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def claim(connection: sqlite3.Connection, path: Path, kind: str, task: Task, party: str, schema: Iterable[str]) -> None:
    """Make a file a party's own in a task, once the task's budget was checked; or find that it is."""
    owner = f"{party} in task {task.digest.hex()}"
    with transaction(connection):
        for statement in (_OWNER, *schema):
            connection.execute(statement)
        stored = connection.execute("SELECT name FROM owner").fetchone()
        if stored is None:
            task.check_budget()
            connection.execute("INSERT INTO owner VALUES (0, ?)", (owner,))
    if stored is not None and stored[0] != owner:
        raise StoreError(f"{path} is the {kind} of {stored[0]}, not of {owner}")


_OWNER = "CREATE TABLE IF NOT EXISTS owner (id INTEGER PRIMARY KEY CHECK (id = 0), name TEXT NOT NULL)"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside is on the disk at the end, or none of it."""
    with in_words():
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise


@contextmanager
def in_words() -> Iterator[None]:
    """What goes wrong on the disk, the ledger's part of it included, as one sentence."""
    try:
        yield
    except (sqlite3.DatabaseError, LedgerError) as error:
        words = FULL if "disk is full" in str(error) else str(error)
        raise StoreError(f"the store cannot be read or written: {words}") from error
