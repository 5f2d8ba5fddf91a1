"""Garbage: what somebody may have put in the place of a file, or of a value in it."""

import io
import json
import os
import shutil
import socket
import sqlite3
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from precad.tables import to_toml

HUGE = int("1" + 400 * "0")
DEEP = 100_000


Spoil = Callable[[Path], None]


def _sparse(path: Path) -> None:
    with path.open("wb") as out:
        out.truncate(8 << 40)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(path.parent)
        listening.bind(path.name)
        os.chdir(before)


def _view(path: Path) -> None:
    """An endless view for each table, with the columns of all."""
    columns = "json, number, round, participants, link, client, count, line, name, status, parameters, id, word"
    values = ", ".join("'a'" if name in ("json", "client") else "1" for name in columns.split(", "))
    with closing(sqlite3.connect(path)) as connection:
        for table in ("terms", "entries", "counts", "log", "owner", "rounds", "model"):
            connection.execute(
                f"CREATE VIEW {table} AS WITH RECURSIVE w({columns}) AS (SELECT {values} UNION ALL SELECT * FROM w) "  # noqa: S608
                "SELECT * FROM w"
            )


def npy_header(shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return out.getvalue()


def _archive(path: Path, member: bytes, names: tuple[str, ...]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", member)


@cache
def _bomb() -> bytes:
    """An archive of a few kB that says, truly, that its arrays have 64 MiB each."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("theta", "x_train"):
            archive.writestr(f"{name}.npy", npy_header((1 << 23,)) + bytes(1 << 26))
    return out.getvalue()


_NAMES = ("theta", "first", "second", "steps", "round", "participations", "x_train", "y_train", "x_test", "y_test")


def _text(toml: str, other: str) -> Spoil:
    """One text in the place of a TOML file, another one in that of any other."""

    def put(path: Path) -> None:
        path.write_text(toml if path.suffix == ".toml" else other)

    return put


def _bytes(content: Callable[[], bytes]) -> Spoil:
    def put(path: Path) -> None:
        path.write_bytes(content())

    return put


def _another_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cookies (value)")


def _objects(path: Path) -> None:
    with path.open("wb") as out:
        np.save(out, np.array([{}], object), allow_pickle=True)


WHOLE: dict[str, Spoil] = {
    "nothing": _bytes(bytes),
    "zeros": _bytes(lambda: bytes(5000)),
    "bytes": _bytes(lambda: np.random.default_rng(1).bytes(5000)),
    "no UTF-8": _bytes(lambda: b'{"a": "\xff\xfe"}\n'),
    "control characters": _text(
        '"a\\u001b]8;;http://x\\u0007" = "\\u202e[red]"\n', '{"\\u001b[31m[red]\\u202e\\n": 1}\n'
    ),
    "raw control characters": _text("a\x1b]8;;http://x\x07 = 1\n", '{"\x1b[31m": "\x07"}\n'),
    "a deep list": _text("a = " + "[" * DEEP, "[" * DEEP + "\n"),
    "a closed deep list": _text("a = " + "[" * 900 + "]" * 900, "[" * 900 + "]" * 900 + "\n"),
    "a deep table": _text(".".join("a" * 3000) + " = 1\n", '{"a":' * 3000 + "1" + "}" * 3000 + "\n"),
    "a long key": _text(".".join("a" * 100_000) + " = 1\n", '{"a' + ".a" * 1_000_000 + '": 1}\n'),
    "a huge number": _text(f"seed = {HUGE}\n", f'{{"a": {HUGE}}}\n'),
    "a number of 5000 digits": _text("seed = " + "9" * 5000, "9" * 5000 + "\n"),
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "8 TB": _sparse,
    "an endless view": _view,
    "another database": _another_database,
    "an 8 TB header": _bytes(lambda: npy_header((1 << 40,)) + bytes(800)),
    "an object array": _objects,
    "an archive with an 8 TB header": lambda path: _archive(path, npy_header((1 << 40,)) + bytes(800), _NAMES),
    "a bomb": _bytes(_bomb),
}
"""What may be in the place of a file."""

VALUES: dict[str, Any] = {
    "10^400": HUGE,
    "2^70": 1 << 70,
    "nan": float("nan"),
    "infinity": float("inf"),
    "-1": -1,
    "0": 0,
    "text": "\x1b[31m[red]\u202e\n",
    "true": True,
    "a list": [[1]],
    "a table": {"a": {"b": 1}},
}
"""What may be in the place of a value."""


def spoil(path: Path, kind: str) -> None:
    """Put garbage in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    WHOLE[kind](path)


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in tables and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from leaves(item, (*at, key))


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value in one place."""
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


def spoiled_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Every text that differs from a file of JSON or TOML in one value, and what was changed."""
    text = path.read_text()
    if path.suffix == ".toml":
        table = tomllib.loads(text)
        for at in leaves(table):
            for name, new in VALUES.items():
                if name != "a list" and not (name == "a table" and len(at) == 1):
                    with suppress(Exception):
                        yield f"{'.'.join(map(str, at))} = {name}", to_toml(replaced(table, at, new))
        return
    first, newline, rest = text.partition("\n") if path.suffix in (".jsonl", ".log") else (text, "", "")
    if not first:
        return
    value = json.loads(first)
    for at in leaves(value):
        for name, new in VALUES.items():
            yield f"{'.'.join(map(str, at))} = {name}", json.dumps(replaced(value, at, new)) + newline + rest
