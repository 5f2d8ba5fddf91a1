"""Tables and the frozen dataclasses that they stand for: how every file of settings, JSON or TOML, is read and written.

The reader is strict. A key that the dataclass does not have, a key that is missing, a value of another type or outside
the choices is a ``ValueError`` that names the key, the value and what is allowed. The dataclass itself checks ranges.

================================  =========================================================
a field of type                   takes
================================  =========================================================
``str``, ``int``, ``bool``        exactly that: no number is text, and ``true`` is no number; a number has 64 bits
``float``                         a finite number; a whole one stays whole
``Enum``, ``Literal``             one of its values
``Path``                          printable text, relative to the folder of the file
``X | None``                      null, or what X takes
a dataclass                       a table
``tuple[X, ...]``, ``list[X]``    a list of what X takes
``Mapping[str, X]``               a table whose values X takes; with ``Any``, whatever they are
================================  =========================================================
"""

import json
import math
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from precad.files import read_text, words_of

Table = Mapping[str, Any]
MOST_JSON, MOST_TOML, MOST_DEPTH, MOST_SHOWN = 1 << 26, 1 << 18, 32, 200
"""Bytes of a file of settings, how deeply its tables may be nested, and letters of a value in a message."""
_MOST_DOTS = 256
"""In a line of TOML: each may be a table inside the last one, which Python reads in quadratic time."""
_Built = TypeVar("_Built")
_Choice = TypeVar("_Choice", bound=Enum)


def build(
    kind: type[_Built],
    table: object,
    where: str,
    *,
    folder: Path = Path(),
    complete: bool = False,
    given: Table | None = None,
) -> _Built:
    """The dataclass that a table stands for.

    Args:
        kind: The dataclass.
        table: What a file holds.
        where: What the table is called in a message.
        folder: What its paths are relative to.
        complete: Whether every key must be there, here and in tables inside, although its field has a default.
        given: Fields that are known already, and are no keys of the table.

    Raises:
        ValueError: The table is not one of this dataclass.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} must be a table, got {_shown(table)}")
    known = given or {}
    kinds, required = _fields(kind)  # type: ignore[arg-type] # every class is hashable
    allowed = [name for name in kinds if name not in known]
    for key in table:
        if key not in allowed:
            raise ValueError(f"{where}: unknown key {_shown(key)}; known are {', '.join(allowed)}")
    missing = [name for name in allowed if name not in table and (complete or name in required)]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return kind(**known, **{key: _convert(kinds[key], value, key, folder, complete) for key, value in table.items()})


def choose(kind: type[_Choice], value: object, key: str) -> _Choice:
    """The choice that a value in a file stands for; the choice itself will do."""
    for choice in kind:
        if value is choice or _same(value, choice.value):
            return choice
    raise _not_allowed(key, [choice.value for choice in kind], value)


def to_table(value: Any) -> dict[str, Any]:
    """The table from which :func:`build` makes the same dataclass."""
    kinds, _ = _fields(type(value))  # type: ignore[arg-type] # every class is hashable
    return {name: _plain(_as_float(kind, getattr(value, name))) for name, kind in kinds.items()}


def merged(base: Table, over: Table) -> dict[str, Any]:
    """Two tables as one; where both have a value, that of ``over``. A table does not replace a value."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        if isinstance(value, Mapping) and key in result and not both:
            raise ValueError(f"[{key}] must be a table, got {_shown(result[key])}")
        result[key] = merged(result[key], value) if both else value
    return result


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    A key that stands twice, a number that is not finite, or tables inside tables inside tables without end, are a
    ``ValueError``.
    """
    try:
        return _checked(json.loads(text, object_pairs_hook=_object))
    except RecursionError:
        raise _too_deep() from None


def read_json(path: Path) -> Any:
    """What a JSON file holds: see :func:`parse_json` and :func:`precad.files.read_text`."""
    return parse_json(read_text(path, MOST_JSON))


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text holds. Tables inside tables inside tables without end are a ``ValueError``."""
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise _too_deep()
    try:
        table: dict[str, Any] = tomllib.loads(text)
        _checked(table)
    except RecursionError:
        raise _too_deep() from None
    return table


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, not yet checked."""
    try:
        return parse_toml(read_text(path, MOST_TOML))
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a TOML file that can be read: {words_of(error)}") from None


def to_toml(table: Table, name: str = "") -> str:
    """The text of a TOML file, or of a table inside: values, then tables. TOML has no null: such a key is left out."""
    lines = [f"{key} = {_toml(value)}" for key, value in table.items() if not isinstance(value, Mapping | NoneType)]
    if name:
        lines = ["", f"[{name}]", *lines]
    inner = [
        to_toml(value, f"{name}.{key}" if name else key) for key, value in table.items() if isinstance(value, Mapping)
    ]
    return "".join(f"{line}\n" for line in lines) + "".join(inner)


@cache
def _fields(kind: type[Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a dataclass's fields, and the names of those that have no default."""
    hints = get_type_hints(kind)
    required = (item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING)
    return {item.name: hints[item.name] for item in fields(kind) if item.init}, frozenset(required)


def _as_float(kind: Any, value: Any) -> Any:
    """A whole number in the place of a float is that float: it has one text, and one digest."""
    return float(value) if type(value) is int and (kind is float or float in get_args(kind)) else value


_NAMES = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false"}


def _convert(kind: Any, value: Any, key: str, folder: Path, complete: bool) -> Any:
    if kind in (str, bool) and type(value) is kind:
        return value
    if kind is int and type(value) is int:
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{key} must be a whole number of 64 bits, got {_shown(value)}")
        return value
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind in _NAMES:
        raise ValueError(f"{key} must be {_NAMES[kind]}, got {_shown(value)}")
    if kind is Path:
        text = _convert(str, value, key, folder, complete)
        if not text.isprintable():
            raise ValueError(f"{key} must be a path of printable characters, got {_shown(text)}")
        return folder / text
    if isinstance(kind, UnionType):
        (inner,) = (choice for choice in get_args(kind) if choice is not NoneType)
        return None if value is None else _convert(inner, value, key, folder, complete)
    if is_dataclass(kind):
        where = key if key.endswith("]") else f"[{key}]"
        return build(kind, value, where, folder=folder, complete=complete)  # type: ignore[arg-type]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return choose(kind, value, key)
    return value if kind is Any else _convert_generic(kind, value, key, folder, complete)


def _convert_generic(kind: Any, value: Any, key: str, folder: Path, complete: bool) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if not any(_same(value, choice) for choice in arguments):
            raise _not_allowed(key, arguments, value)
        return value
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise ValueError(f"{key} must be a list, got {_shown(value)}")
        return origin(_convert(arguments[0], item, f"{key}[{i}]", folder, complete) for i, item in enumerate(value))
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{key} must be a table, got {_shown(value)}")
        return {name: _convert(arguments[1], item, f"{key}.{name}", folder, complete) for name, item in value.items()}
    raise TypeError(f"no table has a value of type {kind}, as {key} is declared")


def _same(value: object, choice: object) -> bool:
    """Equal, and of the same type: ``True`` is not 1."""
    return type(value) is type(choice) and value == choice


def _not_allowed(key: str, allowed: Any, value: object) -> ValueError:
    return ValueError(f"{key} must be one of {', '.join(map(str, allowed))}; got {_shown(value)}")


def _shown(value: object) -> str:
    """A value in a message: a file may hold one that fills the screen."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = "a number that is too long to be shown"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _checked(value: Any) -> Any:
    """What was parsed, unless it is nested more deeply than anything that we write."""
    level: list[Any] = [[value]]
    for _ in range(MOST_DEPTH + 1):
        inner = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"lists and tables are nested too deeply: at most {MOST_DEPTH} inside each other are read")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {_shown(key)} stands twice")
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{key} must be a finite number, got {item}")
        table[key] = value
    return table


def _plain(value: Any) -> Any:
    """A value as JSON and TOML have it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return to_table(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def finite(value: float | None) -> float | None:
    """The number, or None where it is none that JSON could hold: it has no infinity."""
    return value if value is not None and math.isfinite(value) else None
