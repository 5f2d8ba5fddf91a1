"""What the commands share when they answer: errors in one sentence, a sign of life, tables, JSON."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
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
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def answer(as_json: bool, value: object, *shown: object) -> None:
    """Print ``value`` for machines, or what is shown to people: lines of text, and tables."""
    if as_json:
        typer.echo(json.dumps(value, indent=2))
        return
    from rich.console import Console

    for part in shown:
        if isinstance(part, str):
            typer.echo(part)
        else:
            Console().print(part)


def in_lines(values: Mapping[str, object]) -> str:
    """Names and values, one pair on each line."""
    width = max(map(len, values))
    return "\n".join(f"{name:>{width}}  {value}" for name, value in values.items())


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


def _shown(value: object, target: float | None) -> str:
    if target is not None and isinstance(value, float):
        return f"{value:,.3f} (≤ {target:g}{', missed' if value > target else ''})"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
