"""The guide of docs/deployment.md, as a new user would follow it: its commands and its program, as they stand there."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deployment.test_config import free_ports

GUIDE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
TIMEOUT = 300.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def shell(folder: Path, script: str) -> str:
    """Run it where ``precad`` and ``python`` are this Python's."""
    path = folder / "bin"
    if not path.exists():
        path.mkdir()
        for name, command in (("precad", f"{sys.executable} -m precad"), ("python", sys.executable)):
            (path / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    started = ["/bin/sh", "-e", "-c", script]
    done = subprocess.run(
        started, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Steps 1 to 3: keys, task, kits and stores."""
    keys, task, kits, stores = blocks("sh")
    shell(tmp_path, keys)
    assert "cost at most  ε = " in shell(tmp_path, task)
    digest = shell(tmp_path, kits).splitlines()[-1]
    shell(tmp_path, stores)
    for party in ("org-a", "org-b", "bank", "lab"):
        assert digest in (tmp_path / party / "README.md").read_text()
    ports = dict(zip(("8443", "8444"), map(str, free_ports(2)), strict=True))
    for settings in ("org-a/a.toml", "org-b/b.toml", "bank/bank.toml", "lab/lab.toml"):
        text = (tmp_path / settings).read_text()
        for usual, own in ports.items():
            text = text.replace(usual, own)
        (tmp_path / settings).write_text(text)
    return tmp_path


@contextmanager
def server(folder: Path, settings: str) -> Iterator[None]:
    """Step 4, for one server."""
    command = [sys.executable, "-m", "precad", "server", "--config", settings]
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, cwd=folder, stderr=log, text=True) as process,
    ):
        try:
            deadline = time.monotonic() + TIMEOUT
            while '"event": "started"' not in (folder / "server.log").read_text():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)


def check_audit(folder: Path, rounds: int) -> None:
    (done,) = [text for text in blocks("console") if "precad audit" in text]
    shown = shell(folder, done)
    assert f"rounds opened  {rounds}" in shown
    assert f"both servers agree on all {rounds} opened rounds" in shown
    assert f"bank sent in {rounds} rounds, and counted in {rounds}" in shown


@pytest.mark.long
def test_from_nothing_to_a_model(begun: Path) -> None:
    """Both servers and both clients as processes, to the last round of the task."""
    (module,) = [text for text in blocks("python") if "def train(" in text]
    (command,) = [text for text in blocks("console") if "precad client" in text]
    for name in ("bank", "lab"):
        (begun / name / "mymodule.py").write_text(module)
    with server(begun / "org-b", "b.toml"), server(begun / "org-a", "a.toml"):
        at_the_bank, at_the_lab = command.strip(), command.strip().replace("bank", "lab")
        assert shell(begun, f"(cd bank && {at_the_bank}) & (cd lab && {at_the_lab}); wait").count("ended") == 2
    check_audit(begun, 20)


@pytest.mark.long
def test_with_objects_of_ones_own_program(begun: Path) -> None:
    (program,) = [text for text in blocks("python") if "def reply_of(" in text]
    with server(begun / "org-b", "b.toml"):
        (begun / "round.py").write_text(program)
        printed = shell(begun, "python round.py").split("\n")
    assert sorted(filter(None, printed)) == ["bank valid", "lab valid"]
    check_audit(begun, 2)
