"""How every file of SQLite is opened: to write by its owner, or to be read by anybody, who changes nothing.

A file that somebody else made may have a view, a trigger or another table in place of ours: the schema is compared
before anything is asked of it. :func:`look` reads a file as it is, with what is in its write-ahead log. It takes no
lock, and leaves the file and its neighbours, byte for byte, as they were, in a folder that cannot be written too.

POSIX drops all locks of a process on a file when it closes any descriptor of it. Another process would then take
itself for the last one, and delete the write-ahead log that this one still writes to. So nothing here opens a file by
itself that this process has open in SQLite.
"""

import os
import sqlite3
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.files import check_own, is_file, make_file, open_to_read, read_bytes

MOST_IN_MEMORY = 1 << 30
"""Bytes of a file with a write-ahead log that is looked at in memory; SQLite itself reads a longer one in its place."""
ATTEMPTS, PAUSE = 50, 0.02
"""How often, and after how many seconds, a file is looked at again that changed meanwhile."""
_LEAST_WORK, _WORK_PER_BYTE, _STEP = 10_000_000, 4, 10_000
"""Instructions of SQLite that a look may take: a file with a loop in it would never end."""
_NEIGHBOURS = ("-wal", "-shm", "-journal")
_SEQUENCE = "CREATE TABLE sqlite_sequence(name,seq)"
"""SQLite's own, beside a table with AUTOINCREMENT."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LOG_HEADER, _FRAME_HEADER, _LOG_MAGIC = 32, 24, 0x377F0682

_Found = TypeVar("_Found")
_OPEN: Counter[tuple[int, int]] = Counter()
"""The files that this process has open to write, by device and number."""
_OPENING = threading.Lock()


class DatabaseError(sqlite3.DatabaseError):
    """A file that is no database of ours, or is in a state in which nobody can read it."""


def connect(path: Path, schema: Iterable[str], *, durable: bool, private: bool = False) -> sqlite3.Connection:
    """Open a file of SQLite to write, or make it. Nothing is written through a link, or in a foreign schema.

    Args:
        path: The file.
        schema: The statements that make its tables; tables beside these may be there.
        durable: Whether what is committed is on the disk. Without, it may not outlive a power cut.
        private: Whether a new file is readable by its owner alone.

    Raises:
        sqlite3.Error: It cannot be opened, or is another kind of file.
        OSError: The file, or one of SQLite's beside it, is a link, a pipe or the like.
    """
    for ending in _NEIGHBOURS:
        check_own(_beside(path, ending), single=True)
    _check_journal(_beside(path, "-journal"))
    make_file(path, private=private)
    connection = sqlite3.connect(
        path.absolute(), timeout=30, isolation_level=None, check_same_thread=False, factory=_Connection
    )
    try:
        connection.count(path)
        connection.execute("PRAGMA trusted_schema = OFF")
        _check_schema(connection, schema)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
    except BaseException:
        connection.close()
        raise
    return connection


def look(
    path: Path, schema: Iterable[str], read: Callable[[sqlite3.Connection], _Found], beside: Iterable[str] = ()
) -> _Found:
    """What ``read`` finds in a file of SQLite, all of it at one moment, whoever writes meanwhile.

    Args:
        path: The file. It and its neighbours stay as they are.
        schema: The statements that made the tables that are read.
        read: Asks; it may be called again if the file changed meanwhile.
        beside: The statements of tables that may be there too. A file with any other is refused.

    Raises:
        sqlite3.Error: It is no such file, or is damaged.
        OSError: It is not there, or is no regular file.
    """
    statements, others = list(schema), list(beside)
    for _ in range(ATTEMPTS):
        before = _state(path)
        try:
            connection, at_rest = _connect_to_read(path)
            with closing(connection):
                connection.execute("BEGIN")
                _check_schema(connection, statements, others)
                found = read(connection)
        except _ChangedError:
            pass
        except Exception:  # half-written pages may mean anything
            if _state(path) == before:
                raise
        else:
            if not at_rest or _state(path) == before:
                return found
        time.sleep(PAUSE)
    raise DatabaseError("others write to it all the time")


def open_whole(path: Path) -> BufferedReader | BytesIO:
    """The bytes of a file of SQLite as they are once its write-ahead log, if it has one, is part of it. Only reads."""
    if _is_open_here(path):
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return BytesIO(connection.serialize())
    for _ in range(ATTEMPTS):
        try:
            return BytesIO(_image(path)) if _size(_beside(path, "-wal")) else open_to_read(path)
        except _ChangedError:
            time.sleep(PAUSE)
    raise DatabaseError("others write to it all the time")


def typed(what: str, rows: Iterable[tuple[Any, ...]], *kinds: type) -> list[Any]:
    """All rows, each of them ``what``, with values of these types: SQLite itself takes any in any column."""
    found = list(rows)
    for row in found:
        if tuple(map(type, row)) != kinds:
            raise DatabaseError(f"{what} was changed: {str(row)[:100]}")
    return found


class _ChangedError(Exception):
    """The file was written while it was read."""


class _Connection(sqlite3.Connection):
    """One that this process is known to have."""

    _file: tuple[int, int] | None = None

    def count(self, path: Path) -> None:
        """From now on its file is open here."""
        with _OPENING:
            self._file = _number(path)
            _OPEN[self._file] += 1

    def close(self) -> None:
        """Close it; its file may be read again by other means than SQLite's."""
        super().close()
        with _OPENING:
            if self._file is not None:
                _OPEN[self._file] -= 1
                self._file = None


def _number(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _is_open_here(path: Path) -> bool:
    with _OPENING:
        return _OPEN[_number(path)] > 0


def _connect_to_read(path: Path) -> tuple[sqlite3.Connection, bool]:
    """The file at rest, read in its place; with a write-ahead log, a picture of both in memory."""
    here = _is_open_here(path)
    if here:
        found = path.stat()
    else:
        with open_to_read(path) as file:
            found = os.fstat(file.fileno())
    if _size(_beside(path, "-journal")):
        raise DatabaseError("a change to it was cut off half-way: the program that made it must open it first")
    log = _size(_beside(path, "-wal"))
    if here:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    elif log and found.st_size + log <= MOST_IN_MEMORY:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(_without_log(_image(path)))
    else:
        if log and not is_file(_beside(path, "-shm")):  # SQLite would make one, or wait for a pipe
            raise DatabaseError("it is too long to be read with its write-ahead log, and has no index of it beside it")
        way = "mode=ro&readonly_shm=1" if log else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, isolation_level=None)
    work = (_LEAST_WORK + _WORK_PER_BYTE * (min(found.st_size, 512 * found.st_blocks) + log)) // _STEP
    steps = iter(range(work))
    connection.set_progress_handler(lambda: next(steps, None) is None, _STEP)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(1 << 20, found.st_size + log))
    for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection, not (log or here)


def _check_journal(journal: Path) -> None:
    """Refuse a journal of a transaction over several files: it names another one, anywhere, that SQLite deletes."""
    try:
        with open_to_read(journal) as file:
            file.seek(-min(len(_JOURNAL_MAGIC), os.fstat(file.fileno()).st_size), os.SEEK_END)
            if file.read() == _JOURNAL_MAGIC:
                raise DatabaseError(f"{journal.name} names other files, and was not written by this program")
    except FileNotFoundError:
        pass


def _check_schema(connection: sqlite3.Connection, schema: Iterable[str], beside: Iterable[str] | None = None) -> None:
    """Refuse a file in which something else than its tables would answer.

    With ``beside`` it must have all of its tables, and no others than these.
    """
    expected = {_name(statement): {_plain(statement)} for statement in schema}
    needed, there = set(expected) if beside is not None else set(), set()
    for statement in (*(beside or ()), _SEQUENCE):
        expected.setdefault(_name(statement), set()).add(_plain(statement))
    for kind, name, made in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if made is None and kind == "index":  # SQLite's own, of a key
            continue
        known = str(name).lower()  # to SQLite, Terms is terms
        foreign = known not in expected and beside is not None
        if kind != "table" or foreign or (known in expected and _plain(str(made)) not in expected[known]):
            raise DatabaseError(f"it has a {kind} {str(name)[:40]!r} that is not of this program")
        there.add(known)
    if missing := sorted(needed - there):
        raise DatabaseError(f"it has no table {missing[0]}")
    if beside is not None and _name(_SEQUENCE) in there:
        for (name,) in connection.execute("SELECT name FROM sqlite_sequence"):
            if name not in there:
                raise DatabaseError(f"it counts the rows of {str(name)[:40]!r}, which is no table of this program")


def _name(statement: str) -> str:
    """Of the table that it makes."""
    return _plain(statement).split()[2]


def _plain(statement: str) -> str:
    """A statement as SQLite keeps it, whatever its line breaks."""
    return " ".join(statement.replace("IF NOT EXISTS ", "").replace("(", " ( ").replace(")", " ) ").split())


def _without_log(image: bytearray) -> bytearray:
    """A file in memory has no log beside it."""
    if len(image) >= 20:
        image[18:20] = b"\x01\x01"
    return image


def _image(path: Path) -> bytearray:
    """The file as it would be after a checkpoint, from its bytes and those of its write-ahead log.

    The log is read after the file, and not begun anew since before: so whatever a checkpoint wrote to the file
    meanwhile stands in the log too, and is the same after it.
    """
    beside = _beside(path, "-wal")
    with open_to_read(beside) as file:
        start = file.read(_LOG_HEADER)
    main = bytearray(read_bytes(path, MOST_IN_MEMORY))
    log = read_bytes(beside, MOST_IN_MEMORY)
    if log[:_LOG_HEADER] != start:
        raise _ChangedError
    _apply(log, main)
    return main


def _apply(log: bytes, main: bytearray) -> None:
    """Write the pages of a write-ahead log's whole transactions into the file (sqlite.org/fileformat2.html, §4)."""
    if len(log) < _LOG_HEADER:
        return
    magic, _, page, _, *salts_and_sums = struct.unpack(">8I", log[:_LOG_HEADER])
    order = {_LOG_MAGIC: "<u4", _LOG_MAGIC + 1: ">u4"}.get(magic)
    if order is None or page not in {1 << power for power in range(9, 17)}:
        return
    sums = _checksum((0, 0), np.frombuffer(log, order, 6))
    if [*sums] != salts_and_sums[2:]:
        return
    pages, pending, size = dict[int, memoryview](), dict[int, memoryview](), 0
    for at in range(_LOG_HEADER, len(log) - _FRAME_HEADER - page + 1, _FRAME_HEADER + page):
        number, committed, *rest = struct.unpack(">6I", log[at : at + _FRAME_HEADER])
        content = memoryview(log)[at + _FRAME_HEADER : at + _FRAME_HEADER + page]
        sums = _checksum(_checksum(sums, np.frombuffer(log, order, 2, at)), np.frombuffer(content, order))
        if rest != [*salts_and_sums[:2], *sums]:
            break
        pending[number] = content
        if committed:
            pages.update(pending)
            pending, size = {}, committed
    if not pages:
        return
    if size > len(main) // page + len(pages) or min(pages) < 1:
        raise DatabaseError("its write-ahead log is damaged")
    main.extend(bytes(max(0, size * page - len(main))))
    for number, content in pages.items():
        if number <= size:
            main[(number - 1) * page : number * page] = content
    del main[size * page :]


def _checksum(before: tuple[int, int], words: NDArray[np.uint32]) -> tuple[int, int]:
    """The log's checksum after more words: each pair x, y makes a into a + b + x, then b into a + b + y, mod 2^32.

    That is linear, so that all pairs are weighed by powers of one matrix, and added at once.
    """
    pairs = words.astype(np.uint64).reshape(-1, 2)
    pairs[:, 1] += pairs[:, 0]
    powers = _powers(len(pairs))
    added = np.einsum("kij,kj->i", powers[-2::-1], pairs)
    a, b = (powers[-1] @ np.array(before, np.uint64) + added).tolist()
    return a % 2**32, b % 2**32


@cache
def _powers(count: int) -> NDArray[np.uint64]:
    """[[1, 1], [1, 2]] to the powers 0, …, count, mod 2^32."""
    powers = [np.eye(2, dtype=np.uint64)]
    for _ in range(count):
        powers.append(powers[-1] @ np.array([[1, 1], [1, 2]], np.uint64) % np.uint64(2**32))
    return np.array(powers)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _size(path: Path) -> int:
    """Of a file that need not be there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _state(path: Path) -> tuple[object, ...]:
    """What is another one when the file or its log was written."""
    states: list[object] = []
    for each in (path, _beside(path, "-wal")):
        try:
            found = each.stat()
            states.append((found.st_ino, found.st_size, found.st_mtime_ns))
        except FileNotFoundError:
            states.append(None)
    return tuple(states)
