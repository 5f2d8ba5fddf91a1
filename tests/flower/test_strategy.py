"""The strategy and the mod, in memory: training, refusals, and what leaves a client."""

import logging
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx, Strategy
from numpy.typing import NDArray

from precad.deployment import receipts
from precad.deployment.data_file import DataBudget, view
from precad.deployment.data_ledger import DataLedger
from precad.errors import ProtocolError
from precad.flower import collecting, wire
from precad.flower import strategy as strategies
from precad.flower.mod import SOCKET, PrecadMod
from precad.flower.strategy import PrecadStrategy, ServerA
from precad.flower.wire import vector_of
from precad.mpc import fixed_point
from precad.privacy import clipping
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary
from precad.protocol import aggregation
from precad.protocol.params import Unit
from precad.protocol.update import Model, Optimiser, next_model
from tests.flower import grids
from tests.flower.grids import MemoryGrid
from tests.messages import says

Floats = NDArray[np.float32]

NO_LEDGER = "the settings name no ledger of the data"


def strategy(server: ServerA, inner: Strategy | None = None) -> PrecadStrategy:
    return PrecadStrategy(inner or FedAvg(), server, patience=0.01)


def start(made: PrecadStrategy, grid: MemoryGrid, rounds: int = 1) -> list[ArrayRecord]:
    seen: list[ArrayRecord] = []

    def keep(_round: int, arrays: ArrayRecord) -> None:
        seen.append(arrays)

    result = made.start(grid, grids.arrays(np.zeros(grids.DIM)), num_rounds=rounds, timeout=0.2, evaluate_fn=keep)
    assert result.arrays is seen[-1]
    return seen


def test_rounds_train_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the model is that of a plain mean, to the last bit."""
    monkeypatch.setattr(aggregation, "integer_gaussian", lambda _std, size, _stream: np.zeros(size, np.int64))
    server = grids.server(tmp_path / "s")
    grid = MemoryGrid({number: grids.app(simulated=tmp_path / "s") for number in range(3)})
    seen = start(strategy(server), grid, rounds=3)
    bounds, model = grids.leader(server).task.bounds, np.ones(grids.DIM)
    for arrays in seen:
        assert np.array_equal(vector_of(arrays), model.astype(np.float32))
        handed = model.astype(np.float32)
        updates = [grids.add_update(handed, number).astype(float) - handed for number in range(3)]
        summed = sum(clipping.encode_clipped(x, bounds.client_bound, bounds.fractional_bits) for x in updates)
        total = fixed_point.decode(np.asarray(summed), bounds.fractional_bits)
        model = next_model(Model.initial(model, Optimiser.SGD), total, 3.0, 1.0, Optimiser.SGD).theta
    client_logs = {f"client-{n:04}": receipts.read(tmp_path / "s" / f"client-{n:04}.audit.log") for n in range(3)}
    log = receipts.read(tmp_path / "s" / "a.audit.log")
    assert "agree on all 3 opened rounds" in receipts.audit(
        grids.leader(server).task, log, log_of_b(tmp_path), client_logs
    )


def log_of_b(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "s" / "b.db") as connection:
        lines = [line for (line,) in connection.execute("SELECT line FROM log ORDER BY number")]
    connection.close()
    return lines


def test_a_reply_holds_the_sealed_submission_alone(tmp_path: Path) -> None:
    server = grids.server(tmp_path / "s")
    grid = MemoryGrid({number: grids.app(simulated=tmp_path / "s") for number in range(3)})
    start(strategy(server), grid)
    submissions = [reply for reply in grid.replies if wire.REPLY in reply.content.config_records[wire.RECORD]]
    assert len(submissions) == 3
    for number, reply in enumerate(submissions):
        assert set(reply.content) == {wire.RECORD}
        assert set(reply.content.config_records[wire.RECORD]) == {wire.REPLY}
        sealed = wire.read(reply, wire.REPLY)
        assert sealed is not None
        for secret in (grids.SECRET, 4711.0, *grids.update(number)[:5]):
            for kind in (np.float32, np.float64):
                assert kind(secret).tobytes() not in sealed
    assert len({len(wire.read(reply, wire.REPLY) or b"") for reply in submissions}) == 1


def test_nothing_but_training_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grids.server(tmp_path / "s")
    grid = MemoryGrid({0: grids.app(simulated=tmp_path / "s")})
    config = RecordDict({"config": ConfigRecord({})})
    (reply,) = grid.send_and_receive([Message(config, dst_node_id=100, message_type=MessageType.EVALUATE)])
    assert reply.error.reason == "this client sends nothing; its own log says why"
    (reply,) = grid.send_and_receive([Message(config, dst_node_id=100, message_type=MessageType.TRAIN)])
    assert reply.has_error()
    assert "PrecadStrategy" in caplog.text


@pytest.mark.parametrize("what", ["raises", "not finite", "renamed", "error"])
def test_what_goes_wrong_in_the_app_stays_there(tmp_path: Path, what: str) -> None:
    """Its words may hold data. The others' round goes on."""
    server = grids.server(tmp_path / "s")

    def train(model: np.ndarray, number: int) -> np.ndarray:
        if number == 1 and what == "raises":
            raise ValueError("record 17 of Jane Doe is broken")
        return np.full_like(model, np.nan) if number == 1 and what == "not finite" else grids.add_update(model, number)

    def edit(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        if what == "renamed":
            arrays = reply.content.array_records["arrays"]
            reply.content["arrays"] = ArrayRecord({name: arrays[name] for name in reversed(list(arrays))})
        return reply

    normal = grids.app(train, simulated=tmp_path / "s")
    edited = grids.app(train, [PrecadMod(tmp_path / "s"), edit])
    grid = MemoryGrid({0: normal, 1: edited, 2: normal})
    if what == "error":
        grid.tamper = lambda message: message.content.__setitem__("more", grids.arrays(np.ones(grids.DIM)))
    start(strategy(server), grid)
    failed = [reply for reply in grid.replies if reply.has_error()]
    reasons = {reply.error.reason for reply in failed}
    assert reasons == ({"this client sends nothing; its own log says why"} if what == "error" else set())
    assert len(failed) == (3 if what == "error" else 0)
    events = receipts.parse(grids.leader(server).store.log()[-1]).events
    assert (events.kind, len(events.verdicts)) == ((receipts.ABANDONED, 0) if what == "error" else (receipts.OPENED, 3))


def test_a_client_refuses_a_model_that_was_not_signed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = grids.server(tmp_path / "s")
    grid = MemoryGrid({number: grids.app(simulated=tmp_path / "s") for number in range(3)})

    def tamper(message: Message) -> None:
        if message.metadata.dst_node_id == 101 and "arrays" in message.content:
            message.content["arrays"] = grids.arrays(np.full(grids.DIM, 2.0), "float64")

    grid.tamper = tamper
    start(strategy(server), grid)
    assert re.search("model .* signed", caplog.text)
    assert len(receipts.parse(grids.leader(server).store.log()[-1]).events.verdicts) == 2


def test_one_budget_of_the_data_over_all_apps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two tasks, two apps, one node, which names the ledger of its data: what A sends names no other."""
    servers = [grids.server(tmp_path / name, clients=2) for name in ("first", "second")]
    terms = grids.leader(servers[0]).task.terms
    twice, thrice = (epsilon(terms, Adversary.SERVER, count) for count in (2, 3))
    budget = DataBudget(epsilon=twice, delta=terms.delta, unit=Unit.CLIENT)
    for name in ("data", "a's"):
        DataLedger.new(tmp_path / name, budget).close()
    trained = []

    def train(model: Floats, number: int) -> Floats:
        trained.append(number)
        return grids.add_update(model, number)

    for name, server in zip(("first", "second"), servers, strict=True):
        with grids.keeper(tmp_path / name, "client-0000", tmp_path / "data") as place:
            grid = MemoryGrid(
                {0: grids.app(train), 1: None},
                node_config={SOCKET: str(place)},
                run_config={"data": str(tmp_path / "a's")},
            )
            start(strategy(server), grid, rounds=2 if name == "first" else 1)
    assert view(tmp_path / "data").mark.number == len(trained) == 2
    assert view(tmp_path / "a's").mark.number == 0
    assert grid.replies[-1].error.reason == "this client sends nothing; its own log says why"
    assert re.search(says(f"{thrice:.6g}", f"{twice:g}", "budget"), caplog.text)
    assert NO_LEDGER not in caplog.text


def test_a_client_without_a_ledger_of_its_data_is_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = grids.server(tmp_path / "s", clients=2)
    with grids.keeper(tmp_path / "s", "client-0000") as place:
        grid = MemoryGrid({0: grids.app(), 1: None}, node_config={SOCKET: str(place)})
        start(strategy(server), grid)
    assert grids.leader(server).ledger.participations() == {"client-0000": 1}
    assert NO_LEDGER in caplog.text
    caplog.clear()
    budget = DataBudget(epsilon=1e3, delta=1e-5, unit=Unit.CLIENT)
    DataLedger.new(tmp_path / "s" / "data", budget).close()
    with grids.keeper(tmp_path / "s", "client-0000", tmp_path / "s" / "data"):
        start(strategy(server), grid)
    assert NO_LEDGER not in caplog.text
    assert view(tmp_path / "s" / "data").mark.number == 2, "the round before it is counted too"


def test_each_reply_goes_to_a_as_it_comes_and_the_wait_ends_with_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that is lost keeps nothing of the others' from A, and the app no longer than A waits itself."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(collecting, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(collecting, "NEWS_SECONDS", 0.0)
    server = grids.server(tmp_path / "s", clients=2)
    made, leader = strategy(server), grids.leader(server)
    kept = list[int]()

    def is_over(number: int) -> bool:
        kept.append(len(leader.store.headers(number)))
        return len(kept) == 3

    monkeypatch.setattr(type(server.rounds), "is_over", lambda _self, number: is_over(number))
    grid = MemoryGrid({0: grids.app(simulated=tmp_path / "s"), 1: grids.app(simulated=tmp_path / "s")})
    start(made, grid)  # both are known
    kept.clear()
    grid.apps[1] = None
    made.start(grid, grids.arrays(np.zeros(grids.DIM)), num_rounds=1, timeout=3600)
    assert kept == [1, 1, 1]
    assert "waiting for 1 replies" in caplog.text
    assert "server A waits no longer: 1 replies did not come" in caplog.text
    assert leader.ledger.participations() == {"client-0000": 2, "client-0001": 1}


def test_a_client_that_vanishes_costs_the_others_nothing(tmp_path: Path) -> None:
    server = grids.server(tmp_path / "s")
    app = grids.app(simulated=tmp_path / "s")
    made = strategy(server)
    start(made, MemoryGrid({0: app, 1: app, 2: None}), rounds=2)
    assert grids.leader(server).ledger.participations() == {"client-0000": 2, "client-0001": 2}
    start(made, MemoryGrid({0: app, 1: None, 2: None, 3: None}), rounds=1)
    assert grids.leader(server).ledger.participations() == {"client-0000": 3, "client-0001": 2}


def test_a_node_whose_introduction_failed_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It answers with an error, then with nonsense, then not at all, then well: it is in from then on."""
    server = grids.server(tmp_path / "s", clients=2)
    asked: list[int] = []

    def stumble(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if wire.read(message, wire.ASK) is None:
            return call_next(message, context)
        asked.append(len(asked))
        if asked[-1] == 0:
            return Message(Error(1, "out of memory"), reply_to=message)
        if asked[-1] == 1:
            return Message(RecordDict({}), reply_to=message)
        return call_next(message, context)

    app = grids.app(simulated=tmp_path / "s")
    grid = MemoryGrid({0: app, 1: grids.app(mods=[stumble, PrecadMod(tmp_path / "s")])})
    start(strategy(server), grid, rounds=4)
    assert asked == [0, 1, 2]
    assert grids.leader(server).ledger.participations() == {"client-0000": 4, "client-0001": 2}
    assert "asked again" in caplog.text


def test_a_silent_node_is_asked_again_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only new nodes are waited for, and the log says who is, for what, and how long."""
    caplog.set_level("INFO")
    monkeypatch.setattr(strategies, "MOST_QUESTIONS", 2)
    server = grids.server(tmp_path / "s", clients=2)
    grid = MemoryGrid({0: grids.app(simulated=tmp_path / "s"), 1: None})
    asked: list[int] = []
    push = grid.push_messages

    def count(messages: Iterable[Message]) -> Iterable[str]:
        known = list(messages)
        asked.extend(m.metadata.dst_node_id for m in known if wire.read(m, wire.ASK) is not None)
        return push(known)

    monkeypatch.setattr(grid, "push_messages", count)
    start(strategy(server), grid, rounds=4)
    assert asked.count(101) == 2
    assert asked.count(100) == 1
    assert caplog.text.count("waiting until nodes [101] say which client they are, at most 0 s more") == 1


def test_nobody_there_moves_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No model, no round of the task, no budget: and the log says that the round was given up."""
    server = grids.server(tmp_path / "s")
    seen = start(strategy(server), MemoryGrid({0: None, 1: None}), rounds=2)
    assert all(np.array_equal(vector_of(arrays), np.ones(grids.DIM)) for arrays in seen)
    assert grids.leader(server).store.opened_rounds() == 0
    assert caplog.text.count("given up") == 2
    app = grids.app(simulated=tmp_path / "s")
    start(strategy(server), MemoryGrid({0: app, 1: app}))
    assert grids.leader(server).store.opened_rounds() == 1


def test_garbage_is_rejected_by_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = grids.server(tmp_path / "s")
    app = grids.app(simulated=tmp_path / "s")
    kinds = [
        RecordDict({wire.RECORD: ConfigRecord({wire.REPLY: b"x" * 1000})}),
        RecordDict({wire.RECORD: ConfigRecord({wire.REPLY: "text"})}),
        RecordDict({wire.RECORD: MetricRecord({wire.REPLY: 1})}),
        RecordDict({}),
    ]

    def forge(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        asked = wire.read(message, wire.ASK) is not None
        return call_next(message, context) if asked else Message(kinds[-1], reply_to=message)

    while kinds:
        bad = grids.app(mods=[forge, PrecadMod(tmp_path / "s")])
        start(strategy(server), MemoryGrid({0: app, 1: bad, 2: app}))
        assert len(receipts.parse(grids.leader(server).store.log()[-1]).events.verdicts) == 2
        kinds.pop()
    assert caplog.text.count("rejected 1: the bytes are not a submission of this task") == 4


def test_a_node_cannot_take_another_client_s_name(tmp_path: Path) -> None:
    """It has the name but not the key; then it repeats what the right node said."""
    server = grids.server(tmp_path / "s")
    app = grids.app(simulated=tmp_path / "s")
    heard: list[ConfigRecord] = []

    def listen(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        reply = call_next(message, context)
        heard.append(reply.content.config_records[wire.RECORD])
        return reply

    def repeat(message: Message, _context: Context, _call_next: ClientAppCallable) -> Message:
        return Message(RecordDict({wire.RECORD: heard[0]}), reply_to=message)

    grid = MemoryGrid({0: grids.app(mods=[listen, PrecadMod(tmp_path / "s")]), 1: app, 2: grids.app(mods=[repeat])})
    start(strategy(server), grid)
    assert grids.leader(server).ledger.participations() == {"client-0000": 1, "client-0001": 1}


def test_the_inner_strategy_may_add_to_the_messages(tmp_path: Path) -> None:
    server = grids.server(tmp_path / "s")
    seen: list[ConfigRecord] = []

    def watch(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        seen.append(message.content.config_records["config"])
        return call_next(message, context)

    app = grids.app(mods=[PrecadMod(tmp_path / "s"), watch])
    start(strategy(server, FedProx(proximal_mu=0.25)), MemoryGrid({0: app, 1: app}))
    assert [(config["proximal-mu"], config["server-round"]) for config in seen] == [(0.25, 1)] * 2


def test_an_inner_strategy_that_moves_the_model_is_refused(tmp_path: Path) -> None:
    """B could not sign what it does not compute."""
    server = grids.server(tmp_path / "s")
    app = grids.app(simulated=tmp_path / "s")
    with pytest.raises(ValueError, match=says("FedAdam")):
        start(strategy(server, FedAdam()), MemoryGrid({0: app, 1: app}))


def test_the_task_s_rounds_are_all_there_are(tmp_path: Path) -> None:
    training = replace(grids.TRAINING, rounds=1, participations=1)
    server = grids.server(tmp_path / "s", training=training)
    app = grids.app(simulated=tmp_path / "s")
    with pytest.raises(ProtocolError, match=says("1 rounds", "opened")):
        start(strategy(server), MemoryGrid({0: app, 1: app}), rounds=2)


def test_patience_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says("patience", 0)):
        PrecadStrategy(FedAvg(), grids.server(tmp_path / "s"), patience=0)
