"""What all commands share: options, plain errors, a sign of life."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """A mistake in the input is one sentence and exit code 2."""
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


def need_torch() -> None:
    """Refuse in one sentence where the training parts are not installed."""
    from importlib.util import find_spec

    from precad.errors import PrecadError

    missing = [name for name in ("torch", "matplotlib", "PIL", "sklearn") if find_spec(name) is None]
    if missing:
        raise PrecadError(f"training needs {', '.join(missing)}: install it with `pip install 'precad[train]'`")


@contextmanager
def working(what: str) -> Iterator[None]:
    """A sign of life on the terminal, out of the way of the output."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
