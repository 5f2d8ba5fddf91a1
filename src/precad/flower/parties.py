"""Server A on its own files, where its operator put them; and, in a simulation, everybody's in one folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precad.deployment import config, receipts
from precad.deployment.helper import HelperServer
from precad.deployment.https import HttpTransport
from precad.deployment.leader import Leader
from precad.deployment.parties import Parties
from precad.deployment.task import Training
from precad.deployment.transport import MemoryTransport
from precad.flower.node import MARK
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
        _empty(folder)
        records_of = {f"client-{number:04}": records for number in range(bounds.clients)}
        parties = Parties.new(model, bounds, training, records_of, servers=("server-a", "server-b"))
        parties.save(folder)
        key_a, key_b = (parties.servers[role].signing for role in (Role.A, Role.B))
        helper = HelperServer(parties.task, key_b, folder / "b.db", model, durable=False)
        leader = Leader(parties.task, key_a, folder / "a.db", model, MemoryTransport(helper), durable=False)
        return cls(leader, folder / "a.audit.log")

    def write_log(self) -> None:
        """Bring the audit log's file up to date."""
        receipts.extend(self.audit_log, self.leader.store.log)


def _empty(folder: Path) -> None:
    """Make the folder of a simulation, in place of that of an earlier one."""
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds other things than a simulation, and is not removed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    (folder / MARK).touch()
