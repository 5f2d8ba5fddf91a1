"""The curve of ε by epoch: its points, its two pictures, and what happens without matplotlib."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.privacy.curve import POINTS, Curve, privacy_curve
from precad.privacy.plan import Plan, costs
from precad.privacy.terms import Adversary

run = CliRunner().invoke


WHOLE = Plan(rounds=5000, client_rate=0.1, record_rate=0.05, delta=1e-5)


@pytest.fixture(scope="module")
def curve() -> Curve:
    return privacy_curve(WHOLE, (1.0, 1.5, 2.0))


def test_the_last_points_are_the_figures_of_the_run(curve: Curve) -> None:
    """To the last digit what `precad privacy` prints for the same run."""
    assert len(curve.lines) == 6
    for line in curve.lines:
        last = line.points[-1]
        assert (last.epoch, last.rounds) == (25, 5000)
        figures = costs(WHOLE, line.sigma, None).figures[line.adversary]
        assert (last.pld, last.gdp) == (figures["pld"], figures["gdp"])


def test_lines_rise_and_the_papers_lie_below(curve: Curve) -> None:
    assert curve.rounds_per_epoch == pytest.approx(200)
    for line in curve.lines:
        assert [point.rounds for point in line.points] == list(range(200, 5001, 200))
        bounds = [point.pld for point in line.points]
        assert bounds == sorted(bounds)
        assert all(point.gdp < point.pld for point in line.points)


def test_the_text_shows_every_line(curve: Curve) -> None:
    text = curve.as_text()
    for mark in "●○▲△■□":
        assert text.count(mark) > 3
    assert "25 epochs" in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_sigma_gets_all_the_points() -> None:
    short = Plan(rounds=30, client_rate=0.5, record_rate=0.5, delta=1e-5)
    lines = privacy_curve(short, (2.0,)).lines
    assert [line.adversary for line in lines] == list(Adversary)
    assert sum(len(line.points) for line in lines) <= POINTS
    assert lines[0].points[0].rounds >= 1


OPTIONS = ["privacy", "--curve", "--sigma", "4", "--rounds", "40", "--client-rate", "0.5"]


def test_the_command_draws_and_prints_points(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "curve.png"
    result = run(app, [*OPTIONS, "--out", str(out), "--json"])
    assert result.exit_code == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    answer = json.loads(result.stdout)
    assert {line["adversary"] for line in answer["curves"]} == {"server", "clients"}
    assert set(answer["curves"][0]["points"][0]) == {"epoch", "rounds", "pld", "gdp"}
    missing = run(app, [*OPTIONS, "--out", str(tmp_path / "no" / "curve.png")])
    assert missing.exit_code == 2
    assert f"No such file or directory ({tmp_path / 'no'})" in missing.output


def test_without_matplotlib_the_terminal_picture_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [name for name in sys.modules if name.split(".")[0] == "matplotlib"]
    for name in (*loaded, "precad.plotting", "precad.report.pictures"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("precad.report.pictures", None, raising=False)
    monkeypatch.delattr("precad.report.pictures", raising=False)
    result = run(app, [*OPTIONS, "--out", str(tmp_path / "curve.png")])
    assert result.exit_code == 0
    assert "●" in result.output
    assert "pip install 'precad[train]'" in result.output


def test_a_target_is_not_for_curves() -> None:
    result = run(app, ["privacy", "--curve", "--target-epsilon", "2"])
    assert result.exit_code == 2
    assert "--curve takes --sigma" in result.output
