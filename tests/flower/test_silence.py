"""Whether a client answers does not depend on its records: once invited in order, it submits, whatever fails."""

import asyncio
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from precad.flower import wire
from precad.flower.mod import PrecadMod
from precad.flower.records import record_update
from precad.flower.strategy import PrecadStrategy, ServerA
from precad.flower.wire import vector_of
from precad.mpc.prg import Digest
from precad.protocol import aggregation
from precad.protocol.codec import Blob
from precad.protocol.messages import Head, encode
from precad.protocol.params import Params, Unit
from tests.flower import grids
from tests.flower.grids import MemoryGrid

WORDS = "record 17 of Jane Doe"
RECORDS, ROUNDS = 40, 12

Training = Callable[[Message, Context], Message]


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Linear(12, 10)


def server(folder: Path, unit: Unit, clients: int = 1) -> ServerA:
    model = vector_of(ArrayRecord(net().state_dict()))
    bounds = Params(dim=model.size, clients=clients, record_bound=0.5, client_bound=20, noise_multiplier=99, unit=unit)
    training = replace(grids.TRAINING, record_rate=0.5, participations=ROUNDS)
    return ServerA.simulated(folder, model, bounds, training, records=RECORDS)


def play(folder: Path, made: ServerA, trainings: Sequence[Training], rounds: int = 1) -> list[Message]:
    """The replies to invitations, of clients that train like this."""
    apps = {}
    for number, training in enumerate(trainings):
        apps[number] = ClientApp(mods=[PrecadMod(folder)])
        apps[number].train()(training)
    grid, inner = MemoryGrid({**apps}), FedAvg(min_train_nodes=1, min_available_nodes=1)
    PrecadStrategy(inner, made, patience=0.01).start(grid, ArrayRecord(net().state_dict()), num_rounds=rounds)
    return grid.replies[len(apps) :]  # the first say which client it is


@pytest.fixture
def _no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "integer_gaussian", lambda _std, size, _stream: np.zeros(size, np.int64))


def sealed(replies: list[Message]) -> list[bytes]:
    found = [wire.read(reply, wire.REPLY) for reply in replies]
    return [reply for reply in found if reply is not None]


class _BrokenError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class _OfItsOwn(BaseException):
    pass


def _exits(_message: Message, _context: Context) -> Message:
    sys.exit(WORDS)


def _recurses(message: Message, context: Context) -> Message:
    return _recurses(message, context)


def _generates(message: Message, _context: Context) -> Message:
    return next(message for _ in ())


def _leaves_numpy_strict(_message: Message, _context: Context) -> Message:
    np.seterr(all="raise")
    raise FloatingPointError(WORDS)


def _loses_the_message(message: Message, _context: Context) -> Message:
    message.__dict__.clear()
    raise ValueError(WORDS)


def _answers_an_error(message: Message, _context: Context) -> Message:
    return Message(Error(0, WORDS), reply_to=message)


def _returns(content: Callable[[], RecordDict]) -> Training:
    def training(message: Message, _context: Context) -> Message:
        return Message(content(), reply_to=message)

    return training


def _update(value: Array) -> RecordDict:
    return RecordDict({wire.SUM: ArrayRecord({wire.SUM: value})})


def _arrays(change: Callable[[NDArray[np.float32]], Array]) -> RecordDict:
    changed = {name: change(value.numpy()) for name, value in net().state_dict().items()}
    return RecordDict({"arrays": ArrayRecord(changed)})


def _raises(error: BaseException) -> Training:
    def training(_message: Message, _context: Context) -> Message:
        raise error

    return training


RAISED: list[BaseException] = [
    ArithmeticError(WORDS),
    AssertionError(WORDS),
    AttributeError(WORDS),
    BaseExceptionGroup(WORDS, [KeyboardInterrupt(), ValueError()]),
    BufferError(WORDS),
    EOFError(WORDS),
    FileNotFoundError(2, WORDS),
    FloatingPointError(WORDS),
    GeneratorExit(WORDS),
    ImportError(WORDS),
    IndexError(WORDS),
    KeyError(WORDS),
    KeyboardInterrupt(WORDS),
    MemoryError(WORDS),
    NotImplementedError(WORDS),
    OverflowError(WORDS),
    PermissionError(13, WORDS),
    RuntimeError(WORDS),
    StopAsyncIteration(WORDS),
    StopIteration(WORDS),
    SyntaxError(WORDS),
    SystemExit(1),
    TimeoutError(WORDS),
    TypeError(WORDS),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, WORDS),
    UserWarning(WORDS),
    ValueError(WORDS),
    ZeroDivisionError(WORDS),
    asyncio.CancelledError(WORDS),
    np.linalg.LinAlgError(WORDS),
    queue.Empty(WORDS),
    threading.BrokenBarrierError(WORDS),
    torch.OutOfMemoryError(WORDS),
    _BrokenError(),
    _OfItsOwn(WORDS),
]
FAILURES: dict[str, Training] = {
    **{type(error).__name__: _raises(error) for error in RAISED},
    "exits": _exits,
    "recurses": _recurses,
    "an empty generator": _generates,
    "strict numpy": _leaves_numpy_strict,
    "loses the message": _loses_the_message,
    "an error": _answers_an_error,
    "nothing": lambda _message, _context: cast(Message, None),
    "a number": lambda _message, _context: cast(Message, 7),
    "no arrays": _returns(RecordDict),
    "other arrays": _returns(lambda: RecordDict({"arrays": ArrayRecord({"x": Array(np.zeros(3, np.float32))})})),
    "arrays that are not finite": _returns(lambda: _arrays(lambda value: Array(value * np.nan))),
    "arrays that cannot be read": _returns(
        lambda: _arrays(lambda value: Array("float32", value.shape, "numpy.ndarray", b""))
    ),
    "a sum of other length": _returns(lambda: _update(Array(np.zeros(3, np.int64)))),
    "a sum of another type": _returns(lambda: _update(Array(np.zeros(130, np.float32)))),
    "a sum that cannot be read": _returns(lambda: _update(Array("int64", (130,), "numpy.ndarray", b""))),
}


def _stays(message: Message, _context: Context) -> Message:
    return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)


def _sums_zeros(message: Message, _context: Context) -> Message:
    return Message(_update(Array(np.zeros(130, np.int64))), reply_to=message)


HONEST: dict[Unit, Training] = {Unit.CLIENT: _stays, Unit.RECORD: _sums_zeros}
"""Trainings that succeed, and give zeros."""


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.usefixtures("_no_noise")
def test_whatever_training_does_the_client_submits(
    unit: Unit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Replies of one length, of zeros; the reasons stay in the clients' own logs."""
    names, made = list(FAILURES), server(tmp_path / "s", unit, len(FAILURES) + 1)
    before = grids.leader(made).model()
    replies = play(tmp_path / "s", made, [FAILURES[name] for name in names] + [HONEST[unit]])
    assert [name for name, reply in zip(names, replies, strict=False) if reply.has_error()] == []
    assert len({len(reply) for reply in sealed(replies)}) == 1
    assert sum("zeros" in record.message for record in caplog.records if record.name == "precad.client") == len(names)
    assert set(grids.leader(made).ledger.participations().values()) == {1}
    assert len(grids.leader(made).ledger.participations()) == len(names) + 1
    assert np.array_equal(grids.leader(made).model(), before)


def test_another_mod_that_fails_is_training_that_fails(tmp_path: Path) -> None:
    made = server(tmp_path / "s", Unit.CLIENT)

    def fails(_message: Message, _context: Context, _call_next: ClientAppCallable) -> Message:
        raise SystemExit(WORDS)

    grid = MemoryGrid({0: grids.app(mods=[PrecadMod(tmp_path / "s"), fails])})
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1)
    PrecadStrategy(inner, made, patience=0.01).start(grid, ArrayRecord(net().state_dict()), num_rounds=1)
    assert len(sealed(grid.replies)) == 1


@pytest.mark.parametrize("label", [10, -1])
def test_a_label_out_of_range_is_in_no_round_a_reason_to_be_silent(label: int, tmp_path: Path) -> None:
    """In twelve rounds, in half of which it is drawn; in none of them with probability 2^-12."""
    made = server(tmp_path / "s", Unit.RECORD)
    inputs, targets = torch.randn(RECORDS, 12), torch.randint(10, (RECORDS,))
    targets[5] = label

    def train(message: Message, _context: Context) -> Message:
        return record_update(message, net(), cross_entropy, inputs, targets)

    replies = play(tmp_path / "s", made, [train], ROUNDS)
    assert len(sealed(replies)) == ROUNDS
    first, *others = (len(reply) for reply in sealed(replies))
    assert set(others) == {first + len(encode(Head(0, Digest(bytes(32)), Blob(bytes(64)), Blob(bytes(64)))))}


def test_the_file_of_the_log_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = server(tmp_path / "s", Unit.CLIENT)

    def train(message: Message, context: Context) -> Message:
        (tmp_path / "s" / "client-0000.audit.log").mkdir(exist_ok=True)
        return HONEST[Unit.CLIENT](message, context)

    assert len(sealed(play(tmp_path / "s", made, [train]))) == 1
    assert "audit log was not written" in caplog.text


def test_ctrl_c_ends_the_client(tmp_path: Path) -> None:
    """It comes to the thread that waits, and is no failure of the training."""
    made = server(tmp_path / "s", Unit.CLIENT)

    def train(message: Message, context: Context) -> Message:
        signal.raise_signal(signal.SIGINT)  # handled by the main thread, as one from a terminal is
        time.sleep(0.5)
        return HONEST[Unit.CLIENT](message, context)

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "s", made, [train])
    assert grids.leader(made).ledger.participations() == {}
