"""The command line: thin commands over the package, each in plain words."""

import io
import json
import sys
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold shares and seeds
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure the speed of precad on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from precad import __version__

        typer.echo(f"precad {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train one model across organisations that do not trust each other with their data."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows "?", not a traceback


@app.command()
def demo() -> None:
    """Run one round of the protocol in memory and show who sees what."""
    from precad import demo as demonstration

    demonstration.run()


@bench.command()
def arithmetic(as_json: JsonOption = False) -> None:
    """Time the field, the mask generator, sharing and noise against numpy and the raw cipher."""
    from precad.bench import arithmetic as benchmark

    rows = benchmark.run()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("entries", "operation", "ms", "compared with", "ratio", "target", title="precad bench arithmetic")
    for row in rows:
        for name, (base, target) in benchmark.TARGETS.items():
            ratio = row["ratios"][name]
            mark = "" if ratio <= target else " missed"
            table.add_row(
                f"{row['size']:,}",
                name,
                f"{row['ms'][name]:.3f}",
                base,
                f"{ratio:.2f}",
                f"≤ {target:g}{mark}",
            )
    Console().print(table)
