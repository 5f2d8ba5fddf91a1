"""Servers and native clients as real processes, killed again and again: every round is opened once, nothing is lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from precad.deployment import receipts
from precad.deployment.parties import Parties
from precad.files import read_text
from precad.lab.bench.flower import task
from precad.lab.processes import Servers, Site, free_port
from precad.protocol.states import Role

NAMES = ("bank", "clinic", "lab")
ROUNDS, KILLS, PATIENCE = 25, 12, 240.0
MODULE = "import time, numpy\ndef train(model, round):\n    time.sleep(0.3)\n    return numpy.full(model.size, 0.01)\n"


def start(folder: Path, name: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "precad", "client", "--config", f"{name}.toml", "--train", "mymodule:train"]
    with (folder / name / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder / name, stdout=log, stderr=log)


@pytest.mark.long
def test_kills_lose_nothing(tmp_path: Path) -> None:
    chance = np.random.default_rng(7)
    victims: list[str | Role] = [*NAMES, *Role]
    made = Parties.new(np.zeros(50), *task(50, len(NAMES), ROUNDS), dict.fromkeys(NAMES, 1))
    made.save_apart(tmp_path, free_port(), clients_port=free_port())
    site, servers = Site(tmp_path), Servers(tmp_path)
    for name in NAMES:
        (tmp_path / name / "mymodule.py").write_text(MODULE)
    with servers.running():
        clients = {name: start(tmp_path, name) for name in NAMES}
        deadline = time.monotonic() + PATIENCE
        for victim in [victims[place] for place in chance.integers(len(victims), size=KILLS)]:
            time.sleep(chance.uniform(0.5, 3))
            if isinstance(victim, Role):
                process = servers.started[f"server-{victim.name.lower()}"]
                process.kill()
                process.wait()
                servers.launch_server(victim)
            elif clients[victim].poll() is None:
                clients[victim].send_signal(signal.SIGKILL)
                clients[victim].wait()
                clients[victim] = start(tmp_path, victim)
        for name, process in clients.items():
            code = process.wait(max(1.0, deadline - time.monotonic()))
            assert code == 0, (tmp_path / name / "log").read_text()[-2000:]
    logs = {name: read_text(tmp_path / name / f"{name}.audit.log").splitlines() for name in NAMES}
    own = {role: read_text(site.settings(role).audit_log).splitlines() for role in Role}
    receipts.audit(site.task, own[Role.A], own[Role.B], logs)
    opened = [line for line in own[Role.A] if receipts.parse(line).events.kind == receipts.OPENED]
    assert len(opened) == ROUNDS
