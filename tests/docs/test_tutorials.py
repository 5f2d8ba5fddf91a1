"""The tutorials, the how-to page and the notebook, executed as they are written."""

import contextlib
import io
import json
import re
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.settings import from_table
from tests.docs.pages import ROOT, Block, blocks, shell_lines

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")


def run_code(code: str, page: str, names: dict[str, Any]) -> str:
    """What it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*joblib", UserWarning)  # it says so where it cannot make files
        exec(compile(code, page, "exec"), names)  # noqa: S102
    return printed.getvalue()


def run_commands(commands: list[list[str]]) -> list[str]:
    """What they print; each must succeed."""
    printed = []
    for words in commands:
        result = CliRunner().invoke(app, words[1:], env={"COLUMNS": "120"})
        assert result.exit_code == 0, (words, result.output)
        printed.append(result.output)
    return printed


def test_the_python_of_the_readme() -> None:
    (block,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in block.text.splitlines() if line.strip()]) <= 10
    assert "accuracy=" in run_code(block.text, "README.md", {})


def test_the_file_of_the_training_page_is_a_configuration() -> None:
    (block,) = blocks(DOCS / "training.md", "toml")
    config = from_table(tomllib.loads(block.text))
    assert config.task.clients == 200
    assert config.training.budget == 3.0


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("first")
    with contextlib.chdir(folder):
        return folder, run_commands(
            [words for words in shell_lines(DOCS / "tutorial-first-run.md") if words[0] == "precad"]
        )


@pytest.mark.long
def test_the_first_run(first_run: tuple[Path, list[str]]) -> None:
    """The ε of the line that the page shows are the run's and ``precad privacy``'s; the accuracy is some run's."""
    folder, printed = first_run
    (shown,) = blocks(DOCS / "tutorial-first-run.md", "text")
    figures = re.search(r"ε server ([\d.]+), clients ([\d.]+)  rejected: client-20 20/20", shown.text)
    assert figures
    summary = json.loads((folder / "runs/first/summary.json").read_text())
    assert [f"{summary[key]:.3f}" for key in ("epsilon_server", "epsilon_clients")] == list(figures.groups())
    assert figures[0] in printed[0]
    assert "all files agree" in printed[3]
    costs = [re.findall(r"PLD \(rigorous\)\D+([\d.]+)\D+([\d.]+)", output)[0] for output in printed[4:6]]
    assert costs[0] == figures.groups()
    assert float(costs[1][0]) < float(costs[0][0]) / 2, "the page says that twice the noise costs less than half"


@pytest.mark.long
def test_own_model_and_data() -> None:
    page, names = DOCS / "tutorial-own-model.md", dict[str, Any]()
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            printed = run_code(block.text, page.name, names)
        elif block.language == "text":
            assert printed == block.text
    assert names["trained"].figures.accuracy > 0.8
    assert Path("runs/clinics/model.pt").is_file()


@pytest.mark.long
def test_an_attack_and_a_defence_of_the_users() -> None:
    found = blocks(DOCS / "how-to.md")
    place = next(i for i, block in enumerate(found) if block.title == "mine.py")
    Path("mine.py").write_text(found[place].text)
    try:
        run_commands([line.split() for line in _lines(found[place + 1])])
    finally:
        sys.modules.pop("mine", None)


def _lines(block: Block) -> list[str]:
    assert block.language == "sh"
    return block.text.splitlines()


@pytest.mark.long
def test_the_notebook() -> None:
    notebook = json.loads((ROOT / "examples/first_steps.ipynb").read_text())
    names = dict[str, Any]()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            run_code("".join(cell["source"]), "first_steps.ipynb", names)
    assert names["trained"].figures.accuracy > 0.6
    assert names["attacked"].rejections == {"client-10": 40}
    assert names["unchecked"].figures.accuracy < 0.5
    names["plt"].close("all")
