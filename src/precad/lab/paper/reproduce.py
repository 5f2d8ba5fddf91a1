"""``precad reproduce``: from a target to its runs, its figures and its tables."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from precad.files import make_folder
from precad.lab.paper import claims, figures, heatmap, plan, runner, table1
from precad.lab.paper.heatmap import Board
from precad.lab.paper.plan import Dataset, Experiment, Scale
from precad.lab.paper.rows import Row, RowFile
from precad.mpc.cores import usable_cores

Target = Literal["fig2", "fig3", "fig4", "fig5", "table1", "claims", "heatmap", "all"]
TABLE_SEED = 1
_DAYS = 1e6
"""Seconds over which the time left is estimated: runs take minutes, and rich looks back half a one."""


@dataclass(frozen=True)
class _Figure:
    runs: Callable[[Scale], list[Experiment]]
    draw: Callable[[Scale, RowFile, Path], None]


FIGURES: Mapping[str, _Figure] = {
    "fig2": _Figure(plan.figure_2, figures.draw_figure_2),
    "fig3": _Figure(plan.figure_3, figures.draw_figure_3),
    "fig4": _Figure(plan.figure_4, figures.draw_figure_4),
    "fig5": _Figure(plan.figure_5, figures.draw_figure_5),
}


@dataclass(frozen=True)
class Order:
    """What a person asked `precad reproduce` for."""

    target: Target
    quick: bool
    out: Path
    data: Path | None = None
    jobs: int = 1
    runs: bool = True
    """Make the runs that are missing."""
    datasets: tuple[Dataset, ...] = plan.DATASETS
    seeds: int | None = None
    rounds: Mapping[Dataset, int] = field(default_factory=dict)
    """T, in place of the grid's own."""
    attacks: tuple[str, ...] = ()
    """More attacks for the heat map, as module:function."""
    defences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {self.jobs}")
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        if self.target == "heatmap" and self.datasets != plan.DATASETS:
            raise ValueError("the heat map is on MNIST, or, quick, on the small digits: leave out --dataset")
        if self.target != "heatmap" and (self.attacks or self.defences):
            raise ValueError("--attack and --defence are for the heat map: `precad reproduce heatmap`")
        if self.target == "fig2" and "mnist" not in self.datasets:
            raise ValueError("Figure 2 is on MNIST: leave out --dataset")

    def scale(self) -> Scale:
        """How much of the grid of the paper's figures is run."""
        scale = replace(plan.QUICK if self.quick else plan.FULL, datasets=self.datasets)
        if self.seeds is not None:
            scale = replace(scale, seeds=tuple(range(1, self.seeds + 1)))
        return plan.with_rounds(scale, self.rounds)

    def board(self) -> Board:
        """The heat map: on MNIST, or, quick, on the small digits."""
        dataset, rounds, attackers = ("digits", 60, 4) if self.quick else ("mnist", 500, 10)
        attacks = tuple(dict.fromkeys((*heatmap.ATTACKS, *self.attacks)))
        defences = tuple(dict.fromkeys((*heatmap.DEFENCES, *self.defences)))
        rounds = self.rounds.get("mnist", rounds)
        return Board(dataset, rounds, attackers, self.scale().seeds, attacks, defences, self.quick)


def reproduce(order: Order, console: Console) -> list[Path]:
    """Make the runs that are missing, and write what the target names; the files that were written."""
    make_folder(order.out, inner=order.quick)
    rows = RowFile(order.out)
    scale = order.scale()
    wanted = [name for name in FIGURES if order.target in (name, "all") and FIGURES[name].runs(scale)]
    experiments = claims.experiments(scale) if order.target in ("claims", "all") else []
    experiments += [run for name in wanted for run in FIGURES[name].runs(scale)]
    board = order.board() if order.target == "heatmap" else None
    if board is not None:
        experiments = board.experiments()
    if order.runs and experiments:
        with rows.locked():
            todo, number = runner.missing(experiments, rows), len(plan.unique(experiments))
            console.print(f"{number - len(todo)} of {number} runs are in {rows.path}", highlight=False, soft_wrap=True)
            _make(todo, rows, order, console)
    written = [order.out / f"{name}.png" for name in wanted]
    for name, path in zip(wanted, written, strict=True):
        FIGURES[name].draw(scale, rows, path)
    if board is not None:
        written += [order.out / "heatmap.png", order.out / "heatmap.md"]
        heatmap.draw(board, rows, written[-2])
        heatmap.write(board, rows, written[-1])
    if order.target in ("table1", "claims", "all"):
        table = table1.measure(TABLE_SEED)
        written.append(order.out / "table1.md")
        table1.write(table, written[-1])
        if order.target != "table1":
            written.append(order.out / "claims.md")
            machine = f"{usable_cores()} cores, {platform.machine()}"
            claims.write(scale, claims.judge(scale, rows, table), rows, machine, written[-1])
    return written


def _make(todo: list[Experiment], rows: RowFile, order: Order, console: Console) -> None:
    """All runs, with a bar on a terminal and a line for each run elsewhere."""
    if not todo:
        return
    so_far = (TextColumn("runs"), MofNCompleteColumn(), BarColumn(None), TimeElapsedColumn())
    columns = (*so_far, TextColumn("left"), TimeRemainingColumn())
    off = not console.is_terminal
    with Progress(*columns, console=console, disable=off, speed_estimate_period=_DAYS) as progress:
        bar, numbers = progress.add_task("", total=len(todo)), count(1)

        def on_row(experiment: Experiment, row: Row) -> None:
            progress.advance(bar)
            if not console.is_terminal:
                line = f"{next(numbers)}/{len(todo)}  {_line(experiment, row)}"
                console.print(line, highlight=False, soft_wrap=True)

        runner.run_all(todo, rows, order.data, order.jobs, on_row)


def _line(experiment: Experiment, row: Row) -> str:
    training, task, malicious = experiment.config.training, experiment.config.task, experiment.config.malicious
    attack = f"{malicious.attack}{heatmap.WITHIN * malicious.within_bound}" if malicious.clients else heatmap.NO_ATTACK
    parts = [
        f"{task.dataset} {training.defence or training.protocol.value} σ={training.noise_multiplier:g}",
        f"n={task.clients} K={malicious.clients} attack={attack} C={training.client_bound:g}",
        f"seed={experiment.config.seed} accuracy={row.final_accuracy:.3f}",
    ]
    if row.backdoor:
        parts.append(f"backdoor={row.final_backdoor:.3f}")
    return " ".join([*parts, f"{row.seconds:.0f} s"])
