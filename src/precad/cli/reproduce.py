"""The command that repeats the paper's evaluation."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from precad.cli.options import need_torch, plain_errors
from precad.cli.train import DataOption


def reproduce(
    target: Annotated[
        Literal["fig2", "fig3", "fig4", "fig5", "table1", "claims", "heatmap", "all"],
        typer.Argument(),
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
    rounds: Annotated[
        list[str] | None,
        typer.Option(help="T, in place of the grid's own; or DATASET=T, for one of them. May be repeated."),
    ] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="Your module:function, one more row of the heat map. May be repeated.")
    ] = None,
    defence: Annotated[
        list[str] | None, typer.Option(help="Your module:function, one more column of it. May be repeated.")
    ] = None,
) -> None:
    """Repeat the paper's evaluation: runs, figures, and what becomes of each claim.

    TARGET is a figure or table of the paper; claims, for the runs that its sentences need; heatmap, for attacks by
    defences; or all, which is all but the heat map.

    A run that was made is kept in rows.jsonl and not made again: Ctrl-C stops, the same command goes on.
    """
    with plain_errors():
        need_torch()
        from rich.console import Console

        from precad.lab.paper import reproduce as experiments
        from precad.lab.paper.plan import DATASETS, read_rounds

        chosen = tuple(known for known in DATASETS if known in (dataset or DATASETS))
        for name in dataset or ():
            if name not in DATASETS:
                raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")
        folder = out / "quick" if quick else out
        order = experiments.Order(
            target,
            quick,
            folder,
            data=data,
            jobs=jobs,
            runs=runs,
            datasets=chosen,
            seeds=seeds,
            rounds=read_rounds(rounds or ()),
            attacks=tuple(attack or ()),
            defences=tuple(defence or ()),
        )
        console = Console()
        try:
            written = experiments.reproduce(order, console)
        except KeyboardInterrupt:
            console.print(f"stopped; the rows so far are in {folder}, and the same command goes on", highlight=False)
            raise typer.Exit(130) from None
        for path in written:
            console.print(str(path), highlight=False, soft_wrap=True)
