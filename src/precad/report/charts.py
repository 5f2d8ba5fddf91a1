"""The charts of a page as values: curves over rounds.

The template draws them as inline SVG, readable and printable as they are; ``report.js`` adds hover, zoom and hiding.
Colours, dashes and fonts are in ``report.css``, by class, so that a picture follows light and dark.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import ClassVar

from precad.report.figures import Figures
from precad.report.run import Run

MOST_POINTS = 400
MOST_ROWS = 100
"""The most clients that the grid shows, the rejected ones first; the table shows all."""


@dataclass(frozen=True)
class Plot:
    """The rectangle of a chart in which its curves are."""

    x: int = 58
    y: int = 12
    w: int = 448
    h: int = 218


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    """Of the palette, counted from 0."""
    dashed: bool = False

    @property
    def style(self) -> str:
        """Its classes."""
        return f"c{self.colour % 8}{' dashed' if self.dashed else ''}"


@dataclass(frozen=True)
class Frame:
    """The values at the edges of a chart: rounds from left to right, figures from low to high."""

    left: float
    right: float
    low: float
    high: float
    step: float
    """From one label of the vertical axis to the next."""


@dataclass(frozen=True)
class Chart:
    """Curves over rounds. A series without points is left out."""

    plot: ClassVar = Plot()

    key: str
    """Its id in the page."""
    title: str
    unit: str
    """What the vertical axis shows."""
    series: tuple[Series, ...]
    levels: tuple[tuple[str, float], ...] = ()
    """Horizontal lines: (name, height)."""
    last: float = 0.0
    """The round up to which the horizontal axis goes, at least."""
    from_zero: bool = False
    percent: bool = False
    note: str = ""

    @cached_property
    def curves(self) -> list[Series]:
        """The series that have points."""
        return [item for item in self.series if len(item.x)]

    @cached_property
    def frame(self) -> Frame:
        """Its edges: whole steps of the vertical axis, with every figure inside."""
        ys = [end for item in self.curves for end in (min(item.y), max(item.y))]
        ys += [height for _, height in self.levels]
        low, high = min(0.0, *ys) if self.from_zero else min(ys), max(ys)
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        step = _nice((high - low) / 4)
        first = min(min(item.x) for item in self.curves)
        last = max(self.last, *(max(item.x) for item in self.curves))
        left = 0.0 if first <= 0.1 * last else first
        low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
        return Frame(left, max(last, left + 1), low, high, step)

    def x(self, value: float) -> float:
        """Where a round is in the picture."""
        return self.plot.x + (value - self.frame.left) / (self.frame.right - self.frame.left) * self.plot.w

    def y(self, value: float) -> float:
        """Where a figure is in the picture."""
        share = (value - self.frame.low) / (self.frame.high - self.frame.low)
        return self.plot.y + self.plot.h - share * self.plot.h

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Places and labels of the horizontal axis."""
        left, right = self.frame.left, self.frame.right
        step = max(1.0, _nice((right - left) / 5))
        first, last = math.ceil(left / step), math.floor(right * (1 + 1e-9) / step)
        return [(self.x(i * step), _label(i * step)) for i in range(first, last + 1)]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Places and labels of the vertical axis."""
        low, step = self.frame.low, self.frame.step
        values = (low + i * step for i in range(round((self.frame.high - low) / step) + 1))
        return [
            (self.y(value), _label(0.0 if abs(value) < step / 1e6 else round(value, 12), percent=self.percent))
            for value in values
        ]

    def path(self, item: Series) -> str:
        """A curve, as SVG writes it."""
        points = [f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in zip(item.x, item.y, strict=True)]
        return "M" + "L".join(points) + ("h.1" if len(points) == 1 else "")

    @property
    def summary(self) -> str:
        """Where each curve begins and ends, for those who do not see it."""

        def end(item: Series, i: int) -> str:
            return f"{_label(item.y[i], percent=self.percent)} in round {_label(item.x[i])}"

        return "; ".join(f"{item.name}: {end(item, 0)}, {end(item, -1)}" for item in self.curves)

    @property
    def data(self) -> dict[str, object]:
        """What ``report.js`` needs."""
        curves = [
            {"name": item.name, "x": list(map(_short, item.x)), "y": list(map(_short, item.y)), "c": item.colour % 8}
            for item in self.curves
        ]
        edges = {"frame": asdict(self.frame), "plot": asdict(self.plot)}
        return {"percent": self.percent, "unit": self.unit, **edges, "series": curves}


def learning_charts(runs: Sequence[Run]) -> tuple[Chart, Chart]:
    """Test accuracy and test loss over rounds, the runs over each other."""
    many = len(runs) > 1
    names = [run.name if many else "" for run in runs]
    accuracy = (_series(run, "test_accuracy", names[i] or "test accuracy", i) for i, run in enumerate(runs))
    loss = (_series(run, "test_loss", names[i] or "test loss", i if many else 1) for i, run in enumerate(runs))
    return (
        Chart("accuracy", "Test accuracy", "accuracy", tuple(accuracy), percent=True),
        Chart("loss", "Test loss", "loss", tuple(loss), from_zero=True),
    )


def epsilon_chart(runs: Sequence[Run]) -> Chart:
    """ε against both adversaries, and the budgets."""
    many, series = len(runs) > 1, []
    for i, run in enumerate(runs):
        named = f"{run.name}, " if many else ""
        series.append(_series(run, "epsilon_server", f"{named}against a server", i))
        series.append(_series(run, "epsilon_clients", f"{named}against clients", i if many else 1, dashed=True))
    budgets = dict.fromkeys(budget for run in runs if (budget := run.config.training.budget) is not None)
    levels = tuple((f"budget ε = {budget:g}", budget) for budget in budgets)
    return Chart("epsilon", "ε by round", "ε", tuple(series), levels, from_zero=True)


def noise_chart(many: Sequence[Figures]) -> Chart:
    """‖opened sum‖ and √E‖noise‖² over rounds."""
    series, width = list[Series](), 1
    for i, figures in enumerate(many):
        run = figures.run
        named, colours = (f"{run.name}, ", (i, i)) if len(many) > 1 else ("", (0, 1))
        opened = [(line.round, line.update_norm) for line in run.rounds if line.update_norm is not None]
        x, y, each = thinned([x for x, _ in opened], [y for _, y in opened])
        width = max(width, each)
        series.append(Series(f"{named}opened sum", x, y, colours[0]))
        if figures.noise_norms is not None:
            x, y, _ = thinned([line.round for line in run.rounds], figures.noise_norms)
            series.append(Series(f"{named}noise, expected", x, y, colours[1], dashed=True))
    title, last = "Norm of the opened sum, and of the noise in it", max(figures.run.done for figures in many)
    note = f"A point is the mean of {'up to ' if len(many) > 1 else ''}{width} rounds." if width > 1 else ""
    return Chart("norms", title, "norm", tuple(series), last=last, note=note)


def thinned(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float], int]:
    """At most ``MOST_POINTS`` points, each the mean of its neighbours."""
    width = max(1, -(-len(x) // MOST_POINTS))

    def means(values: Sequence[float]) -> list[float]:
        parts = (values[start : start + width] for start in range(0, len(values), width))
        return [sum(part) / len(part) for part in parts]

    return means(x), means(y), width


def _series(run: Run, figure: str, name: str, colour: int, *, dashed: bool = False) -> Series:
    """Figures as they were taken, every few where there are many, the last among them."""
    points = [(line.round, float(value)) for line in run.rounds if (value := getattr(line, figure)) is not None]
    every = max(1, -(-len(points) // MOST_POINTS))
    chosen = points[(len(points) - 1) % every :: every]
    return Series(name, [x for x, _ in chosen], [y for _, y in chosen], colour, dashed)


def _label(value: float, *, percent: bool = False) -> str:
    """A number on an axis or in words."""
    if percent:
        return f"{100 * value:.4g}\u00a0%"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _short(value: float) -> float | int:
    """As many digits as a tooltip shows."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _nice(step: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is at least ``step``."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= step * (1 - 1e-9))
