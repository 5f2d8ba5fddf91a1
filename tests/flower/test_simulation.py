"""The example in Flower's own simulation."""

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from precad.flower.loopback import Simulation
from precad.services import task as tasks
from tests.flower.test_deployment import EXAMPLE, model_in

CLIENTS, ROUNDS = 4, 2


@pytest.mark.heavy
def test_the_example_in_flower_s_simulation(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    app, simulation = shutil.copytree(EXAMPLE, tmp_path / "app"), Simulation(tmp_path)
    size = ("--federation-config", f"num-supernodes={CLIENTS}", "--run-config", f"num-server-rounds={ROUNDS}")
    with simulation.running():
        printed = simulation.flwr("run", str(app), "ours", "--stream", *size, timeout=900)
    folder = tmp_path / "simulation"
    assert np.array_equal(model_in(folder / "a.db"), model_in(folder / "b.db")), printed
    assert len(tasks.load(folder / "task.json").roster) == CLIENTS
    connection = sqlite3.connect(folder / "a.db")
    statuses = [status for (status,) in connection.execute("SELECT status FROM rounds")]
    connection.close()
    assert statuses == ["settled"] * ROUNDS, printed
    assert printed.count(f"kept {CLIENTS} submissions") == ROUNDS
