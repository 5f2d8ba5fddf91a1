"""Tasks by record: the sum of clipped gradients of a Poisson sample, and nothing else, moves the model."""

import copy
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn.functional import cross_entropy

from precad.flower import wire
from precad.flower.mod import PARTITION, PrecadMod
from precad.flower.records import record_update
from precad.flower.strategy import PrecadStrategy, ServerA
from precad.flower.wire import vector_of
from precad.gradients.engine import PerRecordGradients
from precad.mpc import fixed_point
from precad.privacy import clipping
from precad.protocol import aggregation
from precad.protocol.params import Params, Unit
from tests.flower import grids
from tests.flower.grids import MemoryGrid
from tests.messages import says

CLIENTS, RECORDS, R, C = 3, 40, 0.5, 20.0
"""C is R·|D_i|: no sum is longer."""


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Linear(12, 10)


def records(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(RECORDS, 12, generator=generator), torch.randint(10, (RECORDS,), generator=generator)


def app(folder: Path) -> ClientApp:
    made = ClientApp(mods=[PrecadMod(folder)])

    @made.train()
    def train(message: Message, context: Context) -> Message:
        return record_update(message, net(), cross_entropy, *records(int(str(context.node_config[PARTITION]))))

    return made


def server(folder: Path, rate: float, declared: int = RECORDS, bound: float = C) -> ServerA:
    model = vector_of(ArrayRecord(net().state_dict()))
    bounds = Params(
        dim=model.size, clients=CLIENTS, record_bound=R, client_bound=bound, noise_multiplier=1.0, unit=Unit.RECORD
    )
    training = replace(grids.TRAINING, record_rate=rate)
    return ServerA.simulated(folder, model, bounds, training, records=declared)


def train(made: ServerA, grid: MemoryGrid) -> np.ndarray:
    """One round; how far the opened sum moved the model, in grid units."""
    before, task = grids.leader(made).model(), grids.leader(made).task
    PrecadStrategy(FedAvg(), made, patience=0.01).start(grid, ArrayRecord(net().state_dict()), num_rounds=1)
    moved = (grids.leader(made).model() - before) * task.normaliser(frozenset())
    return np.rint(moved * 2.0**task.bounds.fractional_bits).astype(np.int64)


@pytest.fixture
def _no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "integer_gaussian", lambda _std, size, _stream: np.zeros(size, np.int64))


def gradients(number: int, f: int) -> np.ndarray:
    """Each record's clipped gradient on the grid, one per row."""
    theta = vector_of(ArrayRecord(net().state_dict()))
    rows = PerRecordGradients(net(), cross_entropy).per_record(theta, *records(number))
    return np.array([clipping.encode_clipped(row, R, f) for row in rows])


@pytest.mark.usefixtures("_no_noise")
def test_every_record_counts_at_rate_one(tmp_path: Path) -> None:
    bound = 1.0
    made = server(tmp_path / "s", 1.0, bound=bound)
    f = grids.leader(made).task.bounds.fractional_bits
    moved = train(made, MemoryGrid(dict.fromkeys(range(CLIENTS), app(tmp_path / "s"))))
    sums = [-gradients(number, f).sum(0) for number in range(CLIENTS)]
    expected = sum(clipping.encode_clipped(fixed_point.decode(x, f), bound, f) for x in sums)
    assert np.array_equal(moved, expected)
    assert any(np.linalg.norm(x) > bound * 2**f for x in sums), "the client's bound is tried too"


@pytest.mark.usefixtures("_no_noise")
def test_a_record_without_a_finite_gradient_counts_as_none_and_the_client_submits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Staying silent would tell of one record (PROTOCOL §7a). The client's log does."""
    made = server(tmp_path / "s", 1.0)
    broken = ClientApp(mods=[PrecadMod(tmp_path / "s")])

    @broken.train()
    def train_here(message: Message, _context: Context) -> Message:
        inputs, targets = records(0)
        inputs[3], inputs[7], targets[9] = torch.nan, torch.inf, 10
        return record_update(message, net(), cross_entropy, inputs, targets)

    f = grids.leader(made).task.bounds.fractional_bits
    moved = train(made, MemoryGrid({0: broken, 1: None}))
    x = fixed_point.decode(-np.delete(gradients(0, f), [3, 7, 9], axis=0).sum(0), f)
    assert np.array_equal(moved, clipping.encode_clipped(x, C, f))
    assert re.search(says("3 of 40 records", "record 3, 7", "record 9"), caplog.text)
    caplog.clear()
    train(made, MemoryGrid({0: broken, 1: None}))
    assert "do not count" not in caplog.text, "it is told once"


@pytest.mark.usefixtures("_no_noise")
def test_a_sample_is_drawn_at_the_task_s_rate(tmp_path: Path) -> None:
    """What arrives is the sum over some subset; two rounds draw two."""
    made = server(tmp_path / "s", 0.25)
    grid = MemoryGrid({0: app(tmp_path / "s"), 1: None, 2: None})
    rows = gradients(0, grids.leader(made).task.bounds.fractional_bits).astype(np.float64)
    picked, *_ = np.linalg.lstsq(rows.T, -train(made, grid).astype(np.float64), rcond=None)
    assert np.allclose(picked, np.rint(picked), atol=1e-6)
    assert set(np.rint(picked)) <= {0.0, 1.0}
    assert 0 < np.rint(picked).sum() < RECORDS  # an honest sample is all or nothing with probability 10^-5


def test_nothing_but_the_sealed_submission_leaves(tmp_path: Path) -> None:
    made = server(tmp_path / "s", 0.5)
    grid = MemoryGrid(dict.fromkeys(range(CLIENTS), app(tmp_path / "s")))
    train(made, grid)
    sent = [reply for reply in grid.replies if wire.REPLY in reply.content.config_records[wire.RECORD]]
    assert [set(reply.content) for reply in sent] == [{wire.RECORD}] * CLIENTS
    assert len({len(wire.read(reply, wire.REPLY) or b"") for reply in sent}) == 1


@pytest.mark.usefixtures("_no_noise")
def test_any_other_training_counts_as_zeros(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The mod cannot bound what one record does to it."""
    made = server(tmp_path / "s", 0.5)
    free = ClientApp(mods=[PrecadMod(tmp_path / "s")])

    @free.train()
    def train_freely(message: Message, _context: Context) -> Message:
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    assert not train(made, MemoryGrid({0: free, 1: None})).any()
    assert "record_update" in caplog.text
    assert grids.leader(made).ledger.participations() == {"client-0000": 1}


@pytest.mark.usefixtures("_no_noise")
def test_the_terms_are_the_client_s_own(tmp_path: Path) -> None:
    """What A says about R, p and the grid is dropped."""
    made = server(tmp_path / "s", 1.0)
    f = grids.leader(made).task.bounds.fractional_bits
    terms = ConfigRecord({"record_bound": 50.0, "record_rate": 1.0, "fractional_bits": 20, "records": 10**6})

    def evil(message: Message) -> None:
        message.content[wire.LOCAL] = terms

    moved = train(made, MemoryGrid({0: app(tmp_path / "s"), 1: None}, tamper=evil))
    x = fixed_point.decode(-gradients(0, f).sum(0), f)
    assert np.array_equal(moved, clipping.encode_clipped(x, C, f))


@pytest.mark.usefixtures("_no_noise")
def test_more_records_than_declared_count_as_zeros(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = server(tmp_path / "s", 0.5, declared=RECORDS - 1)
    assert not train(made, MemoryGrid({0: app(tmp_path / "s"), 1: None})).any()
    assert grids.leader(made).ledger.participations() == {"client-0000": 1}
    assert re.search(says("39 records", "got 40"), caplog.text)


def test_a_model_of_other_parameters_is_refused() -> None:
    terms = ConfigRecord({"record_bound": 1.0, "record_rate": 0.5, "fractional_bits": 16, "records": RECORDS})
    content = RecordDict({"arrays": ArrayRecord(net().state_dict()), wire.LOCAL: terms})
    message = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
    frozen = net()
    frozen.bias.requires_grad_(False)
    for model in (frozen, nn.Linear(12, 9), nn.Sequential(net())):
        with pytest.raises(ValueError, match="trainable parameters"):
            record_update(message, model, cross_entropy, *records(0))


def test_a_task_by_client_has_no_record_update() -> None:
    content = RecordDict({"arrays": ArrayRecord(net().state_dict())})
    message = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
    with pytest.raises(ValueError, match=says("PrecadMod", "unit", "client")):
        record_update(message, net(), cross_entropy, *records(0))


def test_a_deployed_client_replies_when_the_task_says(tmp_path: Path) -> None:
    """In the first round, when it rehearses, in another, and asked again; A waits longer than that."""
    train(server(tmp_path / "warm", 0.5), MemoryGrid({0: app(tmp_path / "warm"), 1: None}))  # loads what is loaded once
    seconds, calls = 2.0, list[str]()
    model = vector_of(ArrayRecord(net().state_dict()))
    bounds = Params(dim=model.size, clients=1, record_bound=R, client_bound=C, noise_multiplier=9.0, unit=Unit.RECORD)
    training = replace(grids.TRAINING, record_rate=0.5, reply_seconds=seconds)
    made = ServerA.simulated(tmp_path / "s", model, bounds, training, records=RECORDS)
    client = ClientApp(mods=[PrecadMod(tmp_path / "s")])

    @client.train()
    def train_here(message: Message, context: Context) -> Message:
        calls.append("called")
        context.state["seen"] = ConfigRecord({"calls": len(calls)})
        message.content.pop("config")
        return record_update(message, net(), cross_entropy, *records(0))

    strategy = PrecadStrategy(FedAvg(min_train_nodes=1, min_available_nodes=1), made, patience=0.01)
    arrays = ArrayRecord(net().state_dict())
    with pytest.raises(ValueError, match=says("timeout", "2 seconds", "after 2")):
        strategy.start(MemoryGrid({0: client}), arrays, timeout=seconds)
    grid = MemoryGrid({0: client})
    for number in (2, 3):  # calls of the app: a rehearsal and the first round, then the second
        (invitation,) = strategy.configure_train(1, arrays, ConfigRecord({}), grid)
        replies: list[Message] = []
        for again in (copy.deepcopy(invitation), invitation):
            begun = time.monotonic()
            replies += grid.send_and_receive([again])
            assert seconds <= time.monotonic() - begun < seconds + 1
        assert wire.read(replies[0], wire.REPLY) == wire.read(replies[1], wire.REPLY) is not None
        assert len(calls) == number
        strategy.aggregate_train(1, replies[:1])
    assert grids.leader(made).ledger.participations() == {"client-0000": 2}
