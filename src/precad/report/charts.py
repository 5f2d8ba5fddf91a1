"""The pictures of a page as values: curves over rounds, and the grid of clients × rounds.

The template draws them as inline SVG, readable and printable as they are; ``report.js`` adds hover, zoom and hiding.
Colours, dashes and fonts are in ``report.css``, by class, so that a picture follows light and dark.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from precad.report.figures import Counts, Figures, Participation
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


@dataclass(frozen=True)
class Grid:
    """Clients × rounds: accepted in shades by how many of a column's rounds, any rejection in its own colour."""

    width: ClassVar[int] = 1040
    left: ClassVar[int] = 150
    shades: ClassVar[int] = 4

    taken: Participation

    @cached_property
    def rows(self) -> list[int]:
        """The clients that are shown, in the order of their names."""
        worst = np.argsort(-self.taken.rejected.sum(axis=1), kind="stable")[:MOST_ROWS]
        return sorted(worst.tolist())

    @property
    def height(self) -> int:
        """Of a row."""
        return 16 if len(self.rows) <= 30 else 9 if len(self.rows) <= 60 else 6

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.taken.took_part.shape[1])

    @property
    def cell(self) -> float:
        """The width of a column."""
        return (self.width - self.left) / self.columns

    @property
    def paths(self) -> list[tuple[str, str]]:
        """(classes, path) of all cells of one shade; cells side by side are one rectangle."""
        shades, found = self._shades(), []
        for shade in (*range(1, self.shades + 1), -1):
            rectangles = [
                f"M{self.left + start * self.cell:.2f} {row * self.height}"
                f"h{(end - start) * self.cell:.2f}v{self.height - 1}h{(start - end) * self.cell:.2f}z"
                for row, line in enumerate(shades)
                for start, end in _stretches(line == shade)
            ]
            if rectangles:
                found.append(("rejected" if shade < 0 else f"accepted a{shade}", "".join(rectangles)))
        return found

    def _shades(self) -> Counts:
        """0 absent, 1 to 4 by the share of the rounds, −1 where anything was rejected."""
        taken = self.taken
        sizes = np.array([last - first + 1 for first, last in map(taken.span, range(self.columns))])
        shares = taken.took_part / sizes
        if taken.width > 1 and shares.size:  # against the fullest cell: with q = 0.1 all would be pale
            shares = shares / max(1e-9, float(shares.max()))
        return np.where(taken.rejected > 0, -1, np.ceil(self.shades * shares).astype(np.int64))[self.rows]

    @property
    def names(self) -> list[tuple[int, str]]:
        """(place, name) of the rows, of every third where they are narrow."""
        every = 1 if self.height >= 12 else -(-16 // self.height)
        return [(place, self.taken.clients[row]) for place, row in enumerate(self.rows)][::every]

    @property
    def ticks(self) -> list[tuple[float, int]]:
        """(place, first round) of five columns."""
        marks = sorted({0, *(i * self.columns // 4 for i in (1, 2, 3)), self.columns - 1})
        return [(self.left + (column + 0.5) * self.cell, self.taken.span(column)[0]) for column in marks]

    @property
    def rejected_elsewhere(self) -> int:
        """How many of the clients that are not shown were ever rejected."""
        ever = self.taken.rejected.sum(axis=1) > 0
        return int(ever.sum() - ever[self.rows].sum())

    @property
    def data(self) -> dict[str, object]:
        """What ``report.js`` needs."""
        taken, rows = self.taken, self.rows
        return {
            "left": self.left,
            "cell": self.cell,
            "height": self.height,
            "width": taken.width,
            "rounds": taken.rounds,
            "names": [taken.clients[row] for row in rows],
            "sent": taken.took_part[rows].tolist(),
            "bad": taken.rejected[rows].tolist(),
        }


def _series(run: Run, figure: str, name: str, colour: int, *, dashed: bool = False) -> Series:
    """Figures as they were taken, every few where there are many, the last among them."""
    points = [(line.round, float(value)) for line in run.rounds if (value := getattr(line, figure)) is not None]
    every = max(1, -(-len(points) // MOST_POINTS))
    chosen = points[(len(points) - 1) % every :: every]
    return Series(name, [x for x, _ in chosen], [y for _, y in chosen], colour, dashed)


def _stretches(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Where a row of cells is true: from, and up to but without."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


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
