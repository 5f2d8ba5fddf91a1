"""The client: a mod around an app's training, and all that leaves it is a sealed submission of a fixed length.

With the unit ``client`` the app trains as it likes, and the guarantee is about the client as a whole; with the unit
``record`` it replies with :func:`precad.flower.record_update`. Its metrics, its sample count, its arrays and
the words of its errors stay on the node: the reply is built anew (PROTOCOL §9). The app runs without the client's key:
a process of the client's own, ``precad client --flower``, has it, with the task, the state and the budget. The node's
operator says where that listens. Nothing that A sends does.
"""

import copy
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from precad.deployment import keys
from precad.deployment import task as tasks
from precad.deployment.client import Client, RefusedError
from precad.deployment.kept_client import KeptClient
from precad.deployment.replies import Answering, look_seconds, reply_to
from precad.deployment.task import Task
from precad.deployment.transport import TransportError
from precad.flower import wire
from precad.flower.wire import LOG, Layout, vector_of
from precad.mpc import fixed_point
from precad.protocol.params import Params, Unit

REFUSED = 1000
"""The code of the error that A gets instead of a submission. Its words are always the same."""
SOCKET = "precad-socket"
"""The setting of a SuperNode's ``--node-config``: where the process listens that keeps the client's key."""
PARTITION = "partition-id"
MARK = "SIMULATION"
"""A file in the folder of a simulation."""


class PrecadMod:
    """The client of a task: ``ClientApp(mods=[PrecadMod()])``.

    It must be the first of the mods: those after it see the app's own replies. The node's operator names the socket of
    ``precad client --flower`` in the SuperNode's ``--node-config``.

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
        except (RefusedError, TransportError) as refused:
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
        ask, invitation = wire.read(message, wire.ASK), wire.read(message, wire.INVITATION)
        with client_of(context, self._simulated) as client:
            if ask is not None:
                proof = client.introduce(ask, context.node_id)
                return ConfigRecord({wire.NAME: client.name.encode(), wire.PROOF: proof})
            if invitation is None:
                raise RefusedError("a message without an invitation: server A does not use PrecadStrategy")
            _hear(client, wire.read(message, wire.TOLD))
            return ConfigRecord({wire.REPLY: _train(client, invitation, message, context, call_next, arrived)})


@contextmanager
def client_of(context: Context, simulated: Path | None) -> Iterator[Answering[Any]]:
    """The client that the node's operator named; else, in a simulation, the one with the node's number."""
    settings = context.node_config
    if SOCKET in settings:
        with closing(KeptClient(Path(str(settings[SOCKET])))) as kept:
            yield kept
        return
    if simulated is None or not (simulated / MARK).exists() or PARTITION not in settings:
        raise RefusedError(f"the SuperNode's --node-config must name {SOCKET}, where `precad client --flower` listens")
    task, number = _task(simulated / "task.json"), int(settings[PARTITION])
    if not 0 <= number < len(task.members):
        raise RefusedError(f"node {number} of a simulation with {len(task.members)} clients")
    with closing(simulated_client(simulated, task, sorted(task.members)[number])) as client:
        yield client
        if client.participations():
            client.write_log(simulated / f"{client.name}.audit.log")


def simulated_client(folder: Path, task: Task, name: str) -> Client:
    """A client of a simulation, whose state need not outlive a power cut."""
    return Client(task, name, keys.load_private(folder / f"{name}.key"), folder / f"{name}.db", durable=False)


def _task(path: Path) -> Task:
    """A task's file; a process that answers again does not work out its digest and its cost again."""
    try:
        return _unchanged_task(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from None


@lru_cache(maxsize=4)
def _unchanged_task(path: Path, _changed: int) -> Task:
    return tasks.load(path)


def _hear(client: Answering[Any], told: bytes | None) -> None:
    if told is None:
        return
    try:
        LOG.info("the last submission was found %s", client.hear(told))
    except RefusedError as refused:
        LOG.warning("%s", refused)


def _train(
    client: Answering[Any],
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
    client: Answering[Any], message: Message, context: Context, call_next: ClientAppCallable, *, look: float
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
