"""A small consortium: two servers, a few clients, one task."""

import datetime
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import keys
from precad.deployment import task as tasks
from precad.deployment.keys import Identity
from precad.deployment.task import Member, Task, Training
from precad.protocol.digests import model_digest
from precad.protocol.params import Params, Unit
from precad.protocol.states import Role
from precad.protocol.update import Schedule

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DIM = 140
CLIENTS = ("bank", "clinic", "lab")
MODEL: NDArray[np.float64] = np.linspace(-1, 1, DIM)
TRAINING = Training(
    client_rate=1.0,
    record_rate=0.05,
    rounds=50,
    schedule=Schedule(learning_rate=0.5),
    delta=1e-5,
    budget=8.0,
    participations=5,
    epoch_rounds=2,
)
PARAMS = Params(dim=DIM, clients=1, record_bound=2.0, client_bound=30.0, noise_multiplier=4.0, unit=Unit.CLIENT)


@dataclass(frozen=True)
class World:
    task: Task
    client_keys: dict[str, Ed25519PrivateKey]
    server_keys: dict[Role, Ed25519PrivateKey]


@cache
def server_identity(name: str) -> tuple[Identity, Ed25519PrivateKey]:
    with TemporaryDirectory() as folder:
        identity = keys.new_server(Path(folder), name, NOW)
        return identity, keys.load_private(Path(folder) / f"{name}.key")


def make(training: Training = TRAINING, params: Params = PARAMS, clients: tuple[str, ...] = CLIENTS) -> World:
    (server_a, key_a), (server_b, key_b) = server_identity("alpha"), server_identity("beta")
    client_keys = {name: Ed25519PrivateKey.generate() for name in clients}
    task = Task(bounds=params, training=training, server_a=server_a, server_b=server_b, model=model_digest(MODEL))
    for name, key in client_keys.items():
        task = task.with_member(Identity(name, key.public_key().public_bytes_raw()), 100)
    assert all(isinstance(member, Member) for member in task.roster)
    return World(task, client_keys, {Role.A: key_a, Role.B: key_b})


def save(setting: World, folder: Path) -> None:
    """Write a world to files, for another process."""
    folder.mkdir(parents=True, exist_ok=True)
    setting.task.save(folder / "task.json")
    named = {**setting.client_keys, "alpha": setting.server_keys[Role.A], "beta": setting.server_keys[Role.B]}
    for name, key in named.items():
        path = folder / f"{name}.key"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        path.chmod(0o600)


def load(folder: Path) -> World:
    """The world of a folder."""
    task = tasks.load(folder / "task.json")
    client_keys = {name: keys.load_private(folder / f"{name}.key") for name in task.members}
    servers = {role: keys.load_private(folder / f"{task.server(role).name}.key") for role in Role}
    return World(task, client_keys, servers)
