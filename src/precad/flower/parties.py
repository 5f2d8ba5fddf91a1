"""Server A on its own files, where its operator put them; and, in a simulation, everybody's in one folder."""

import datetime
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precad.deployment import config, keys, receipts
from precad.deployment.helper import HelperServer
from precad.deployment.https import HttpTransport
from precad.deployment.leader import Leader
from precad.deployment.task import Task, Training
from precad.deployment.transport import MemoryTransport
from precad.flower.node import MARK
from precad.protocol.digests import model_digest
from precad.protocol.params import Params
from precad.protocol.states import Role


@dataclass(frozen=True)
class ServerA:
    """Server A with its way to B, and the file of its audit log."""

    leader: Leader
    audit_log: Path

    @classmethod
    def deployed(cls, settings: Path) -> "ServerA":
        """Open server A of an a.toml, with server B where that file says.

        Raises:
            ValueError: The file, the task or the key cannot be read; the message names it.
        """
        own = config.load(settings)
        transport = HttpTransport(own.load_task(), own.host, own.port, own.pair())
        return cls(own.open_leader(transport), own.audit_log)

    @classmethod
    def simulated(
        cls, folder: Path, model: NDArray[np.float64], bounds: Params, training: Training, *, records: int = 1
    ) -> "ServerA":
        """Make both servers and all clients of a new task in one folder: to try out, private for nobody.

        What is written does not wait for the disk.

        Args:
            folder: Where to put everything; a folder of an earlier simulation is made anew.
            model: The initial model: see :func:`vector_of`.
            bounds: The protocol's parameters; ``bounds.clients`` is the number of clients.
            training: The constants of the run.
            records: |D_i| of each client, which counts if the unit is a record.
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


def _new_simulation(folder: Path, model: NDArray[np.float64], bounds: Params, training: Training) -> Task:
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds other things than a simulation, and is not removed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    (folder / MARK).touch()
    now = datetime.datetime.now(datetime.UTC)
    server_a, server_b = (keys.new_server(folder, name, now) for name in ("server-a", "server-b"))
    return Task(bounds=bounds, training=training, server_a=server_a, server_b=server_b, model=model_digest(model))
