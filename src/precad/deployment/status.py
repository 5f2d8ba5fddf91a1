"""How far a server has come, from its file: for its operator's eyes."""

from contextlib import closing
from typing import Any

from precad.deployment.config import ServerConfig
from precad.deployment.disk import StoreError, in_words
from precad.deployment.keys import Identity
from precad.deployment.store import Store
from precad.deployment.task import Task
from precad.errors import ProtocolError
from precad.privacy.ledger import Ledger
from precad.protocol.digests import model_digest


def of(config: ServerConfig) -> dict[str, Any]:
    """The last round, the model, and what is left of the task. The server may be running meanwhile."""
    if not config.store.is_file():
        raise StoreError(f"there is no store at {config.store}: the server has not run yet")
    task = config.load_task()
    identity = _own(config, task)
    with closing(Store(config.store, task, identity.name)) as store:
        row, opened, model = store.last_round(), store.opened_rounds(), store.model()
    with in_words():
        counts = Ledger(config.store, task.digest.hex(), task.terms).participations()
    cap = task.training.participations
    return {
        "server": identity.name,
        "task": task.digest.hex(),
        "round": None if row is None else row.number,
        "state": "no round yet" if row is None else row.status.value,
        "rounds opened": opened,
        "rounds left": task.training.rounds - opened,
        "model": model_digest(model).hex(),
        "clients left": sum(counts.get(name, 0) < cap for name in task.members),
    }


def _own(config: ServerConfig, task: Task) -> Identity:
    public = config.load_key().public_key().public_bytes_raw()
    for server in (task.server_a, task.server_b):
        if server.key == public:
            return server
    raise ProtocolError(f"{config.key} is not the key of a server of this task")
