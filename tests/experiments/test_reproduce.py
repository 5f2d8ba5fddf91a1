import io
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from precad.cli import app
from precad.experiments import claims, heatmap, plan, reproduce
from precad.experiments.reproduce import FIGURES, Order
from precad.experiments.rows import RowFile
from tests.experiments.fake_rows import fill
from tests.experiments.test_figures import make


def console() -> Console:
    return Console(file=io.StringIO())


def test_all_writes_every_figure_and_table_from_rows_that_are_there(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    for figure in FIGURES.values():
        fill(rows, figure.runs(plan.QUICK), make)
    fill(rows, claims.experiments(plan.QUICK), make)
    written = reproduce.reproduce(Order("all", True, tmp_path), console())
    assert [path.name for path in written] == ["fig2.png", "fig3.png", "fig4.png", "fig5.png", "table1.md", "claims.md"]
    assert all(path.is_file() for path in written)
    made = len({run.key for run in claims.experiments(plan.QUICK)})
    assert f"{made} of {made} runs made" in (tmp_path / "claims.md").read_text()


def test_the_runs_so_far_can_be_judged(tmp_path: Path) -> None:
    reproduce.reproduce(Order("claims", True, tmp_path, runs=False), console())
    assert "0 of" in (tmp_path / "claims.md").read_text()
    assert not (tmp_path / "rows.jsonl").exists()


def test_the_heat_map_takes_the_user_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "def attack(context):\n    return -context.update\n"
        "def defence(updates, setting):\n    return updates.mean(axis=0)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(heatmap, "ATTACKS", ("none",))
    monkeypatch.setattr(heatmap, "DEFENCES", ("precad",))
    order = Order("heatmap", True, tmp_path, rounds=1, attacks=("mine:attack",), defences=("mine:defence",))
    out = console()
    reproduce.reproduce(order, out)
    text = (tmp_path / "heatmap.md").read_text()
    assert "| | precad | mine:defence |" in text
    assert "| mine:attack | **" in text
    assert isinstance(out.file, io.StringIO)
    assert "4/4  digits" in out.file.getvalue()
    sys.modules.pop("mine")


def test_the_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["reproduce", "table1", "--quick", "--out", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert (tmp_path / "quick" / "table1.md").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "digits"], "dataset must be one of mnist, cifar10, got 'digits'"),
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--rounds", "0"], "rounds must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, options: list[str], message: str) -> None:
    run = CliRunner().invoke(app, ["reproduce", "claims", "--out", str(tmp_path), *options])
    assert run.exit_code == 2
    assert message in run.output
