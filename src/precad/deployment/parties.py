"""All parties of a task at once: for simulations, rehearsals on one machine, benchmarks and tests.

In real life each party makes its keys on its own machine and nobody holds another's: docs/deployment.md says who does
what, and ``precad keys``, ``task``, ``roster`` and ``kit`` do it.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precad.deployment import config, kit
from precad.deployment.keys import OwnKeys
from precad.deployment.task import Member, Task, Training
from precad.protocol.digests import model_digest
from precad.protocol.params import Params
from precad.protocol.states import Role


@dataclass(frozen=True)
class Parties:
    """Two servers and the clients of a task, with everybody's keys."""

    task: Task
    model: NDArray[np.float64]
    """The initial one."""
    servers: Mapping[Role, OwnKeys]
    clients: Mapping[str, OwnKeys]

    @classmethod
    def new(
        cls,
        model: NDArray[np.float64],
        bounds: Params,
        training: Training,
        records: Mapping[str, int],
        *,
        servers: tuple[str, str] = ("alpha", "beta"),
        now: datetime.datetime | None = None,
    ) -> "Parties":
        """Make the keys of all parties, and their task.

        Args:
            model: The initial model.
            bounds: The protocol's parameters; their number of clients is set to that of ``records``.
            training: The constants of the run.
            records: Each client's name, and how many records it declares.
            servers: The names of servers A and B.
            now: From when on the certificates are valid; if not given, from this moment.
        """
        now = now or datetime.datetime.now(datetime.UTC)
        own = {role: OwnKeys.new(name, now) for role, name in zip(Role, servers, strict=True)}
        clients = {name: OwnKeys.new(name, now) for name in sorted(records)}
        task = Task(
            bounds=replace(bounds, clients=max(1, len(clients))),
            training=training,
            server_a=own[Role.A].identity,
            server_b=own[Role.B].identity,
            model=model_digest(model),
            roster=tuple(Member(each.identity, records[name]) for name, each in clients.items()),
        )
        return cls(task, model, own, clients)

    def save(self, folder: Path) -> None:
        """Write the task, and the keys of all parties, into one folder. The keys do not wait for the disk."""
        for each in (*self.servers.values(), *self.clients.values()):
            each.save(folder, durable=False)
        self.task.save(folder / "task.json")

    def save_apart(self, folder: Path, port: int, *, clients_port: int = 0) -> None:
        """Give each party a folder of its own, named after it, with its keys and its kit; both servers have begun.

        Args:
            folder: Where the folders go.
            port: Where B listens, on the loopback.
            clients_port: Where A listens for native clients; 0 for none.
        """
        for each in (*self.servers.values(), *self.clients.values()):
            each.save(folder / each.identity.name)
        self.task.save(folder / "task.json")
        for role, each in self.servers.items():
            own = folder / each.identity.name
            kit.server(self.task, self.model, role, own, host="127.0.0.1", port=port, clients_port=clients_port)
            config.load(own / kit.settings_name(role)).begin()
        for name in self.clients:
            kit.client(self.task, name, folder / name, door=f"127.0.0.1:{clients_port or kit.CLIENTS_PORT}")
