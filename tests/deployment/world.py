"""A small consortium: two servers, a few clients, one task."""

import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precad.deployment import keys
from precad.deployment import task as tasks
from precad.deployment.keys import Identity, OwnKeys
from precad.deployment.parties import Parties
from precad.deployment.task import Training
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


def make(
    training: Training = TRAINING,
    params: Params = PARAMS,
    clients: tuple[str, ...] = CLIENTS,
    now: datetime.datetime = NOW,
) -> Parties:
    return Parties.new(MODEL, params, training, dict.fromkeys(clients, 100), now=now)


def load(folder: Path) -> Parties:
    """The parties that :meth:`Parties.save` left in a folder, for another process."""

    def own(identity: Identity) -> OwnKeys:
        return OwnKeys(identity, keys.load_private(folder / f"{identity.name}.key"))

    task = tasks.load(folder / "task.json")
    clients = {name: own(member.identity) for name, member in task.members.items()}
    return Parties(task, MODEL, {role: own(task.server(role)) for role in Role}, clients)
