"""What the command lines share."""

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
