"""``precad privacy``: what a run costs in ε."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from precad.cli.options import JsonOption, plain_errors, working

if TYPE_CHECKING:
    from precad.privacy.report import Question


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
        float | None,
        typer.Option(help="Find the σ for this ε against whom --noise is for; with --sigma, the most rounds."),
    ] = None,
    unit: Annotated[Literal["record", "client"], typer.Option(help="What is protected.")] = "record",
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Unit client: the other clients cannot see who took part.")
    ] = False,
    group: Annotated[int, typer.Option(help="K, how many records or clients are protected together.")] = 1,
    noise: Annotated[
        Literal["server", "clients"], typer.Option(help="Whom each server's noise is for: σ each, or σ/√2 each.")
    ] = "server",
    dim: Annotated[int, typer.Option(help="d, the model's parameters: the noise sampler's term in δ.")] = 26_010,
    curve: Annotated[bool, typer.Option("--curve", help="ε by epoch instead, for σ = 1, 1.5, 2 or --sigma.")] = False,
    out: Annotated[Path, typer.Option(help="Where --curve writes its picture.")] = Path("curve.png"),
    as_json: JsonOption = False,
) -> None:
    """Show what a run costs one record in ε, against a corrupted server and against the other clients."""
    from precad.privacy import report as privacy_report
    from precad.privacy.accounting import Adversary

    with plain_errors():
        question = privacy_report.Question(
            rounds=rounds,
            client_rate=client_rate,
            record_rate=record_rate,
            delta=delta,
            participations=participations,
            unit=unit,
            hidden=hidden,
            group=group,
            noise=Adversary(noise),
            dim=dim,
        )
        if curve:
            _show_curve(question, sigma, target_epsilon, out, as_json)
            return
        with working("accounting"):
            report = privacy_report.make(question, sigma, target_epsilon)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
        return
    from rich.console import Console

    Console().print(report.as_table(), report.notes(), sep="\n")


def _show_curve(question: "Question", sigma: float | None, target: float | None, out: Path, as_json: bool) -> None:
    from precad.privacy import curve as privacy_curve

    if target is not None:
        raise ValueError("--curve takes --sigma, not --target-epsilon")
    with working("accounting for 200 points"):
        curve = privacy_curve.make(question, privacy_curve.PAPER_SIGMAS if sigma is None else (sigma,))
    typer.echo(json.dumps(curve.as_json(), indent=2) if as_json else curve.as_text())
    try:
        from precad.cli import privacy_plot as plots
    except ModuleNotFoundError:
        typer.echo(
            "No picture was written: it needs matplotlib; install it with: pip install 'precad[train]'", err=True
        )
        return
    try:
        plots.privacy_curve(curve, out)
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written: {error.strerror}") from None
    typer.echo(f"The picture is in {out}.", err=True)
