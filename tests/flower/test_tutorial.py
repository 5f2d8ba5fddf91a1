"""The app of the tutorial: the page shows the example's files, and they train, in memory."""

import importlib
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from precad.deployment import task as tasks
from tests.docs.pages import ROOT, blocks
from tests.flower.grids import MemoryGrid

CLIENTS, ROUNDS = 3, 2


def test_the_page_shows_the_files_of_the_example() -> None:
    shown = blocks(ROOT / "docs/tutorial-flower.md", "python")
    assert len(shown) == 2
    for block in shown:
        assert block.title
        assert (ROOT / block.title).read_text() == block.text


def test_the_app_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("PRECAD_SIMULATION", str(tmp_path / "simulation"))
    monkeypatch.syspath_prepend(ROOT / "examples/flower-mnist")
    for name in [name for name in sys.modules if name.startswith("flower_mnist")]:
        monkeypatch.delitem(sys.modules, name)
    client = importlib.import_module("flower_mnist.client_app")
    server = importlib.import_module("flower_mnist.server_app")
    settings: dict[str, bool | float | int | str] = {
        "num-server-rounds": ROUNDS,
        "learning-rate": 0.5,
        "unit": "client",
        "precad": "",
        "checkpoints": str(tmp_path),
    }
    grid = MemoryGrid(dict.fromkeys(range(CLIENTS), client.app), run_config=settings)
    server.app(grid, Context(1, 0, {}, RecordDict(), settings))
    assert len(tasks.load(tmp_path / "simulation/task.json").roster) == CLIENTS
    assert [path.name for path in sorted(tmp_path.glob("*.npy"))] == ["0000.npy", "0001.npy", "0002.npy"]
    for name in [name for name in sys.modules if name.startswith("flower_mnist")]:
        monkeypatch.delitem(sys.modules, name)
