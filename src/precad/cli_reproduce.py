"""The command that repeats the paper's evaluation."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from precad.cli_common import need_torch, plain_errors
from precad.cli_train import DataOption


def reproduce(
    target: Annotated[
        Literal["fig2", "fig3", "fig4", "fig5", "table1", "claims", "heatmap", "all"],
        typer.Argument(
            help="A figure or table of the paper; claims: the runs that its sentences need; all but the heat map."
        ),
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="The same code, far fewer rounds: under 20 minutes.")] = False,
    jobs: Annotated[int, typer.Option(help="Runs at a time, each in a process with one torch thread.")] = 2,
    data: DataOption = None,
    out: Annotated[Path, typer.Option(help="The folder of rows, figures and tables.")] = Path("results"),
    dataset: Annotated[
        list[str] | None, typer.Option(help="mnist or cifar10; both if not given. May be repeated.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds 1 to this number; 3, or 1 if quick.")] = None,
    runs: Annotated[
        bool, typer.Option("--runs/--no-runs", help="Make the runs that are missing, or draw and judge what there is.")
    ] = True,
    rounds: Annotated[int | None, typer.Option(help="T, in place of the paper's 5000.")] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="Your module:function, one more row of the heat map. May be repeated.")
    ] = None,
    defence: Annotated[
        list[str] | None, typer.Option(help="Your module:function, one more column of it. May be repeated.")
    ] = None,
) -> None:
    """Repeat the paper's evaluation: runs, figures, and what becomes of each claim.

    A run that was made is kept in rows.jsonl and never made again: Ctrl-C stops, the same command goes on.
    """
    with plain_errors():
        need_torch()
        from rich.console import Console

        from precad.experiments import reproduce as experiments
        from precad.experiments.plan import DATASETS

        chosen = tuple(known for known in DATASETS if known in (dataset or DATASETS))
        for name in dataset or ():
            if name not in DATASETS:
                raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")
        folder = out / "quick" if quick else out
        order = experiments.Order(
            target, quick, folder, data, jobs, runs, chosen, seeds, rounds, tuple(attack or ()), tuple(defence or ())
        )
        console = Console()
        try:
            written = experiments.reproduce(order, console)
        except KeyboardInterrupt:
            console.print(f"stopped; the rows so far are in {folder}, and the same command goes on", highlight=False)
            raise typer.Exit(130) from None
        for path in written:
            console.print(str(path), highlight=False, soft_wrap=True)
