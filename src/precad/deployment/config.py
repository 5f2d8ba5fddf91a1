"""A server's own settings, from a TOML file: where its files are, and where it listens. Nothing that the task fixes."""

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import keys, tls
from precad.deployment import task as tasks
from precad.deployment.helper import HelperServer
from precad.deployment.leader import Leader
from precad.deployment.task import Task
from precad.deployment.transport import Transport


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

    def load_model(self) -> NDArray[np.float64]:
        """The initial model."""
        return tasks.load_model(self.model)

    def load_key(self) -> Ed25519PrivateKey:
        """The server's signing key."""
        return keys.load_private(self.key)

    def open_helper(self) -> HelperServer:
        """Server B."""
        return HelperServer(self.load_task(), self.load_key(), self.store, self.load_model())

    def open_leader(self, transport: Transport) -> Leader:
        """Server A, with its way to B."""
        return Leader(self.load_task(), self.load_key(), self.store, self.load_model(), transport)

    def pair(self) -> tls.Pair:
        """The certificate that the server shows, and its key."""
        return tls.Pair(self.certificate, self.tls_key)


def load(path: Path) -> ServerConfig:
    """The settings of a file. An unknown or missing key is a ``ValueError``."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    known = {item.name: item for item in fields(ServerConfig)}
    required = {name for name, item in known.items() if item.default is MISSING}
    for name in sorted(values.keys() - known.keys()):
        raise ValueError(f"{path}: unknown setting {name}; known are {', '.join(known)}")
    for name in sorted(required - values.keys()):
        raise ValueError(f"{path}: the setting {name} is missing")
    for name, value in values.items():
        wanted = int if known[name].type is int else str
        if type(value) is not wanted:
            raise ValueError(f"{path}: {name} must be {'a number' if wanted is int else 'text'}, got {value!r}")
    return ServerConfig(
        **{name: path.parent / value if known[name].type is Path else value for name, value in values.items()}
    )
