"""``precad ledger``: show, verify, export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from precad.cli.options import JsonOption, plain_errors, working

ledger = typer.Typer(help="Read the ledger of who took part, and what it cost.", no_args_is_help=True)

LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file.")]


@ledger.command("show")
def ledger_show(path: LedgerPath, as_json: JsonOption = False) -> None:
    """Show every client's participations and what they have cost it in ε."""
    from precad.privacy.ledger import Ledger

    with plain_errors(), working("accounting"):
        exported = Ledger.load(path).export()
    if as_json:
        typer.echo(json.dumps(exported["clients"], indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("client", title=f"{len(exported['rounds']):,} rounds, δ = {exported['terms']['delta']:g}")
    for column in ("participations", "ε against server", "ε against clients"):
        table.add_column(column, justify="right")
    for name, client in exported["clients"].items():
        costs = (client["epsilon"][adversary] for adversary in ("server", "clients"))
        shown = ("none" if cost is None else f"{cost:.3f}" for cost in costs)
        table.add_row(Text(name), f"{client['participations']:,}", *shown)
    Console().print(table)


@ledger.command("verify")
def ledger_verify(path: LedgerPath) -> None:
    """Recompute every link of the hash chain and every count."""
    from precad.privacy.ledger import Ledger

    with plain_errors():
        last = Ledger.load(path).verify()
    typer.echo(f"the ledger is whole; its last link is {last or 'none: no round was counted'}")


@ledger.command("export")
def ledger_export(
    path: LedgerPath,
    as_csv: Annotated[bool, typer.Option("--csv", help="One line a client, instead of JSON.")] = False,
) -> None:
    """Print all that an auditor needs to recompute every figure, as JSON or CSV."""
    from precad.privacy.ledger import Ledger

    with plain_errors(), working("accounting"):
        book = Ledger.load(path)
        typer.echo(book.export_csv().rstrip() if as_csv else json.dumps(book.export(), indent=2))
