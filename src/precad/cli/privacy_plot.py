"""Figures as PNG: the one module outside the training parts that imports matplotlib.

It stands apart so that the core, which a server runs, needs no plotting library: matplotlib comes with the extra
``train``, and whoever imports this module must be ready for a ``ModuleNotFoundError``.
"""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from precad.privacy.accounting import Adversary
from precad.privacy.curve import Curve, Line


def privacy_curve(curve: Curve, path: Path) -> None:
    """The paper's Figure 2, left: solid for the server, dashed for clients, thin for GDP as in the paper."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    sigmas = list(dict.fromkeys(line.sigma for line in curve.lines))
    for line in curve.lines:
        _draw(axes, line, f"C{sigmas.index(line.sigma)}")
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
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, line: Line, colour: str) -> None:
    style = "-" if line.adversary is Adversary.SERVER else "--"
    epochs = [point.epoch for point in line.points]
    bounds = [point.pld if math.isfinite(point.pld) else math.nan for point in line.points]
    axes.plot(epochs, bounds, style, color=colour, label=f"σ = {line.sigma:g}, {line.adversary.value}")
    axes.plot(epochs, [point.gdp for point in line.points], style, color=colour, linewidth=0.7, alpha=0.6)
