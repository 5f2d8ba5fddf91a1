"""The guide of docs/deployment.md, as a new user would follow it: its commands and its program, as they stand there."""

import os
import re
import signal
import subprocess
import sys
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


@pytest.mark.long
def test_from_nothing_to_a_model(tmp_path: Path) -> None:
    keys, task, kits = blocks("sh")
    shell(tmp_path, keys)
    assert "cost at most  ε = " in shell(tmp_path, task)
    digest = shell(tmp_path, kits).splitlines()[-1]
    for party in ("org-a", "org-b", "bank", "lab"):
        assert digest in (tmp_path / party / "README.md").read_text()
    (port,) = free_ports(1)
    for settings in (tmp_path / "org-a" / "a.toml", tmp_path / "org-b" / "b.toml"):
        settings.write_text(settings.read_text().replace("8443", str(port)))
    (program,) = blocks("python")[:1]
    command = [sys.executable, "-m", "precad", "server", "--config", "b.toml"]
    with subprocess.Popen(command, cwd=tmp_path / "org-b", stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            assert '"event": "started"' in server.stderr.readline()
            (tmp_path / "round.py").write_text(program)
            printed = shell(tmp_path, "python round.py").split("\n")
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=TIMEOUT)
    assert sorted(filter(None, printed)) == ["bank valid", "lab valid"]
    (done,) = [text for text in blocks("console") if "precad audit" in text]
    shown = shell(tmp_path, done)
    assert "rounds opened  2" in shown
    assert "both servers agree on all 2 opened rounds" in shown
    assert "bank sent in 2 rounds, and counted in 2" in shown
