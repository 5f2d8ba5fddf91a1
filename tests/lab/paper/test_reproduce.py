import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from precad.cli.app import app
from precad.lab.paper import claims, heatmap, plan, reproduce
from precad.lab.paper.reproduce import FIGURES, Order
from precad.lab.paper.rows import RowFile
from tests.lab.paper.fake_rows import fill
from tests.lab.paper.test_figures import make
from tests.messages import says


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
    made = len({run.key for run in claims.experiments(replace(plan.QUICK, datasets=("mnist",)))})
    assert f"mnist: {made} of {made} runs of 200 rounds made" in (tmp_path / "claims.md").read_text()


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
    order = Order("heatmap", True, tmp_path, rounds={"mnist": 1}, attacks=("mine:attack",), defences=("mine:defence",))
    out = console()
    reproduce.reproduce(order, out)
    text = (tmp_path / "heatmap.md").read_text()
    assert "| | precad | mine:defence |" in text
    assert "| mine:attack | **" in text
    assert isinstance(out.file, io.StringIO)
    assert "4/4  digits" in out.file.getvalue()
    assert " attack=mine:attack " in out.file.getvalue()
    sys.modules.pop("mine")


def test_the_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["reproduce", "table1", "--quick", "--out", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert (tmp_path / "quick" / "table1.md").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dataset", "digits"], ("dataset", "mnist", "cifar10", "'digits'")),
        (["--seeds", "0"], ("seeds", 1, 0)),
        (["--jobs", "0"], ("jobs", 1, 0)),
        (["--rounds", "0"], ("rounds", 1, "'0'")),
        (["--rounds", "digits=5"], ("rounds", "'digits'", "mnist", "cifar10")),
        (["--attack", "mine:attack"], ("--attack", "--defence")),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, options: list[str], words: tuple[object, ...]) -> None:
    run = CliRunner().invoke(app, ["reproduce", "claims", "--out", str(tmp_path), *options])
    assert run.exit_code == 2
    assert re.search(says(*words), run.output)


@pytest.mark.parametrize(("target", "message"), [("heatmap", "the heat map is on MNIST"), ("fig2", "Figure 2 is on")])
def test_a_data_set_that_the_target_does_not_have_is_refused(tmp_path: Path, target: str, message: str) -> None:
    run = CliRunner().invoke(app, ["reproduce", target, "--dataset", "cifar10", "--out", str(tmp_path)])
    assert run.exit_code == 2
    assert message in run.output


def test_two_do_not_make_runs_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "quick").mkdir()
    with RowFile(tmp_path / "quick").locked():
        run = CliRunner().invoke(app, ["reproduce", "claims", "--quick", "--out", str(tmp_path)])
    assert run.exit_code == 2
    assert "another process" in run.output
