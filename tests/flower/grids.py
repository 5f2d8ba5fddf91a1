"""A grid in memory: nodes are ClientApps with a context, and every message that passes is kept."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp import Grid
from numpy.typing import NDArray

from precad.deployment.client_config import ClientConfig
from precad.deployment.doors import listen_at, serve_aside
from precad.deployment.keeper import LOCAL, keeper_app
from precad.deployment.leader import Leader
from precad.deployment.rounds import OwnRounds
from precad.deployment.task import Training
from precad.flower.mod import PARTITION, PrecadMod
from precad.flower.strategy import ServerA
from precad.protocol.params import Params, Unit
from precad.protocol.update import Schedule

SHAPES = {"first.weight": (10, 12), "first.bias": (10,), "last": ()}
DIM = sum(int(np.prod(shape)) for shape in SHAPES.values())
TRAINING = Training(
    client_rate=1.0,
    record_rate=1.0,
    rounds=20,
    schedule=Schedule(learning_rate=1.0),
    delta=1e-5,
    budget=1e3,
    participations=5,
)
SECRET = 12345.678
"""A metric that a client's app reports, and that must not leave it."""

Train = Callable[[NDArray[np.float32], int], NDArray[np.float32]]


def arrays(vector: NDArray[np.floating], dtype: str = "float32") -> ArrayRecord:
    cuts = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])[:-1]
    parts = np.split(vector.astype(dtype), cuts)
    return ArrayRecord(
        {name: Array(part.reshape(shape)) for part, (name, shape) in zip(parts, SHAPES.items(), strict=True)}
    )


def update(number: int) -> NDArray[np.float64]:
    """What client ``number`` adds to every model."""
    return np.linspace(-0.1, 0.1, DIM) * (number + 1)


def add_update(model: NDArray[np.float32], number: int) -> NDArray[np.float32]:
    return (model + update(number)).astype(np.float32)


def app(train: Train = add_update, mods: list[Mod] | None = None, simulated: Path | None = None) -> ClientApp:
    """An app that knows nothing of precad but its mod."""
    made = ClientApp(mods=[PrecadMod(simulated)] if mods is None else mods)

    @made.train()
    def train_app(message: Message, context: Context) -> Message:
        received = message.content.array_records["arrays"]
        assert set(message.content) == {"arrays", "config"}
        model = np.concatenate([array.numpy().ravel() for array in received.values()])
        assert model.dtype == np.float32
        trained = arrays(train(model, int(str(context.node_config[PARTITION]))))
        metrics = MetricRecord({"num-examples": 4711, "loss": SECRET})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    @made.evaluate()
    def evaluate_app(message: Message, _context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": SECRET})}), reply_to=message)

    return made


@dataclass
class MemoryGrid(Grid):
    """Node ``100 + i`` runs ``apps[i]``; None is a node that is there and never answers."""

    apps: dict[int, ClientApp | None]
    replies: list[Message] = field(default_factory=list)
    tamper: Callable[[Message], None] = lambda _message: None
    run_config: dict[str, bool | float | int | str] = field(default_factory=dict)
    node_config: dict[str, bool | float | int | str] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)
    _inbox: dict[str, Message] = field(default_factory=dict)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_arguments: object, **_named: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [100 + number for number in self.apps]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identifiers = []
        for message in messages:
            identifier = f"message {next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = identifier  # as the SuperLink does
            identifiers.append(identifier)
            self._deliver(identifier, message)
        return identifiers

    def _deliver(self, identifier: str, message: Message) -> None:
        number = message.metadata.dst_node_id - 100
        client = self.apps[number]
        if client is None:
            return
        self.tamper(message)
        settings = {PARTITION: number, **self.node_config}
        context = Context(1, message.metadata.dst_node_id, settings, RecordDict(), dict(self.run_config))
        reply = client(message, context)
        self.replies.append(reply)
        self._inbox[identifier] = reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._inbox.pop(identifier) for identifier in message_ids if identifier in self._inbox]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        return self.pull_messages(self.push_messages(list(messages)))


def server(folder: Path, clients: int = 3, training: Training = TRAINING) -> ServerA:
    """Both servers and the clients' kits in a folder; the initial model is all ones."""
    bounds = Params(
        dim=DIM, clients=clients, record_bound=1.0, client_bound=1.0, noise_multiplier=1.0, unit=Unit.CLIENT
    )
    return ServerA.simulated(folder, np.ones(DIM), bounds, training)


def leader(server: ServerA) -> Leader:
    """Server A of a simulation."""
    assert isinstance(server.rounds, OwnRounds)
    return server.rounds.leader


@contextmanager
def keeper(folder: Path, name: str, data: Path | None = None) -> Iterator[Path]:
    """The keeper of a client's key, whose files are in a folder; where it listens."""
    config = ClientConfig(
        folder / "task.json",
        name,
        folder / f"{name}.key",
        folder / f"{name}.db",
        folder / f"{name}.audit.log",
        data,
    )
    with closing(config.open_client(config.load_task())) as client:
        door = serve_aside(keeper_app(client, config.audit_log), [listen_at(config.app_socket)], bounds=LOCAL)
        try:
            yield config.app_socket
        finally:
            door.leave()
