"""The command line: thin commands over the package, each in plain words."""

import io
import json
import sys
from typing import Annotated, Literal

import typer

from precad.cli import certify as cli_certify
from precad.cli import deploy as services_cli
from precad.cli import ledger as cli_ledger
from precad.cli import privacy as cli_privacy
from precad.cli import report as cli_report
from precad.cli import reproduce as cli_reproduce
from precad.cli import train as cli_train
from precad.cli.options import JsonOption, need_torch, plain_errors, working

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold shares and seeds
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure the speed of precad on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.command()(cli_train.train)
app.command()(cli_train.resume)
app.command()(cli_report.report)
app.command()(cli_report.watch)
app.command()(cli_reproduce.reproduce)
app.command()(cli_privacy.privacy)
app.command()(cli_certify.certify)
app.add_typer(cli_ledger.ledger, name="ledger")
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


@app.command()
def demo() -> None:
    """Run one round of the protocol in memory and show who sees what."""
    from precad.lab import demo as demonstration

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
    from precad.protocol import explain as explanation
    from precad.protocol.params import Params, Validation

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


@bench.command("protocol")
def bench_protocol(
    dim: Annotated[int, typer.Option(help="d, the number of the model's parameters.")] = 26_010,
    clients: Annotated[int, typer.Option(help="Submissions in the round.")] = 10,
    mode: ModeOption = "proof",
    as_json: JsonOption = False,
) -> None:
    """Time one round, party by party, against the keystream that each must expand and against a plain sum."""
    from precad.lab.bench import protocol as benchmark
    from precad.protocol.params import Validation

    with plain_errors(), working(f"timing rounds of {clients} submissions of {dim:,} parameters"):
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


@bench.command("training")
def bench_training(as_json: JsonOption = False) -> None:
    """Time one iteration of training, ten clients, under each protocol; and per-record gradients against Opacus."""
    with plain_errors(), working("timing iterations of training"):
        need_torch()
        from precad.lab.bench import training as benchmark

        rows = benchmark.run()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    for name, row in rows.items():
        table = Table("figure", title=f"precad bench training: {name}")
        table.add_column("value", justify="right")
        stages = {f"stage: {stage}": value for stage, value in row.pop("stages_ms").items()}
        for figure, value in (row | stages).items():
            target = benchmark.TARGETS.get(figure)
            limit = f" (≤ {target:g}{'' if value <= target else ', missed'})" if target else ""
            table.add_row(figure, "-" if value is None else f"{value:,.2f}{limit}")
        Console().print(table)


@bench.command("deployment")
def bench_deployment(
    dim: Annotated[int, typer.Option(help="d, the number of the model's parameters.")] = 26_010,
    clients: Annotated[int, typer.Option(help="SuperNodes.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds that are timed.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Time a round on Flower, in simulation and over real processes, with plain updates, precad, and SecAgg+."""
    with plain_errors(), working("timing rounds on Flower"):
        try:
            from precad.lab.bench import flower as benchmark
        except ModuleNotFoundError as error:
            raise ValueError(f"{error.name} is not installed: pip install 'precad[flower]'") from None
        rows = benchmark.run(dim, clients, rounds)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for kind, row in rows.items():
        beside = f"  SecAgg+ {row['secagg_s']:.2f} s  {row['secagg_ratio']:.2f} times" if "secagg_s" in row else ""
        plain = f"plain {row['plain_s']:.2f} s  precad {row['precad_s']:.2f} s  {row['ratio']:.2f} times"
        typer.echo(f"{kind:>10}  {plain}{beside}")


@bench.command("server")
def bench_server(
    submissions: Annotated[int, typer.Option(help="Submissions in the one large round.")] = 200,
    dim: Annotated[int, typer.Option(help="d in the large round.")] = 122_570,
    soak_rounds: Annotated[int, typer.Option(help="Rounds of the soak.")] = 1_000,
    soak_submissions: Annotated[int, typer.Option(help="Submissions in each round of the soak.")] = 10,
    soak_dim: Annotated[int, typer.Option(help="d in the soak.")] = 1_000,
    as_json: JsonOption = False,
) -> None:
    """Put server B under load over mutual TLS: one large round, then a soak; fail if anything is lost."""
    with plain_errors(), working("running rounds with server B"):
        try:
            from precad.lab.bench import server as benchmark
        except ModuleNotFoundError as error:
            raise ValueError(f"{error.name} is not installed: pip install 'precad[server]'") from None
        rows = benchmark.run((1, submissions, dim), (soak_rounds, soak_submissions, soak_dim))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for name, row in rows.items():
        typer.echo(name)
        for figure, value in row.items():
            typer.echo(f"{figure:>28}  {f'{value:,.3f}' if isinstance(value, float) else value}")


@bench.command()
def arithmetic(as_json: JsonOption = False) -> None:
    """Time the field, the mask generator, sharing and noise against numpy and the raw cipher."""
    from precad.lab.bench import arithmetic as benchmark

    with working("timing the arithmetic"):
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
