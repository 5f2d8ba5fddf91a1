"""The example and the benchmark in Flower's own simulation: one Ray for all of them, as it is slow to start."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from precad.deployment import task as tasks
from precad.lab.bench import flower as bench
from precad.lab.processes import Simulation
from precad.protocol.params import Unit
from tests.flower.test_deployment import copy_of_example, model_in

CLIENTS, ROUNDS, PATIENCE = 3, 2, 1200


@pytest.mark.long
def test_flower_s_simulation(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    simulation = Simulation(tmp_path)
    with simulation.running():
        check_example(simulation, Unit.CLIENT)
        check_example(simulation, Unit.RECORD)
        seconds = bench.in_simulation(simulation, dim=100, clients=2, rounds=1)
    assert not simulation.started
    assert seconds.keys() == {"plain_s", "precad_s", "ratio", "secagg_s", "secagg_ratio"}
    assert min(seconds.values()) > 0


def check_example(simulation: Simulation, unit: Unit) -> None:
    """Every client counts in every round, and both servers have the same model."""
    app, folder = simulation.folder / unit.value, simulation.folder / "simulation"
    copy_of_example(app)
    settings = ("--run-config", f'num-server-rounds={ROUNDS} unit="{unit.value}"')
    size = ("--federation-config", f"num-supernodes={CLIENTS}")
    printed = simulation.flwr("run", str(app), "ours", "--stream", *settings, *size, timeout=PATIENCE)
    assert printed.count(f"kept {CLIENTS} submissions") == ROUNDS, printed
    assert np.array_equal(model_in(folder / "a.db"), model_in(folder / "b.db"))
    task = tasks.load(folder / "task.json")
    assert (len(task.roster), task.bounds.unit) == (CLIENTS, unit)
    connection = sqlite3.connect(folder / "a.db")
    statuses = [status for (status,) in connection.execute("SELECT status FROM rounds")]
    connection.close()
    assert statuses == ["settled"] * ROUNDS
