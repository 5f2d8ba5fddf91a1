"""A server's own settings, from a TOML file: where its files are, and where it listens. Nothing that the task fixes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import keys, tls
from precad.deployment import task as tasks
from precad.deployment.addresses import check_host, check_port
from precad.deployment.attendance import Patience
from precad.deployment.disk import SetBackError, StoreError, exclusive
from precad.deployment.helper import HelperServer
from precad.deployment.https import HttpTransport
from precad.deployment.keys import Identity
from precad.deployment.leader import Leader
from precad.deployment.rewind import Anchor
from precad.deployment.server import check_start
from precad.deployment.store import BESIDE_LEDGER, Store
from precad.deployment.task import Task
from precad.deployment.transport import Transport
from precad.deployment.visitors import Bounds
from precad.errors import ProtocolError
from precad.mpc.fixed_point import check_positive
from precad.privacy import ledger
from precad.protocol.digests import model_digest
from precad.protocol.states import Role
from precad.protocol.update import Model
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
    anchor: Path | None = None
    """A folder on a second volume, for the marks by which a store that was set back is noticed."""
    metrics_port: int = 0
    """Health and metrics on 127.0.0.1, in the clear; 0 for none."""
    socket: Path | None = None
    """A: where it listens for its app; if not given, NAME.sock beside the store."""
    clients_host: str = "127.0.0.1"
    """A: where it listens for native clients."""
    clients_port: int = 0
    """A: 0 for no native clients."""
    round_seconds: float = 3600.0
    """A: how long a round waits for its clients' replies."""
    join_seconds: float = 30.0
    """A: how long a round waits until clients have taken their invitations."""
    answer_seconds: float = 600.0
    """A: how long B may take for an answer."""
    connect_seconds: float = 10.0
    """A: how long a connection to B may take."""
    most_connections: int = Bounds.in_all
    """That this server has open at once."""
    most_per_address: int = Bounds.per_address
    """Of one address before it has shown a certificate of the task, or with one certificate."""

    def __post_init__(self) -> None:
        for name in ("host", "clients_host"):
            check_host(name, getattr(self, name))
        for name in ("port", "metrics_port", "clients_port"):
            check_port(name, getattr(self, name))
        for name in ("answer_seconds", "connect_seconds"):
            check_positive(name, getattr(self, name))

    def load_task(self) -> Task:
        """The task."""
        return tasks.load(self.task)

    def load_key(self) -> Ed25519PrivateKey:
        """The server's signing key."""
        return keys.load_private(self.key)

    def begin(self) -> None:
        """Make this server's store, and the first mark of its anchor. What has begun is never begun anew."""
        for path, begun in ((self.store, self._has_begun()), (self.audit_log, self.audit_log.exists())):
            if begun:
                raise StoreError(
                    f"{path} exists: this server has begun the task before. It runs without --init; if its store is "
                    "lost, the task is over"
                )
        task, key, model = self._loaded()
        own = self._identity(task, key)
        check_start(task, own, key, model)
        anchor = None if self.anchor is None else Anchor(self.anchor, task, own)
        if anchor is not None:
            anchor.begin()
        store = Store(self.store, task, own.name)
        store.start_from(Model.initial(model, task.training.schedule.optimiser))
        task.open_ledger(self.store)
        store.close()
        if anchor is not None:
            anchor.warn_if_beside(self.store)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other process serves this server's store; one that does is a :class:`StoreError`."""
        self._check_begun()
        with exclusive(self.store):
            yield

    def open_helper(self) -> HelperServer:
        """Server B, which has begun."""
        self._check_begun()
        task, key, model = self._loaded()
        server = HelperServer(task, key, self.store, model, anchor=self.anchor)
        server.compare_with(self.audit_log)
        return server

    def open_leader(self, transport: Transport) -> Leader:
        """Server A, which has begun, with its way to B."""
        self._check_begun()
        task, key, model = self._loaded()
        server = Leader(task, key, self.store, model, transport, anchor=self.anchor)
        server.compare_with(self.audit_log)
        return server

    def open_server(self) -> Leader | HelperServer:
        """The server that the key in these settings is of."""
        return self.open_leader(self.transport()) if self.role() is Role.A else self.open_helper()

    def role(self) -> Role:
        """Which of the two servers these settings are of."""
        task = self.load_task()
        return Role.A if self._identity(task, self.load_key()) == task.server_a else Role.B

    def transport(self) -> HttpTransport:
        """A's way to B. It tries once: whoever asks knows how long to wait before the next attempt."""
        check_port("port, where server B listens,", self.port, least=1)
        return HttpTransport(
            self.load_task(),
            self.host,
            self.port,
            self.pair(),
            attempts=1,
            timeout=self.answer_seconds,
            connect=self.connect_seconds,
        )

    def patience(self) -> Patience:
        """How long A waits for clients."""
        return Patience(self.round_seconds, self.join_seconds)

    @property
    def app_socket(self) -> Path:
        """Where A listens for its app."""
        return self.socket or self.store.with_suffix(".sock")

    @property
    def control_socket(self) -> Path:
        """Where a server listens for its operator's commands."""
        return self.store.with_name(f"{self.store.name}.control")

    def status(self) -> dict[str, Any]:
        """The last round, the model, and what is left of the task. The server may be running meanwhile."""
        self._check_begun()
        task = self.load_task()
        own = self._identity(task, self.load_key())
        row, opened, model, set_back = Store.look(
            self.store,
            task,
            own.name,
            lambda store: (store.last_round(), store.opened_rounds(), store.model(), store.set_back()),
        )
        counts = ledger.read(self.store, BESIDE_LEDGER).counts
        cap = task.training.participations
        state = "no round yet" if row is None else row.status.value
        return {
            "server": own.name,
            "task": task.digest.hex(),
            "round": None if row is None else row.number,
            "state": state if set_back is None else str(SetBackError(set_back)),
            "rounds opened": opened,
            "rounds left": task.training.rounds - opened,
            "model": model_digest(model).hex(),
            "clients with rounds left": sum(counts.get(name, 0) < cap for name in task.members),
        }

    def bounds(self) -> Bounds:
        """What this server's door allows."""
        return Bounds(self.most_connections, self.most_per_address)

    def pair(self) -> tls.Pair:
        """The certificate that the server shows, and its key."""
        return tls.Pair(self.certificate, self.tls_key)

    def _loaded(self) -> tuple[Task, Ed25519PrivateKey, NDArray[np.float64]]:
        return self.load_task(), self.load_key(), tasks.load_model(self.model)

    def _identity(self, task: Task, key: Ed25519PrivateKey) -> Identity:
        for server in (task.server_a, task.server_b):
            if server.key == key.public_key().public_bytes_raw():
                return server
        raise ProtocolError(f"{self.key} is not the key of a server of this task")

    def _has_begun(self) -> bool:
        """Whether there is a store. An empty file is none: SQLite would make one of it."""
        return self.store.is_file() and self.store.stat().st_size > 0

    def _check_begun(self) -> None:
        if not self._has_begun():
            raise StoreError(
                f"there is no store at {self.store}: `precad server --init` makes it, once. If there was one, the task "
                "is over: without it this server does not know what it has revealed"
            )


def load(path: Path) -> ServerConfig:
    """The settings of a file. An unknown key, a missing one or a wrong type is a ``ValueError``."""
    return build(ServerConfig, read_toml(path), str(path), folder=path.parent)
