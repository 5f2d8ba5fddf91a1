"""The client: a mod around an app's training, and all that leaves it is a sealed submission of a fixed length.

With the unit ``client`` the app trains as it likes, and the guarantee is about the client as a whole; with the unit
``record`` it replies with :func:`precad.flower.record_update`. Its metrics, its sample count, its arrays and
the words of its errors stay on the node: the reply is built anew (PROTOCOL §9). A client takes the task, and with it
both servers' keys, from its own disk, where its operator put it. Nothing that A sends says where to look.
"""

import copy
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from precad.deployment import keys, receipts
from precad.deployment import kit as kits
from precad.deployment import task as tasks
from precad.deployment.client import Client, RefusedError
from precad.deployment.replies import look_seconds, reply_to
from precad.deployment.task import Task
from precad.flower import wire
from precad.flower.wire import LOG, Layout, vector_of
from precad.mpc import fixed_point
from precad.protocol.params import Params, Unit

REFUSED = 1000
"""The code of the error that A gets instead of a submission. Its words are always the same."""
KIT, NAME, DATA = "precad-kit", "precad-name", "precad-data"
"""The settings of a SuperNode's ``--node-config``: the client's folder, its name in the task, its data set's ledger."""
PARTITION = "partition-id"
MARK = "SIMULATION"
"""A file in the folder of a simulation."""


class PrecadMod:
    """The client of a task: ``ClientApp(mods=[PrecadMod()])``.

    It must be the first of the mods: those after it see the app's own replies. The node's operator names the client's
    folder in the SuperNode's ``--node-config``.

    Args:
        simulated: The folder of :meth:`ServerA.simulated`, for nodes that have no such setting.
    """

    def __init__(self, simulated: Path | None = None) -> None:
        self._simulated = simulated

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer A. Whatever goes wrong, here or in the app, is for this node's log alone."""
        reply = Message(RecordDict(), reply_to=message)  # before the app has its hands on the message
        refusal = Message(Error(REFUSED, "this client sends nothing; its own log says why"), reply_to=message)
        try:
            reply.content[wire.RECORD] = self._answer(message, context, call_next)
        except RefusedError as refused:
            LOG.warning("nothing is sent: %s", refused)
        except Exception:
            LOG.exception("nothing is sent")
        else:
            return reply
        return refusal

    def _answer(self, message: Message, context: Context, call_next: ClientAppCallable) -> ConfigRecord:
        arrived = time.monotonic()
        if message.metadata.message_type != MessageType.TRAIN:
            raise RefusedError(f"a message to {message.metadata.message_type}: its answer would be in the clear")
        kit = Kit.of(context, self._simulated)
        ask, invitation = wire.read(message, wire.ASK), wire.read(message, wire.INVITATION)
        if ask is not None:
            return _introduce(kit, ask, context.node_id)
        if invitation is None:
            raise RefusedError("a message without an invitation: server A does not use PrecadStrategy")
        client = kit.client(kit.task())
        try:
            _hear(client, wire.read(message, wire.TOLD))
            reply = _train(client, invitation, message, context, call_next, arrived)
            _write_log(kit, client)
        finally:
            client.close()
        return ConfigRecord({wire.REPLY: reply})


@dataclass(frozen=True)
class Kit:
    """A client's folder: task.json, NAME.key, and, once it took part, NAME.db and NAME.audit.log."""

    folder: Path
    name: str
    durable: bool = True
    """False in a simulation, whose state need not outlive a power cut."""
    data: Path | None = None
    """The folder of the data set's ledger, over all tasks and apps."""

    @classmethod
    def of(cls, context: Context, simulated: Path | None) -> "Kit":
        """The kit that the node's operator named; else, in a simulation, that of the client with the node's number."""
        settings = context.node_config
        if KIT in settings and NAME in settings:
            folder, own = Path(str(settings[KIT])), Path(str(settings[KIT])) / kits.DATA
            data = Path(str(settings[DATA])) if DATA in settings else own if own.exists() else None
            return cls(folder, str(settings[NAME]), data=data)
        half = KIT in settings or NAME in settings
        if half or simulated is None or not (simulated / MARK).exists() or PARTITION not in settings:
            raise RefusedError(f"the SuperNode's --node-config must name the client's folder {KIT} and {NAME}")
        names = sorted(_task(simulated / "task.json").members)
        number = int(settings[PARTITION])
        if not 0 <= number < len(names):
            raise RefusedError(f"node {number} of a simulation with {len(names)} clients")
        return cls(simulated, names[number], durable=False)

    def task(self) -> Task:
        """The task that the client joined."""
        return _task(self.folder / "task.json")

    def key(self) -> Ed25519PrivateKey:
        """The client's key."""
        return keys.load_private(self.folder / f"{self.name}.key")

    def client(self, task: Task) -> Client:
        """The client, on its state."""
        if self.data is None and self.durable:
            LOG.warning("the node names no %s: what other tasks on the same data cost is not counted", DATA)
        state = self.folder / f"{self.name}.db"
        return Client(task, self.name, self.key(), state, durable=self.durable, data=self.data)

    def write_log(self, client: Client) -> None:
        """Bring the audit log's file up to date."""
        receipts.write(self.folder / f"{self.name}.audit.log", client.log())


def _task(path: Path) -> Task:
    """A task's file; a process that answers again does not work out its digest and its cost again."""
    try:
        return _unchanged_task(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from None


@lru_cache(maxsize=4)
def _unchanged_task(path: Path, _changed: int) -> Task:
    return tasks.load(path)


def _introduce(kit: Kit, ask: bytes, node: int) -> ConfigRecord:
    statement = wire.introduction(kit.task().digest, ask, node)
    return ConfigRecord({wire.NAME: kit.name.encode(), wire.PROOF: bytes(keys.sign(kit.key(), statement))})


def _hear(client: Client, told: bytes | None) -> None:
    if told is None:
        return
    try:
        LOG.info("the last submission was found %s", client.hear(told))
    except RefusedError as refused:
        LOG.warning("%s", refused)


def _write_log(kit: Kit, client: Client) -> None:
    """The state holds the log too: its file may wait, the reply may not."""
    try:
        kit.write_log(client)
    except Exception:
        LOG.exception("the file of the audit log was not written")


def _train(
    client: Client,
    invitation: bytes,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    arrived: float,
) -> bytes:
    """Check the model, let the app train it, and seal the difference that it made."""
    _, received = _only_arrays(message)

    look = look_seconds(client, rehearsal=False)

    def rehearse() -> NDArray[np.float64]:
        own = copy.deepcopy(message), copy.deepcopy(context)
        return _update(client, *own, call_next, look=look_seconds(client, rehearsal=True))

    def train() -> NDArray[np.float64]:
        return _update(client, message, context, call_next, look=look)

    return reply_to(client, invitation, _vector(received), train, rehearse=rehearse, arrived=arrived)


def _update(
    client: Client, message: Message, context: Context, call_next: ClientAppCallable, *, look: float
) -> NDArray[np.float64]:
    """Hand the app its model, and by record its terms; what it makes of them, as an update."""
    name, received = _only_arrays(message)
    layout = Layout.of(received)
    handed = layout.record(_vector(received), np.float32)
    before = _vector(handed)
    others = {key: record for key, record in message.content.items() if key not in (name, wire.RECORD, wire.LOCAL)}
    message.content = RecordDict({name: handed, **others})
    bounds = client.task.bounds
    if bounds.unit is Unit.RECORD:
        message.content[wire.LOCAL] = ConfigRecord(asdict(client.task.record_terms(client.name, look)))
    trained = call_next(message, context)
    if trained.has_error():
        raise RefusedError("the app answered with an error")
    return _summed(trained, bounds) if bounds.unit is Unit.RECORD else _moved(trained, layout, before)


def _moved(trained: Message, layout: Layout, before: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far any training moved the model."""
    _, returned = _only_arrays(trained)
    if Layout.of(returned) != layout:
        raise RefusedError("the app's arrays have other names, shapes or another order than the model that was sent")
    return _vector(returned) - before


def _summed(trained: Message, bounds: Params) -> NDArray[np.float64]:
    """The sum of a record update. Of any other training nobody knows what one record does to it."""
    record = trained.content.array_records.get(wire.SUM)
    if record is None:
        raise RefusedError("the task is by record: the app must reply with precad.flower.records.record_update")
    total = record[wire.SUM].numpy()
    if total.dtype != np.int64 or total.shape != (bounds.dim,):
        raise RefusedError(f"a record update has {bounds.dim} integers, got {total.dtype} of shape {total.shape}")
    return fixed_point.decode(total, bounds.fractional_bits)


def _only_arrays(message: Message) -> tuple[str, ArrayRecord]:
    records = list(message.content.array_records.items())
    if len(records) != 1:
        raise RefusedError(f"a message with {len(records)} records of arrays, expected one")
    name, arrays = records[0]
    return name, arrays


def _vector(arrays: ArrayRecord) -> NDArray[np.float64]:
    try:
        return vector_of(arrays)
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error)) from None
