"""How every command speaks: errors in one sentence, a sign of life, tables, JSON. Nothing else writes to the terminal.

What comes from a file or a network, a name, a reason, a path, is printed, never obeyed: control characters are written
out, and no markup is read in it.
"""

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from precad.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_EXTRAS = {
    "train": ("torch", "matplotlib", "PIL", "sklearn"),
    "server": ("starlette", "uvicorn", "httpx"),
    "flower": ("flwr", "starlette", "uvicorn", "httpx"),
}


def need(extra: str) -> None:
    """Refuse in one sentence where an extra of the package is not installed."""
    from importlib.util import find_spec

    missing = [name for name in _EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} is not installed: pip install 'precad[{extra}]'")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a sign of life on the terminal, out of the way of the output."""
    with new_console(stderr=True).status(what):
        yield


def say(*lines: object, err: bool = False) -> None:
    """Print lines of text, each of them one line."""
    for line in lines:
        typer.echo(printable(str(line)), err=err)


def new_console(*, stderr: bool = False) -> "Console":
    """A console of rich whose every letter is printable, and which reads no markup in what it prints."""
    from rich.console import Console

    class Printable(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            for segment in super().render(*arguments, **options):
                yield segment if segment.control else segment._replace(text=printable(segment.text, keep="\n"))

    return Printable(stderr=stderr, markup=False, highlight=False, emoji=False)


def show_logs() -> None:
    """Show what the package logs, from its warnings to what it says of a person's code, in lines on stderr."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage(), err=True)

    log = logging.getLogger("precad")
    if not log.handlers:
        log.addHandler(Lines())
        log.setLevel(logging.INFO)


def answer(as_json: bool, value: object, *shown: object) -> None:
    """Print ``value`` for machines, or what is shown to people: lines of text, and tables."""
    if as_json:
        text = json.dumps(_without_infinity(value), indent=2, allow_nan=False)
        typer.echo(text.replace("\x7f", "\\u007f"))
        return
    for part in shown:
        if isinstance(part, str):
            say(*part.split("\n"))
        else:
            new_console().print(part)


def in_lines(values: Mapping[str, object]) -> str:
    """Names and values, one pair on each line."""
    width = max(map(len, values))
    return "\n".join(f"{name:>{width}}  {printable(str(value))}" for name, value in values.items())


def new_table(title: str, left: str, *right: str) -> "Table":
    """A table with these columns: names on the left, and numbers, aligned on the right."""
    from rich.table import Table

    table = Table(left, title=title)
    for column in right:
        table.add_column(column, justify="right")
    return table


def figures(
    command: str, rows: Mapping[str, Mapping[str, object]], targets: Mapping[str, float] | None = None
) -> "list[Table]":
    """What was measured, a table for each row; a figure with a target says whether it misses it."""
    tables = []
    for name, row in rows.items():
        table = new_table(f"precad bench {command}: {name}", "figure", "value")
        for figure, value in row.items():
            inner = value.items() if isinstance(value, Mapping) else ()
            for label, number in [(f"{figure}: {part}", each) for part, each in inner] or [(figure, value)]:
                table.add_row(label, _shown(number, (targets or {}).get(label)))
        tables.append(table)
    return tables


def _without_infinity(value: Any) -> Any:
    """A value as JSON has it: what is no finite number is null."""
    if isinstance(value, Mapping):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: object, target: float | None) -> str:
    if target is not None and isinstance(value, float):
        return f"{value:,.3f} (≤ {target:g}{', missed' if value > target else ''})"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
