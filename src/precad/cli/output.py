"""What the commands share when they answer: errors in one sentence, a sign of life, tables, JSON."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import typer


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn a mistake in the input into one sentence and exit code 2."""
    from precad.errors import PrecadError

    try:
        yield
    except (ValueError, PrecadError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        named = f" ({error.filename})" if error.filename else ""
        typer.echo(f"Error: {error.strerror or error}{named}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import within this: where the extra is not installed, the error says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is not installed: pip install 'precad[{extra}]'") from None


def need_torch() -> None:
    """Refuse in one sentence where the training parts are not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "matplotlib", "PIL", "sklearn") if find_spec(name) is None]
    if missing:
        raise ValueError(f"training needs {', '.join(missing)}: install it with `pip install 'precad[train]'`")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a sign of life on the terminal, out of the way of the output."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def print_json(value: object) -> None:
    """Print a value for machines."""
    typer.echo(json.dumps(value, indent=2))


def print_lines(values: Mapping[str, object]) -> None:
    """Print names and values, one pair on each line."""
    width = max(map(len, values))
    for name, value in values.items():
        typer.echo(f"{name:>{width}}  {value}")


def print_figures(
    command: str,
    rows: Mapping[str, Mapping[str, object]],
    as_json: bool,
    targets: Mapping[str, float] | None = None,
) -> None:
    """Print what was measured, a table for each row; a figure with a target says whether it misses it."""
    if as_json:
        print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    for name, row in rows.items():
        table = Table("figure", title=f"precad bench {command}: {name}")
        table.add_column("value", justify="right")
        for figure, value in row.items():
            inner = value.items() if isinstance(value, Mapping) else ()
            for label, number in [(f"{figure}: {part}", each) for part, each in inner] or [(figure, value)]:
                table.add_row(label, _shown(number, (targets or {}).get(label)))
        Console().print(table)


def _shown(value: object, target: float | None) -> str:
    if target is not None and isinstance(value, float):
        return f"{value:,.3f} (≤ {target:g}{', missed' if value > target else ''})"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
