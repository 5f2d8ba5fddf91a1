"""Pictures of a run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw_curves(metrics: Iterable[dict[str, Any]], title: str, path: Path, *, note: str = "") -> None:
    """Test accuracy, and ε against each adversary, by round, under title and note; written whole or not at all."""
    looked = [line for line in metrics if "test_loss" in line or "epsilon_server" in line]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    figure.suptitle(f"{title}\n{note}" if note else title, parse_math=False)
    left, right = figure.subplots(1, 2)
    _curve(left, looked, "test_accuracy", "test accuracy", "-")
    left.set(xlabel="round", ylabel="test accuracy")
    _curve(right, looked, "epsilon_server", "against a server", "-")
    _curve(right, looked, "epsilon_clients", "against clients", "--")
    right.set(xlabel="round", ylabel="ε", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False)
    draft = path.with_name(f"{path.name}.draft")
    figure.savefig(draft, dpi=150, format="png")
    draft.replace(path)


def _curve(axes: Any, lines: list[dict[str, Any]], key: str, label: str, style: str) -> None:
    points = [(line["round"], line[key]) for line in lines if line.get(key) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), style, label=label)
