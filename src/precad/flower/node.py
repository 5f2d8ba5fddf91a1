"""A client's folder, where its own operator put it.

A client takes the task, and with it both servers' keys, from its own disk. Nothing that A sends says where to look.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context

from precad.deployment import keys, receipts
from precad.deployment import task as tasks
from precad.deployment.client import Client, RefusedError
from precad.deployment.task import Task

KIT, NAME = "precad-kit", "precad-name"
"""The settings of a SuperNode's ``--node-config``: the client's folder, and its name in the task."""
PARTITION = "partition-id"
MARK = "SIMULATION"
"""A file in the folder of a simulation."""


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


def _task(path: Path) -> Task:
    """A task's file; a process that answers again does not work out its digest and its cost again."""
    try:
        return _unchanged_task(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from None


@lru_cache(maxsize=4)
def _unchanged_task(path: Path, _changed: int) -> Task:
    return tasks.load(path)
