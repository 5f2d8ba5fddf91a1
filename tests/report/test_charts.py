"""Charts: whatever the figures are, every point is in the picture."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.report.charts import MOST_POINTS, Chart, Series, thinned
from precad.report.page import templates


def draw(chart: Chart) -> str:
    return templates().from_string("{% from 'macros.html' import chart %}{{ chart(it) }}").render(it=chart)


figures = st.floats(-1e12, 1e12, allow_subnormal=False)


@given(st.lists(figures, min_size=1, max_size=30), st.integers(1, 10_000), st.booleans(), st.none() | figures)
def test_every_point_is_inside(values: list[float], first: int, from_zero: bool, level: float | None) -> None:
    rounds = list(range(first, first + len(values)))
    levels = () if level is None else (("budget", level),)
    drawn = draw(Chart("x", "a title", "unit", (Series("s", rounds, values, 0),), levels, from_zero=from_zero))
    tree = ElementTree.fromstring(re.sub(r"<script.*</script>", "", drawn))  # noqa: S314 - our own
    (path,) = tree.findall(".//g[@class='zoom']/path")
    points = [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", path.get("d", ""))]
    assert len(points) == len(values)
    plot = Chart.plot
    for x, y in points:
        assert plot.x - 0.1 <= x <= plot.x + plot.w + 0.1
        assert plot.y - 0.1 <= y <= plot.y + plot.h + 0.1
    labels = [element.text for element in tree.iter("text") if element.get("class") == "tick y"]
    assert 2 <= len(labels) <= 8


def test_axes_have_round_numbers() -> None:
    drawn = draw(Chart("x", "t", "u", (Series("s", [1, 500], [0.03, 0.96], 0),), percent=True, from_zero=True))
    assert re.findall(r"tick y'[^>]*>([^<]*)<", drawn) == [f"{n}\u00a0%" for n in (0, 25, 50, 75, 100)]
    assert re.findall(r"tick x'[^>]*>([^<]*)<", drawn) == ["0", "100", "200", "300", "400", "500"]


def test_thinning_keeps_the_mean() -> None:
    x, y, width = thinned(range(1, 5001), [float(i % 13) for i in range(5000)])
    assert (width, len(x)) == (13, 385)
    assert len(x) <= MOST_POINTS
    assert y[:-1] == [6.0] * 384
    assert thinned([], []) == ([], [], 1)


def test_names_cannot_leave_their_place() -> None:
    evil = "</script><script>alert(1)</script>&'\""
    drawn = draw(Chart("x", evil, "u", (Series(evil, [1, 2], [1, 2], 0),), note=evil))
    assert drawn.count("<script") == 1
    data = re.search(r"<script[^>]*>(.*)</script>", drawn)
    assert data is not None
    assert json.loads(data[1])["series"][0]["name"] == evil


@pytest.mark.parametrize("series", [(), (Series("s", [], [], 0),)])
def test_nothing_to_show(series: tuple[Series, ...]) -> None:
    assert "Nothing was recorded" in draw(Chart("x", "t", "u", series))
