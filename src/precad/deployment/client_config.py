"""A client's own settings, from a TOML file: where its files are, and, if it is a native one, where A listens."""

import logging
from dataclasses import dataclass
from pathlib import Path

from precad.deployment import keys, receipts, tls
from precad.deployment import task as tasks
from precad.deployment.addresses import check_host, check_port
from precad.deployment.client import Client
from precad.deployment.data_ledger import DataLedger
from precad.deployment.task import Task
from precad.mpc.fixed_point import check_positive
from precad.tables import build, read_toml

LOG = logging.getLogger("precad.client")


@dataclass(frozen=True)
class ClientConfig:
    """The settings. Paths are relative to the file that they stand in."""

    task: Path
    name: str
    """The client's, in the task."""
    key: Path
    store: Path
    """What was sent and counted: made at the first start."""
    audit_log: Path
    data: Path | None = None
    """The folder of the ledger of its data, over all tasks; see `precad data new`."""
    socket: Path | None = None
    """On Flower: where apps reach this client; if not given, NAME.sock beside the store."""
    tls_key: Path | None = None
    certificate: Path | None = None
    """A native client's."""
    host: str = "127.0.0.1"
    """Where A listens for native clients."""
    port: int = 8444
    connect_seconds: float = 10.0
    """How long a connection to A may take."""
    answer_seconds: float = 120.0
    """How long A may take for an answer, and for the model to arrive, beyond the time that it holds a question."""

    def __post_init__(self) -> None:
        for name in ("connect_seconds", "answer_seconds"):
            check_positive(name, getattr(self, name))
        check_host("host", self.host)
        check_port("port", self.port, least=1)

    def load_task(self) -> Task:
        """The task, in which this client is."""
        task = tasks.load(self.task)
        if self.name not in task.members:
            raise ValueError(f"{self.name} is not in the roster of {self.task}")
        return task

    def open_client(self, task: Task) -> Client:
        """The client, on its state, if the ledger of its data and the file of its audit log can be used."""
        if self.data is None:
            LOG.warning("the settings name no ledger of the data: what other tasks on them cost is not counted")
        else:
            DataLedger(self.data).close()
        client = Client(task, self.name, keys.load_private(self.key), self.store, data=self.data)
        try:
            receipts.write(self.audit_log, client.log())
        except BaseException:
            client.close()
            raise
        return client

    def pair(self) -> tls.Pair:
        """The certificate that a native client shows, and its key."""
        if self.certificate is None or self.tls_key is None:
            raise ValueError("the settings name no certificate and tls_key, which a native client needs")
        return tls.Pair(self.certificate, self.tls_key)

    @property
    def app_socket(self) -> Path:
        """Where apps on Flower reach this client."""
        return self.socket or self.store.with_suffix(".sock")


def load(path: Path) -> ClientConfig:
    """The settings of a file. An unknown key, a missing one or a wrong type is a ``ValueError``."""
    return build(ClientConfig, read_toml(path), str(path), folder=path.parent)
