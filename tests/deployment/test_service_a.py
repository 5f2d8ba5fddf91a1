"""Server A as a process of its own: `precad server --config a.toml`, its doors, its lock, `precad abandon` at both."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from precad.deployment import receipts
from precad.deployment.conductor import Outcome
from precad.deployment.rounds import RemoteRounds
from precad.errors import ProtocolError
from precad.lab.processes import Processes, Site, free_port
from precad.protocol.states import Role
from tests.deployment import world
from tests.messages import says

SOON = 60.0


class Both(Processes):
    """Both servers as processes."""

    def start(self) -> None:
        self.site = Site(self.folder)
        self.launch_server(Role.B)
        self.launch_server(Role.A)
        self.wait_for("server-b", self.site.settings(Role.B).port)
        self.wait_for("server-a", self.site.settings(Role.A).app_socket)

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    parties = world.make(now=None)  # type: ignore[arg-type] # valid today
    parties.save_apart(tmp_path, free_port())
    path, port = tmp_path / "alpha" / "a.toml", free_port()
    path.write_text(f"{path.read_text()}metrics_port = {port}\n")
    made = Both(tmp_path)
    with made.running():
        yield made


def precad(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "precad", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SOON)


def play(both: Both, rounds: RemoteRounds, *names: str) -> int:
    """Clients answer in a round, which stays open."""
    opened = rounds.open()
    for name in names:
        client = both.site.client(name)
        reply = client.answer(client.join(opened.invitation, opened.model), np.full(world.DIM, 0.5))
        assert rounds.submit(opened.number, [reply]) == [None]
        client.close()
    return opened.number


def health(both: Both) -> tuple[int, dict[str, object]]:
    port = both.site.settings(Role.A).metrics_port
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=SOON) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_is_a_service_as_b_is(both: Both) -> None:
    """It plays rounds, holds its store alone, and says the same to the same commands; SIGTERM ends it."""
    settings = both.site.settings(Role.A)
    rounds = RemoteRounds(settings.app_socket)
    assert play(both, rounds, "bank", "lab") == 0
    assert rounds.close(0) is Outcome.OPENED
    assert len(receipts.read(settings.audit_log)) == 1
    assert stat.S_IMODE(settings.control_socket.stat().st_mode) == 0o600

    second = precad("server", "--config", str(both.site.settings_file(Role.A)))
    assert second.returncode == 1
    assert re.search(says("another process serves", "alpha.db"), second.stderr)
    with pytest.raises(ProtocolError, match="another app plays this task"):
        RemoteRounds(settings.app_socket)
    assert health(both)[1]["status"] == "ok"
    port = settings.metrics_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SOON) as answer:
        assert 'exchange="share",status="200"} 1' in answer.read().decode()
    for role in Role:
        shown = json.loads(precad("status", "--config", str(both.site.settings_file(role)), "--json").stdout)
        assert (shown["rounds opened"], shown["rounds left"]) == (1, 49)

    process = both.started["server-a"]
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(SOON) == 0
    assert time.monotonic() - begun < 10
    assert '"stopped"' in both.log_of("server-a")
    both.launch_server(Role.A)
    both.wait_for("server-a", settings.app_socket)
    assert play(both, rounds, "clinic") == 1
    assert rounds.close(1) is Outcome.OPENED
    rounds.end()


def test_a_round_is_given_up_at_either_server(both: Both) -> None:
    """While both run; B then has given up what A goes on with, and A's operator is told what to do. Then while not."""
    files = {role: str(both.site.settings_file(role)) for role in Role}
    none = precad("abandon", "--config", files[Role.A])
    assert none.returncode
    assert "no round is under way" in none.stderr
    rounds = RemoteRounds(both.site.settings(Role.A).app_socket)
    play(both, rounds, "bank")
    another = precad("abandon", "--config", files[Role.A], "--round", "1")
    assert "the last round is 0, not 1" in another.stderr
    assert not rounds.is_over(0)
    assert "round 0 is given up" in precad("abandon", "--config", files[Role.A], "--round", "0").stdout
    assert rounds.is_over(0)
    assert rounds.close(0) is Outcome.ABANDONED

    assert play(both, rounds, "bank") == 1
    assert "round 1 is given up" in precad("abandon", "--config", files[Role.B]).stdout
    rounds._ask("POST", "/v2/rounds/1/end")
    deadline = time.monotonic() + SOON
    while "has given up round 1" not in both.log_of("server-a"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert health(both)[0] == 503
    assert "round 1 is given up" in precad("abandon", "--config", files[Role.A]).stdout
    assert play(both, rounds, "lab") == 2
    rounds.end()
    both.stop()
    assert "round 2 is given up" in precad("abandon", "--config", files[Role.A]).stdout
    assert "not 1" in precad("abandon", "--config", files[Role.B], "--round", "1").stderr
    assert "round 2 is given up" in precad("abandon", "--config", files[Role.B], "--round", "2").stdout
    again = precad("abandon", "--config", files[Role.B])
    assert again.returncode
    assert "cannot be abandoned" in again.stderr
