"""Pictures as PNG: the curves of a run, and what a run costs by epoch.

They stand apart so that the core, which a server runs, needs no plotting library: matplotlib comes with the extra
``train``, and whoever imports this module must be ready for a ``ModuleNotFoundError``.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from precad.plotting import new_figure, save_figure
from precad.privacy.curve import Curve, CurveLine
from precad.privacy.terms import Adversary
from precad.report.run import RoundFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_run(rounds: Sequence[RoundFigures], title: str, path: Path, *, note: str = "") -> None:
    """Draw test accuracy and ε against each adversary by round; the file is written whole or not at all."""
    figure = new_figure(9, 3.4)
    figure.suptitle(f"{title}\n{note}" if note else title, parse_math=False)
    left, right = figure.subplots(1, 2)
    _curve(left, rounds, "test_accuracy", "test accuracy", "-")
    left.set(xlabel="round", ylabel="test accuracy")
    _curve(right, rounds, "epsilon_server", "against a server", "-")
    _curve(right, rounds, "epsilon_clients", "against clients", "--")
    right.set(xlabel="round", ylabel="ε", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False)
    save_figure(figure, path)


def draw_privacy(curve: Curve, path: Path) -> None:
    """Draw the paper's Figure 2, left: solid for the server, dashed for clients, thin for GDP as in the paper."""
    figure = new_figure(6.4, 4.4)
    axes = figure.add_subplot()
    sigmas = list(dict.fromkeys(line.sigma for line in curve.lines))
    for line in curve.lines:
        _line(axes, line, f"C{sigmas.index(line.sigma)}")
    axes.plot([], [], color="grey", linewidth=0.7, alpha=0.6, label="thin: GDP, as in the paper (too small)")
    axes.set(xlabel="epoch", ylabel=f"ε at δ = {curve.delta:g}", title="What a run costs, by epoch (PLD)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", ncols=2, fontsize="x-small")
    size = curve.rounds_per_epoch
    rounds = axes.secondary_xaxis(
        "top", functions=(lambda epoch: np.multiply(epoch, size), lambda t: np.divide(t, size))
    )
    rounds.set_xlabel("iterations T")
    save_figure(figure, path)


def _curve(axes: "Axes", rounds: Sequence[RoundFigures], figure: str, label: str, style: str) -> None:
    points = [(line.round, value) for line in rounds if (value := getattr(line, figure)) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), style, label=label)


def _line(axes: "Axes", line: CurveLine, colour: str) -> None:
    style = "-" if line.adversary is Adversary.SERVER else "--"
    epochs = [point.epoch for point in line.points]
    bounds = [point.pld if math.isfinite(point.pld) else math.nan for point in line.points]
    axes.plot(epochs, bounds, style, color=colour, label=f"σ = {line.sigma:g}, {line.adversary.value}")
    axes.plot(epochs, [point.gdp for point in line.points], style, color=colour, linewidth=0.7, alpha=0.6)
