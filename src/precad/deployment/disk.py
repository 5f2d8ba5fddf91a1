"""Files of SQLite that may not forget: how a party opens one, writes to it, and says what went wrong."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from precad import databases
from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.files import lock_file, make_folder, words_of
from precad.privacy.ledger import SCHEMA as LEDGER
from precad.privacy.ledger import LedgerError

FULL = "the disk is full: nothing was lost, make room and try again"


class StoreError(PrecadError):
    """A file that cannot be written, or is not the store of this task and party."""


class BusyError(StoreError):
    """A store that another process serves: nothing is wrong with what this one was given."""

    exit_code = 1


class DiskError(StoreError):
    """A file that cannot be read or written now, as when the disk is full; what it holds is not at fault."""


class SetBackError(StoreError):
    """A server whose store was set back: it has forgotten what it revealed, and must not go on."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"this server's store was set back, and must not be used: {found}. docs/deployment.md says what to do"
        )


def connect(path: Path, schema: Iterable[str], *, durable: bool = True) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return, to a file that its owner alone can read.

    Without ``durable`` they are the operating system's by then: they outlive the process, but not a power cut. Only
    a simulation, in which there is nothing to protect, may do without.
    """
    try:
        make_folder(path.parent, private=True)
        with in_words():
            connection = databases.connect(path, (OWNER, *schema, *LEDGER), durable=durable, private=True)
            for pragma in ("secure_delete = ON", "temp_store = MEMORY"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
    except OSError as error:
        raise StoreError(f"cannot write {path}: {words_of(error)}") from None
    return connection


@contextmanager
def exclusive(store: Path) -> Iterator[None]:
    """Inside, no other process serves this store. However this one ends, the kernel lets go of the lock.

    Looking into a store (:meth:`precad.deployment.store.Store.look`) needs no lock.
    """
    path = store.with_name(f"{store.name}.lock")
    try:
        lock = lock_file(path, private=True)
    except BlockingIOError:
        raise BusyError(f"another process serves {store}, and holds {path}: there can be only one") from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {words_of(error)}") from None
    with lock:
        yield


def claim(connection: sqlite3.Connection, path: Path, kind: str, task: Task, party: str, schema: Iterable[str]) -> None:
    """Make a file a party's own in a task, once the task's budget was checked; or find that it is."""
    with transaction(connection):
        for statement in (OWNER, *schema):
            connection.execute(statement)
        if not check_owner(connection, path, kind, task, party):
            task.check_budget()
            connection.execute("INSERT INTO owner VALUES (0, ?)", (_owner(task, party),))


def check_owner(connection: sqlite3.Connection, path: Path, kind: str, task: Task, party: str) -> bool:
    """Whether a file is a party's own in a task, or nobody's yet; another's is a :class:`StoreError`."""
    stored = connection.execute("SELECT name FROM owner").fetchone()
    if stored is not None and stored[0] != _owner(task, party):
        raise StoreError(f"{path} is the {kind} of {stored[0]}, not of {_owner(task, party)}")
    return stored is not None


def _owner(task: Task, party: str) -> str:
    return f"{party} in task {task.digest.hex()}"


OWNER = "CREATE TABLE IF NOT EXISTS owner (id INTEGER PRIMARY KEY CHECK (id = 0), name TEXT NOT NULL)"


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


def _is_full(error: Exception) -> bool:
    """Whether there is no room, also for the file that processes share beside a write-ahead log."""
    return "disk is full" in str(error) or getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_SHMSIZE"


@contextmanager
def in_words() -> Iterator[None]:
    """What goes wrong on the disk, the ledger's part of it included, as one sentence."""
    try:
        yield
    except (sqlite3.DatabaseError, LedgerError) as error:
        words = FULL if _is_full(error) else str(error)
        raise DiskError(f"the store cannot be read or written: {words}") from error
