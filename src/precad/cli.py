"""The command line: thin commands over the package, each in plain words."""

import io
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from precad import services_cli
from precad.cli_common import JsonOption, plain_errors

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold shares and seeds
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure the speed of precad on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
ledger = typer.Typer(help="Read the ledger of who took part, and what it cost.", no_args_is_help=True)
app.add_typer(ledger, name="ledger")
services_cli.mount(app)

ModeOption = Annotated[Literal["proof", "triples", "none"], typer.Option(help="How updates are validated.")]


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


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A sign of life on the terminal, out of the way of the output."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@app.command()
def demo() -> None:
    """Run one round of the protocol in memory and show who sees what."""
    from precad import demo as demonstration

    demonstration.run()


@app.command()
def protocol(
    dim: Annotated[int, typer.Option(help="d, the number of the model's parameters.")] = 26_010,
    clients: Annotated[int, typer.Option(help="n, the number of clients.")] = 100,
    record_bound: Annotated[float, typer.Option(help="R, the bound on one record's gradient.")] = 2.0,
    client_bound: Annotated[float, typer.Option(help="C, the bound on a client's update.")] = 30.0,
    noise_multiplier: Annotated[float, typer.Option(help="σ, each server's noise over the sensitivity.")] = 1.0,
    mode: ModeOption = "proof",
    explain: Annotated[bool, typer.Option("--explain", help="Say where each number comes from.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the numbers of the protocol for given parameters: grid, noise, soundness, bytes."""
    from precad import explain as explanation
    from precad.params import Params, Validation

    with plain_errors():
        params = Params(
            dim=dim,
            clients=clients,
            record_bound=record_bound,
            client_bound=client_bound,
            noise_multiplier=noise_multiplier,
            validation=Validation(mode),
        )
        lines = explanation.explain(params)
    if as_json:
        typer.echo(json.dumps({line.key: line.value for line in lines}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"validation by {mode}, d = {dim:,}, C = {client_bound:g}")
    table.add_column("number", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    if explain:
        table.add_column("why")
    for line in lines:
        table.add_row(line.name, line.shown, *([line.why] if explain else []))
    Console().print(table)


@app.command()
def privacy(
    sigma: Annotated[float | None, typer.Option(help="σ, each server's noise over the sensitivity.")] = None,
    rounds: Annotated[int, typer.Option(help="T, the rounds of the run.")] = 5000,
    client_rate: Annotated[float, typer.Option(help="q, the probability that a client is selected.")] = 0.1,
    record_rate: Annotated[float, typer.Option(help="p, the probability that a record is in a sample.")] = 0.05,
    delta: Annotated[float, typer.Option(help="δ, far below one over the number of records.")] = 1e-5,
    participations: Annotated[
        int | None, typer.Option(help="T_i, the most rounds a client takes part in; ⌈q·T⌉ if not given.")
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Find the σ for this ε against a corrupted server, and show it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run costs one record in ε, against a corrupted server and against the other clients."""
    from precad import privacy_report

    with plain_errors(), _working("accounting"):
        report = privacy_report.make(
            sigma=sigma,
            rounds=rounds,
            client_rate=client_rate,
            record_rate=record_rate,
            delta=delta,
            participations=participations,
            target_epsilon=target_epsilon,
        )
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
        return
    from rich.console import Console

    Console().print(report.as_table(), report.notes(), sep="\n")


@app.command()
def certify(
    malicious: Annotated[int, typer.Option(help="K, the number of malicious clients.")] = 1,
    rounds: Annotated[int, typer.Option(help="T, the rounds of the run.")] = 5000,
    client_rate: Annotated[float, typer.Option(help="q, the probability that a client is selected.")] = 0.1,
    sigma: Annotated[float, typer.Option(help="σ, each server's noise over the sensitivity R.")] = 1.0,
    record_bound: Annotated[float, typer.Option(help="R, the bound on one record's gradient.")] = 2.0,
    client_bound: Annotated[float, typer.Option(help="C, the bound on a client's update.")] = 30.0,
    clean_loss: Annotated[float, typer.Option(help="L, the expected loss of a record without attack.")] = 0.05,
    largest_loss: Annotated[float, typer.Option(help="B, the largest loss there is.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Bound what malicious clients can do to the expected loss of a record, whatever they send."""
    from dataclasses import asdict

    from precad.privacy import certificate

    with plain_errors(), _working("certifying"):
        noise = math.sqrt(2) * sigma * record_bound / client_bound
        threat = certificate.Threat(malicious=malicious, rounds=rounds, client_rate=client_rate, noise=noise)
        bounds = certificate.rigorous(threat, clean_loss, largest_loss)
        paper = certificate.as_in_the_paper(threat, clean_loss, largest_loss)
        halfway = (clean_loss + largest_loss) / 2
        needed = certificate.least_noise(threat, clean_loss, halfway, largest_loss) if bounds.vacuous else None
    if as_json:
        answer = {"noise": noise, "rigorous": asdict(bounds), "paper": asdict(paper), "noise_needed": needed}
        typer.echo(json.dumps(answer, indent=2))
        return
    typer.echo(f"{malicious} malicious of all clients, noise σ̃ = √2·σ·R/C = {noise:.4g} in units of C")
    typer.echo(
        f"  certified: the expected loss is between {bounds.lower:.4f} and {bounds.upper:.4f} (clean: {clean_loss})"
    )
    typer.echo(f"  as in the paper (asymptotic, not a bound): between {paper.lower:.4f} and {paper.upper:.4f}")
    if needed is not None:
        typer.echo(
            f"The certificate is vacuous here: it says nothing. It falls below {halfway:g} from σ̃ = {needed:.3g} on: "
            f"{needed / noise:,.3g} times the noise, or as much less C, or fewer rounds, or a lower rate."
        )


LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file.")]


@ledger.command("show")
def ledger_show(path: LedgerPath, as_json: JsonOption = False) -> None:
    """Show every client's participations and what they have cost it in ε."""
    from precad.privacy.ledger import Ledger

    with plain_errors():
        exported = Ledger.load(path).export()
    if as_json:
        typer.echo(json.dumps(exported["clients"], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("client", title=f"{len(exported['rounds']):,} rounds, δ = {exported['terms']['delta']:g}")
    for column in ("participations", "ε against server", "ε against clients"):
        table.add_column(column, justify="right")
    for name, client in exported["clients"].items():
        costs = (f"{client['epsilon'][adversary]:.3f}" for adversary in ("server", "clients"))
        table.add_row(name, f"{client['participations']:,}", *costs)
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

    with plain_errors():
        book = Ledger.load(path)
        typer.echo(book.export_csv().rstrip() if as_csv else json.dumps(book.export(), indent=2))


@bench.command("protocol")
def bench_protocol(
    dim: Annotated[int, typer.Option(help="d, the number of the model's parameters.")] = 26_010,
    clients: Annotated[int, typer.Option(help="Submissions in the round.")] = 10,
    mode: ModeOption = "proof",
    as_json: JsonOption = False,
) -> None:
    """Time one round, party by party, against the keystream that each must expand and against a plain sum."""
    from precad.bench import protocol as benchmark
    from precad.params import Validation

    with plain_errors(), _working(f"timing rounds of {clients} submissions of {dim:,} parameters"):
        row = benchmark.run(dim, clients, Validation(mode))
    if as_json:
        typer.echo(json.dumps(row, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("figure", title="precad bench protocol")
    table.add_column("value", justify="right")
    for name, value in row.items():
        table.add_row(
            name, f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        )
    Console().print(table)


@bench.command("deployment")
def bench_deployment(
    dim: Annotated[int, typer.Option(help="d, the number of the model's parameters.")] = 26_010,
    clients: Annotated[int, typer.Option(help="SuperNodes.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds that are timed.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Time a round on Flower, in simulation and over real processes, with plain updates and with precad."""
    with plain_errors(), _working("timing rounds on Flower"):
        try:
            from precad.flower import bench as benchmark
        except ModuleNotFoundError as error:
            raise ValueError(f"{error.name} is not installed: pip install 'precad[flower]'") from None
        rows = benchmark.run(dim, clients, rounds)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for kind, row in rows.items():
        typer.echo(
            f"{kind:>10}  plain {row['plain_s']:.2f} s  precad {row['precad_s']:.2f} s  {row['ratio']:.2f} times"
        )


@bench.command()
def arithmetic(as_json: JsonOption = False) -> None:
    """Time the field, the mask generator, sharing and noise against numpy and the raw cipher."""
    from precad.bench import arithmetic as benchmark

    with _working("timing the arithmetic"):
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
