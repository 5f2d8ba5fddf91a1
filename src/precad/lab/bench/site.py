"""All parties of a task on one machine, each in a folder of its own; server B is a process, reached by mutual TLS."""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from precad.deployment import config, keys, kit
from precad.deployment.client import Client
from precad.deployment.config import ServerConfig
from precad.deployment.https import HttpTransport
from precad.deployment.task import Task, Training
from precad.errors import PrecadError
from precad.protocol.digests import model_digest
from precad.protocol.params import Params, Unit
from precad.protocol.states import Role
from precad.protocol.update import Schedule

START_SECONDS = 300
STOP_SECONDS = 120


@dataclass(frozen=True)
class Site:
    """Folders ``alpha`` (server A), ``beta`` (server B) and one for each client, as the kits lay them out."""

    folder: Path
    task: Task

    def settings(self, role: Role) -> ServerConfig:
        """A server's settings."""
        return config.load(self._settings_file(role))

    def client(self, name: str) -> Client:
        """A client, on its state."""
        own = self.folder / name
        return Client(self.task, name, keys.load_private(own / f"{name}.key"), own / f"{name}.db")

    def transport(self, port: int, *, attempts: int = 6) -> HttpTransport:
        """A's way to B."""
        own = self.settings(Role.A)
        return HttpTransport(self.task, own.host, port, own.pair(), attempts=attempts)

    def start_b(self, port: int = 0) -> "ServerB":
        """Start server B, and wait until it listens."""
        settings, log = self._settings_file(Role.B), self.folder / "beta.log"
        text = settings.read_text().splitlines()
        settings.write_text("\n".join(f"port = {port}" if line.startswith("port =") else line for line in text) + "\n")
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "precad", "server", "--config", str(settings)],
                stdin=subprocess.DEVNULL,
                stderr=stream,
            )
        return ServerB(process, _port_of(process, log))

    def _settings_file(self, role: Role) -> Path:
        return self.folder / self.task.server(role).name / ("a.toml" if role is Role.A else "b.toml")


@dataclass(frozen=True)
class Memory:
    """Resident memory of a process, in MiB."""

    now: float
    peak: float


@dataclass(frozen=True)
class ServerB:
    """A running server B."""

    process: "subprocess.Popen[bytes]"
    port: int

    def memory(self) -> Memory:
        """What Linux says of it."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return Memory(kib["VmRSS"] / 1024, kib["VmHWM"] / 1024)

    def stop(self) -> None:
        """Stop it as its operator would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Kill it: no step of its own follows."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)


def make(folder: Path, *, dim: int, clients: int, rounds: int, client_rate: float = 1.0) -> Site:
    """Keys, task and kits of two servers and so many clients, each of which may take part in every round."""
    if sys.platform != "linux":
        raise PrecadError(f"this benchmark reads memory from /proc, which {sys.platform} does not have")
    now, model = datetime.datetime.now(datetime.UTC), np.zeros(dim)
    task = Task(
        bounds=Params(
            dim=dim, clients=1, record_bound=1.0, client_bound=1.0, noise_multiplier=1000.0, unit=Unit.CLIENT
        ),
        training=Training(
            client_rate=client_rate,
            record_rate=1.0,
            rounds=rounds,
            schedule=Schedule(learning_rate=1.0),
            delta=1e-5,
            budget=10.0,
            participations=rounds,
        ),
        server_a=keys.new_server(folder / "alpha", "alpha", now),
        server_b=keys.new_server(folder / "beta", "beta", now),
        model=model_digest(model),
    )
    for number in range(clients):
        name = f"client-{number:04}"
        task = task.with_member(keys.new_client(folder / name, name), 1)
    task.save(folder / "task.json")
    np.save(folder / "model.npy", model)
    for role in Role:
        kit.server(folder / "task.json", folder / "model.npy", role, folder / task.server(role).name)
    return Site(folder, task)


@contextmanager
def running_b(site: Site) -> Iterator[ServerB]:
    """Server B, stopped at the end, and killed if it does not stop."""
    server = site.start_b()
    try:
        yield server
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()


def _port_of(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """The port that server B's first line names."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        first, found, _ = log.read_text().partition("\n")
        if found:
            return int(json.loads(first)["port"])
        time.sleep(0.05)
    words = log.read_text().strip()
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    raise PrecadError(f"server B did not start: {words or 'it said nothing'}")
