"""A server's own settings, from a TOML file: where its files are, and where it listens. Nothing that the task fixes."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from precad.deployment import keys, tls
from precad.deployment import task as tasks
from precad.deployment.disk import StoreError, in_words
from precad.deployment.helper import HelperServer
from precad.deployment.leader import Leader
from precad.deployment.store import Store
from precad.deployment.task import Task
from precad.deployment.transport import Transport
from precad.errors import ProtocolError
from precad.privacy.ledger import Ledger
from precad.protocol.digests import model_digest
from precad.tables import build, read_toml


@dataclass(frozen=True)
class ServerConfig:
    """The settings. Paths are relative to the file that they stand in."""

    task: Path
    model: Path
    """The initial model, a .npy file."""
    key: Path
    tls_key: Path
    certificate: Path
    store: Path
    audit_log: Path
    host: str = "127.0.0.1"
    """B: where it listens for A. A: where B listens."""
    port: int = 8443
    """B: 0 for any that is free; the log says which."""
    metrics_port: int = 0
    """B: health and metrics on 127.0.0.1, in the clear; 0 for none."""

    def load_task(self) -> Task:
        """The task."""
        return tasks.load(self.task)

    def load_key(self) -> Ed25519PrivateKey:
        """The server's signing key."""
        return keys.load_private(self.key)

    def open_helper(self) -> HelperServer:
        """Server B."""
        return HelperServer(self.load_task(), self.load_key(), self.store, tasks.load_model(self.model))

    def open_leader(self, transport: Transport) -> Leader:
        """Server A, with its way to B."""
        return Leader(self.load_task(), self.load_key(), self.store, tasks.load_model(self.model), transport)

    def status(self) -> dict[str, Any]:
        """The last round, the model, and what is left of the task. The server may be running meanwhile."""
        if not self.store.is_file():
            raise StoreError(f"there is no store at {self.store}: the server has not run yet")
        task, public = self.load_task(), self.load_key().public_key().public_bytes_raw()
        own = next((server for server in (task.server_a, task.server_b) if server.key == public), None)
        if own is None:
            raise ProtocolError(f"{self.key} is not the key of a server of this task")
        with closing(Store(self.store, task, own.name)) as store:
            row, opened, model = store.last_round(), store.opened_rounds(), store.model()
        with in_words():
            counts = Ledger(self.store, task.digest.hex(), task.terms).participations()
        cap = task.training.participations
        return {
            "server": own.name,
            "task": task.digest.hex(),
            "round": None if row is None else row.number,
            "state": "no round yet" if row is None else row.status.value,
            "rounds opened": opened,
            "rounds left": task.training.rounds - opened,
            "model": model_digest(model).hex(),
            "clients left": sum(counts.get(name, 0) < cap for name in task.members),
        }

    def pair(self) -> tls.Pair:
        """The certificate that the server shows, and its key."""
        return tls.Pair(self.certificate, self.tls_key)


def load(path: Path) -> ServerConfig:
    """The settings of a file. An unknown key, a missing one or a wrong type is a ``ValueError``."""
    return build(ServerConfig, read_toml(path), str(path), folder=path.parent)
