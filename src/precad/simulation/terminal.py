"""What a person sees of a run: a live view on a terminal, else a line now and then; and the table at the end."""

import math
from collections import Counter
from collections.abc import Iterable

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from precad.report.run import RoundFigures, Summary
from precad.simulation.session import Figures
from precad.simulation.trainer import Outcome, Trainer

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 40


class View:
    """Shows the rounds of one run on ``console`` while it is entered."""

    def __init__(self, console: Console, trainer: Trainer, before: Iterable[RoundFigures] = ()) -> None:
        """``before``: the rounds that were played until the run was stopped."""
        self._console, self._trainer = console, trainer
        self._rejections = Counter(name for line in before for name in line.rejected)
        self._accuracies: list[float] = []
        self._figures: Figures | None = None
        self._outcome: Outcome | None = None
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(None),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        rounds = trainer.hyperparameters.rounds
        self._bar = self._progress.add_task("", total=rounds, completed=trainer.progress.round)
        self._live = Live(self._render(), console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> "View":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, outcome: Outcome, figures: Figures | None) -> None:
        """One more round."""
        self._outcome = outcome
        self._rejections.update(outcome.rejected.keys())
        self._progress.update(self._bar, completed=outcome.round)
        if figures is not None:
            self._figures = figures
            if figures.accuracy is not None:
                self._accuracies.append(figures.accuracy)
            if not self._console.is_terminal:
                self._console.print(self._line(figures), highlight=False, soft_wrap=True)
        self._live.update(self._render())

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        if self._outcome is not None:
            accepted = len(self._outcome.selected) - len(self._outcome.rejected)
            table.add_row("this round", f"{accepted} accepted, {len(self._outcome.rejected)} rejected")
        if self._rejections:
            table.add_row("rejected", Text(self.rejections(), "red"))
        if self._figures is not None:
            spark = sparkline(self._accuracies[-_HISTORY:])
            table.add_row("after round", f"{self._figures.round:,}")
            table.add_row("test accuracy", f"{shown_percent(self._figures.accuracy)}  {spark}")
            table.add_row("ε against a server", shown_epsilon(self._figures.epsilon_server))
            table.add_row("ε against clients", shown_epsilon(self._figures.epsilon_clients))
        return Group(self._progress, table)

    def rejections(self) -> str:
        """Who was rejected, and how often."""
        sent = dict(zip(self._trainer.names, self._trainer.progress.participations.tolist(), strict=True))
        return ", ".join(f"{name} {times}/{sent[name]}" for name, times in self._rejections.most_common(5))

    def _line(self, figures: Figures) -> str:
        return (
            f"round {figures.round}/{self._trainer.hyperparameters.rounds}  "
            f"test accuracy {shown_percent(figures.accuracy)}  "
            f"ε server {shown_epsilon(figures.epsilon_server)}, clients {shown_epsilon(figures.epsilon_clients)}"
            + (f"  rejected: {self.rejections()}" if self._rejections else "")
        )


def end_table(summary: Summary) -> Table:
    """The run in one table."""
    table = Table(title=Text(f"run {summary.run}"), show_header=False)
    seconds = summary.seconds
    total = sum(seconds.values())
    parts = ", ".join(f"{stage} {100 * value / total:.0f} %" for stage, value in seconds.items())
    rows = [
        ("protocol", summary.protocol + (f", validation {summary.validation}" if summary.protocol == "precad" else "")),
        ("test accuracy", shown_percent(summary.test_accuracy)),
        (f"ε against a server (δ = {summary.delta:g})", shown_epsilon(summary.epsilon_server)),
        ("ε against the other clients", shown_epsilon(summary.epsilon_clients)),
        ("rounds", f"{summary.rounds:,}; a client took part in at most {summary.participations:,}"),
        ("time", f"{total:.1f} s ({parts})" if total else "0 s"),
        ("randomness", summary.randomness),
    ]
    if summary.backdoor_accuracy is not None:
        rows.insert(2, ("backdoor accuracy", shown_percent(summary.backdoor_accuracy)))
    for name, times in summary.rejected.items():
        rows.append((f"rejected: {name}", f"in {times['rejected']:,} of the {times['sent']:,} rounds it took part in"))
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def shown_percent(fraction: float | None) -> str:
    """A fraction for people."""
    return "-" if fraction is None else f"{100 * fraction:.1f} %"


def shown_epsilon(epsilon: float | None) -> str:
    """An ε for people."""
    return "none: no privacy" if epsilon is None or math.isinf(epsilon) else f"{epsilon:.3f}"


def sparkline(values: list[float]) -> str:
    """A small picture of a curve."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_BARS[round((value - low) * scale)] for value in values)
