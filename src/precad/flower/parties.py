"""Each party's files, where its own operator put them: a client's kit, server A's settings, and both in a simulation.

A client takes the task, and with it both servers' keys, from its own disk. Nothing that A sends says where to look.
"""

import datetime
import shutil
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context
from numpy.typing import NDArray

from precad.params import Params
from precad.protocol.digests import model_digest
from precad.protocol.states import Role
from precad.services import config, keys, receipts
from precad.services import task as tasks
from precad.services.client import Client, RefusedError
from precad.services.helper import HelperServer
from precad.services.http_transport import HttpTransport
from precad.services.leader import Leader
from precad.services.task import Task, Training
from precad.services.transport import MemoryTransport

KIT, NAME = "precad-kit", "precad-name"
"""The settings of a SuperNode's ``--node-config``: the client's folder, and its name in the task."""
PARTITION = "partition-id"
MARK = "SIMULATION"


@dataclass(frozen=True)
class Kit:
    """A client's folder: task.json, NAME.key, and, once it took part, NAME.db and NAME.audit.log."""

    folder: Path
    name: str
    durable: bool = True
    """False in a simulation, whose state need not outlive a power cut."""

    @classmethod
    def of(cls, context: Context, simulated: Path | None) -> "Kit":
        """The kit that the node's operator named; else, in a simulation, that of the client with the node's number."""
        settings = context.node_config
        if KIT in settings and NAME in settings:
            return cls(Path(str(settings[KIT])), str(settings[NAME]))
        half = KIT in settings or NAME in settings
        if half or simulated is None or not (simulated / MARK).exists() or PARTITION not in settings:
            raise RefusedError(f"the SuperNode's --node-config must name the client's folder {KIT} and {NAME}")
        names = sorted(_task(simulated / "task.json").members)
        number = int(settings[PARTITION])
        if not 0 <= number < len(names):
            raise RefusedError(f"node {number} of a simulation with {len(names)} clients")
        return cls(simulated, names[number], durable=False)

    def task(self) -> Task:
        """The task that the client joined."""
        return _task(self.folder / "task.json")

    def key(self) -> Ed25519PrivateKey:
        """The client's key."""
        return keys.load_private(self.folder / f"{self.name}.key")

    def client(self, task: Task) -> Client:
        """The client, on its state."""
        return Client(task, self.name, self.key(), self.folder / f"{self.name}.db", durable=self.durable)

    def write_log(self, client: Client) -> None:
        """Bring the audit log's file up to date."""
        receipts.write(self.folder / f"{self.name}.audit.log", client.log())


@dataclass(frozen=True)
class ServerA:
    """Server A with its way to B, and the file of its audit log."""

    leader: Leader
    audit_log: Path

    @classmethod
    def deployed(cls, settings: Path) -> "ServerA":
        """Server A of an a.toml, with server B where that says."""
        own = config.load(settings)
        transport = HttpTransport(own.load_task(), own.host, own.port, own.pair())
        return cls(own.open_leader(transport), own.audit_log)

    @classmethod
    def simulated(
        cls, folder: Path, model: NDArray[np.float64], bounds: Params, training: Training, *, records: int = 1
    ) -> "ServerA":
        """Both servers and ``bounds.clients`` clients of a new task, all in one folder: to try out, private for nobody.

        ``records`` is |D_i| of each client, which counts if the unit is a record.
        A folder of an earlier simulation is made anew. What is written does not wait for the disk.
        """
        task = _new_simulation(folder, model, replace(bounds, clients=1), training)
        for number in range(bounds.clients):
            task = task.with_member(keys.new_client(folder, f"client-{number:04}"), records)
        task.save(folder / "task.json")
        signing = {role: keys.load_private(folder / f"{task.server(role).name}.key") for role in Role}
        helper = HelperServer(task, signing[Role.B], folder / "b.db", model, durable=False)
        transport = MemoryTransport(helper)
        leader = Leader(task, signing[Role.A], folder / "a.db", model, transport, durable=False)
        return cls(leader, folder / "a.audit.log")

    def write_log(self) -> None:
        """Bring the audit log's file up to date."""
        receipts.extend(self.audit_log, self.leader.store.log)


def _task(path: Path) -> Task:
    """A task's file; a process that answers again does not work out its digest and its cost again."""
    try:
        return _unchanged_task(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from None


@lru_cache(maxsize=4)
def _unchanged_task(path: Path, _changed: int) -> Task:
    return tasks.load(path)


def _new_simulation(folder: Path, model: NDArray[np.float64], bounds: Params, training: Training) -> Task:
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds other things than a simulation, and is not removed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    (folder / MARK).touch()
    now = datetime.datetime.now(datetime.UTC)
    server_a, server_b = (keys.new_server(folder, name, now) for name in ("server-a", "server-b"))
    return Task(bounds=bounds, training=training, server_a=server_a, server_b=server_b, model=model_digest(model))
