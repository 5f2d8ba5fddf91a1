"""Pictures as PNG. matplotlib comes with the extra ``train``: without it, this module is a ``ModuleNotFoundError``."""

from pathlib import Path

from precad.elsewhere import elsewhere
from precad.files import whole_file

with elsewhere():  # it would read a matplotlibrc of the working folder
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the file is written whole or not at all."""
    with whole_file(path) as out:
        figure.savefig(out, dpi=150, format="png")
