"""Line charts as inline SVG: readable and printable as they are; ``report.js`` adds hover, zoom and hiding.

Colours, dashes and fonts are in ``report.css``, by class, so that a chart follows light and dark.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 40
MOST_POINTS = 400


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int
    """Of the palette, counted from 0."""
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over rounds. A series without points is left out."""

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


def draw(chart: Chart, note: str = "") -> str:
    """The chart as a ``figure``, with a legend that is a row of buttons where a script runs."""
    series = [item for item in chart.series if len(item.x)]
    title = f"<figcaption id='{chart.key}-title'>{escape(chart.title)}</figcaption>"
    if not series:
        return f"<figure class='chart empty'>{title}<p class='note'>Nothing was recorded yet.</p></figure>"
    box = _Box.around(chart, series)
    legend = [
        _key(item.name, f"c{item.colour % 8}{' dashed' if item.dashed else ''}", i) for i, item in enumerate(series)
    ]
    legend += [_key(name, "level", None) for name, _ in chart.levels]
    curves = "".join(
        f"<path class='curve c{item.colour % 8}{' dashed' if item.dashed else ''}' data-series='{i}' "
        f"d='{_path(box, item)}'/>"
        for i, item in enumerate(series)
    )
    levels = "".join(
        f"<line class='level' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{box.y(height):.1f}' y2='{box.y(height):.1f}'/>"
        for _, height in chart.levels
    )
    said = "; ".join(_in_words(chart, item) for item in series)
    return (
        f"<figure class='chart' id='{chart.key}'>{title}"
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' tabindex='0' "
        f"aria-labelledby='{chart.key}-title {chart.key}-said'>"
        f"<desc id='{chart.key}-said'>{escape(said)}</desc>{_axes(chart, box)}"
        f"<svg class='plot' x='{LEFT}' y='{TOP}' width='{WIDTH - LEFT - RIGHT}' height='{HEIGHT - TOP - BOTTOM}' "
        f"viewBox='{LEFT} {TOP} {WIDTH - LEFT - RIGHT} {HEIGHT - TOP - BOTTOM}' preserveAspectRatio='none'>"
        f"<g class='zoom'>{curves}</g></svg>{levels}</svg>"
        f"<div class='legend'>{''.join(legend)}</div>"
        + (f"<p class='note'>{escape(note)}</p>" if note else "")
        + f"<script type='application/json'>{_data(chart, box, series)}</script></figure>"
    )


def thinned(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float], int]:
    """At most ``MOST_POINTS`` points, each the mean of so many neighbours."""
    width = -(-len(x) // MOST_POINTS) if len(x) else 1
    starts = range(0, len(x), width)
    return [_mean(x[i : i + width]) for i in starts], [_mean(y[i : i + width]) for i in starts], width


def as_json(value: object) -> str:
    """JSON that can stand inside a ``script`` element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def shown(value: float, *, percent: bool = False) -> str:
    """A number on an axis or in a legend."""
    if percent:
        return f"{100 * value:.4g}\u00a0%"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class _Box:
    """From values to the picture."""

    left: float
    right: float
    low: float
    high: float
    step: float

    @classmethod
    def around(cls, chart: Chart, series: Sequence[Series]) -> "_Box":
        first, last = min(min(item.x) for item in series), max(chart.last, *(max(item.x) for item in series))
        ys = [value for item in series for value in (min(item.y), max(item.y))] + [height for _, height in chart.levels]
        low, high = min(ys), max(ys)
        if chart.from_zero:
            low = min(0.0, low)
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        step = _nice((high - low) / 4)
        left = 0.0 if first <= 0.1 * last else first
        return cls(left, max(last, left + 1), math.floor(low / step) * step, _up(high, step), step)

    def x(self, value: float) -> float:
        return LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def _axes(chart: Chart, box: _Box) -> str:
    rows = range(round((box.high - box.low) / box.step) + 1)
    parts = []
    for value in (box.low + i * box.step for i in rows):
        y = box.y(value)
        parts.append(f"<line class='rule' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>")
        label = shown(0.0 if abs(value) < box.step / 1e6 else round(value, 12), percent=chart.percent)
        parts.append(f"<text class='tick y' x='{LEFT - 8}' y='{y + 4:.1f}'>{label}</text>")
    step = max(1.0, _nice((box.right - box.left) / 5))
    marks = []
    value = math.ceil(box.left / step) * step
    while value <= box.right * (1 + 1e-9):
        marks.append(f"<text class='tick x' x='{box.x(value):.1f}' y='{HEIGHT - BOTTOM + 18}'>{shown(value)}</text>")
        value += step
    unit = f"<text class='unit' x='{WIDTH - RIGHT}' y='{HEIGHT - 4}'>round</text>"
    return "".join(parts) + f"<g class='x-axis'>{''.join(marks)}</g>" + unit


def _path(box: _Box, item: Series) -> str:
    points = [f"{box.x(x):.1f} {box.y(y):.1f}" for x, y in zip(item.x, item.y, strict=True)]
    if len(points) == 1:
        return f"M{points[0]}h.1"
    return "M" + "L".join(points)


def _key(name: str, kind: str, index: int | None) -> str:
    data = "" if index is None else f" data-series='{index}'"
    swatch = f"<svg class='swatch' viewBox='0 0 26 8' aria-hidden='true'><path class='curve {kind}' d='M1 4H25'/></svg>"
    return f"<span class='key'{data}>{swatch}{escape(name)}</span>"


def _in_words(chart: Chart, item: Series) -> str:
    first, last = (shown(item.y[i], percent=chart.percent) for i in (0, -1))
    return f"{item.name}: {first} in round {shown(item.x[0])}, {last} in round {shown(item.x[-1])}"


def _data(chart: Chart, box: _Box, series: Sequence[Series]) -> str:
    curves = [
        {"name": item.name, "x": [_short(x) for x in item.x], "y": [_short(y) for y in item.y], "c": item.colour % 8}
        for item in series
    ]
    frame = {"left": box.left, "right": box.right, "low": box.low, "high": box.high}
    plot = {"x": LEFT, "y": TOP, "w": WIDTH - LEFT - RIGHT, "h": HEIGHT - TOP - BOTTOM}
    return as_json({"percent": chart.percent, "unit": chart.unit, "frame": frame, "plot": plot, "series": curves})


def _short(value: float) -> float | int:
    """As many digits as a tooltip shows."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _nice(step: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is at least ``step``."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= step * (1 - 1e-9))


def _up(value: float, step: float) -> float:
    return math.ceil(value / step - 1e-9) * step


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
