"""The example in Flower's own simulation."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from precad.services import task as tasks
from tests.flower.test_deployment import EXAMPLE, model_in

BIN = Path(sys.executable).parent
CLIENTS, ROUNDS = 4, 2


@pytest.mark.heavy
def test_the_example_in_flower_s_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import deploy  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "deploy")
    link, ray = deploy.free_port(), deploy.free_port()
    (tmp_path / "flwr").mkdir()
    (tmp_path / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "sim"\n\n[superlink.sim]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        **deploy.CLOSED_NETWORK,
        "FLWR_HOME": str(tmp_path / "flwr"),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PRECAD_SIMULATION": str(tmp_path / "simulation"),
        "RAY_ADDRESS": f"127.0.0.1:{ray}",
    }
    app = shutil.copytree(EXAMPLE, tmp_path / "app")
    processes = deploy.Deployment(tmp_path, (), ROUNDS)
    try:
        # Ray's objects in a folder of their own: not every machine lets one write to /dev/shm.
        (tmp_path / "plasma").mkdir()
        where = (f"--port={ray}", f"--plasma-directory={tmp_path / 'plasma'}", "--object-store-memory=200000000")
        quiet = ("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats")
        processes.launch("ray", "ray", "start", "--head", "--block", *where, *quiet)
        deploy.wait_for(ray, processes.processes["ray"])
        command = ("--simulation", "--insecure", "--host", "127.0.0.1", "--port", str(link))
        processes.launch("superlink", "flower-superlink", *command, environment=environment)
        deploy.wait_for(link, processes.processes["superlink"])
        size = ("--federation-config", f"num-supernodes={CLIENTS}", "--run-config", f"num-server-rounds={ROUNDS}")
        done = subprocess.run(
            [str(BIN / "flwr"), "run", str(app), "sim", "--stream", *size],
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    finally:
        for name in reversed(list(processes.processes)):
            processes.stop(name)
    folder = tmp_path / "simulation"
    assert done.returncode == 0, done.stdout
    assert np.array_equal(model_in(folder / "a.db"), model_in(folder / "b.db")), done.stdout
    assert len(tasks.load(folder / "task.json").roster) == CLIENTS
    connection = sqlite3.connect(folder / "a.db")
    statuses = [status for (status,) in connection.execute("SELECT status FROM rounds")]
    connection.close()
    assert statuses == ["settled"] * ROUNDS, done.stdout
    assert done.stdout.count(f"kept {CLIENTS} submissions") == ROUNDS
