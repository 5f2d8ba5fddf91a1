"""A's rounds: with silent clients, with too few, without B, after crashes at every step, and stopped in the middle."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from precad.deployment import attendance as attendances
from precad.deployment import conductor as conductors
from precad.deployment import receipts
from precad.deployment.attendance import Attendance, OpenRound, Patience
from precad.deployment.conductor import Conductor, Outcome
from precad.deployment.disk import FULL, DiskError
from precad.deployment.task import Participants, Training
from precad.deployment.transport import Exchange, TransportError
from precad.errors import ProtocolError, Reason, Rejected
from tests.deployment import world
from tests.deployment.consortium import Consortium, Crash
from tests.messages import says

SOON = 20.0
QUICK = Patience(round=SOON, join=0.2)
ALL = Patience(round=SOON, join=SOON)
SHORT = Patience(round=0.3, join=0.1)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(conductors, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(logging.getLogger("precad.server"), "propagate", True)
    caplog.set_level(logging.INFO, "precad.server")


def make(folder: Path, **changes: object) -> Consortium:
    training: Training = replace(world.TRAINING, **changes)  # type: ignore[arg-type]
    return Consortium(folder, world.make(training))


@contextmanager
def running(parties: Consortium, patience: Patience = QUICK) -> Iterator[Conductor]:
    """Server A at work; a crash of it ends the thread, and nothing else."""
    made = Conductor(parties.a, patience)

    def run() -> None:
        try:
            made.run()
        except Crash:
            made.stop()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(SOON)
        assert not thread.is_alive()


def present(made: Conductor, *names: str) -> None:
    for name in names or world.CLIENTS:
        made.seen(name)


def taken(made: Conductor, after: int = -1) -> OpenRound:
    found = made.open_round(after, SOON)
    assert found is not None
    return found


def reply(parties: Consortium, opened: OpenRound, name: str) -> bytes:
    joined = parties.client(name).join(opened.invitation, opened.model)
    return parties.client(name).answer(joined, np.full(world.DIM, 0.5))


def answer(parties: Consortium, made: Conductor, opened: OpenRound, *names: str) -> list[Rejected | None]:
    return [made.submit(name, reply(parties, opened, name)) for name in names or world.CLIENTS]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_rounds_until_the_task_is_over(tmp_path: Path) -> None:
    parties, written = make(tmp_path, rounds=2, minimum=3), []
    with running(parties, ALL) as made:
        made._write_log = lambda: written.append(len(parties.a.store.log()))
        assert made.open_round(-1, 0.05) is None, "no round begins before enough clients are there"
        present(made, "bank", "lab")
        assert made.open_round(-1, 0.05) is None
        for number in range(2):
            present(made)
            opened = taken(made, number - 1)
            assert (opened.number, opened.selected) == (number, frozenset(world.CLIENTS))
            assert made.outcome(number, 0) is None
            assert answer(parties, made, opened) == [None] * 3
            assert made.outcome(number, SOON) is Outcome.OPENED
            assert made.open_round(number, 0.05) is None or number == 0
        assert made.is_over()
        told = made.told("bank")
        assert told is not None
        assert parties.client("bank").hear(told) == receipts.VALID
    assert written == [1, 2]
    parties.check()
    parties.close()


def test_a_silent_client_is_waited_for_only_if_it_joined(tmp_path: Path) -> None:
    parties = make(tmp_path)
    with running(parties) as made:
        present(made)
        opened = taken(made)
        made.joined("bank", opened.number)
        assert answer(parties, made, opened, "clinic") == [None]
        assert made.outcome(opened.number, 0.5) is None, "bank has joined"
        assert answer(parties, made, opened, "bank") == [None]
        assert made.outcome(opened.number, SOON) is Outcome.OPENED
        assert parties.a.ledger.participations() == {"bank": 1, "clinic": 1}
    parties.close()


def test_who_joined_and_never_answers_holds_a_round_up_for_round_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parties = make(tmp_path)
    with running(parties, replace(SHORT, round=3.0)) as made:
        present(made)
        opened = taken(made)
        made.joined("lab", opened.number)
        answer(parties, made, opened, "bank")
        assert made.outcome(opened.number, SOON) is Outcome.OPENED
    assert "round 0: 1 clients took their invitations and did not answer" in caplog.text
    parties.close()


def test_who_never_answers_holds_up_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight rounds three: the others are closed when all have answered but the one that was silent."""
    task, now = world.make().task, [0.0]
    monkeypatch.setattr(attendances, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = Attendance(task, Patience(round=100.0, join=1.0))

    def waits_in_vain(number: int, *names: str) -> bool:
        made.begin(OpenRound(number, b"", frozenset(world.CLIENTS), world.MODEL), (), resumed=False)
        made.join("lab", number)
        for name in names:
            made.answer(name, number)
        now[0] += 2
        if made.may_close():
            assert made.end() == 0
            return False
        now[0] += 100
        assert made.may_close()
        assert made.end() == 1
        return True

    waited = [waits_in_vain(number, "bank", "clinic") for number in range(8)]
    assert waited == [True, False, True, False, False, True, False, False]
    assert not waits_in_vain(8, *world.CLIENTS), "who answers counts,"
    assert waits_in_vain(9, "bank", "clinic"), "and is waited for again"
    for number in range(10, 5000):
        waits_in_vain(number, "bank", "clinic")
    assert made._not_awaited["lab"] - 5000 <= 1 << attendances.LONGEST_REST


def test_too_few_are_given_up_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It waits first; nothing is spent at either server, and the next round is a new one."""
    parties = make(tmp_path, minimum=2)
    with running(parties, Patience(round=2.0, join=2.0)) as made:
        present(made)
        opened = taken(made)
        answer(parties, made, opened, "bank")
        assert made.outcome(0, 0.3) is None
        assert made.outcome(0, SOON) is Outcome.ABANDONED
        assert "round 0 is given up" in caplog.text
        present(made)
        again = taken(made, 0)
        assert np.array_equal(again.model, world.MODEL)
        assert parties.a.store.opened_rounds() == 0
        assert answer(parties, made, again) == [None] * 3
        assert made.outcome(again.number, SOON) is Outcome.OPENED
    assert parties.b.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)
    parties.close()


def test_nobody_selected_is_never_opened(tmp_path: Path) -> None:
    parties = make(tmp_path, client_rate=1e-9)
    with running(parties) as made:
        present(made)
        assert made.outcome(1, SOON) is Outcome.ABANDONED
    assert parties.a.store.opened_rounds() == 0
    parties.close()


def test_hidden_participants_make_every_round_as_long(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parties = make(tmp_path, participants=Participants.HIDDEN, minimum=0)
    with running(parties, Patience(round=1.0, join=1.0)) as made:
        present(made)
        opened, begun = taken(made), time.monotonic()
        assert answer(parties, made, opened) == [None] * 3
        assert made.outcome(0, SOON) is Outcome.OPENED
        assert time.monotonic() - begun > 0.9
        present(made)
        taken(made, 0)
        assert time.monotonic() - begun > 1.9, "nor when the next begins"
    assert "answered" not in caplog.text
    parties.close()


def test_only_the_client_that_the_door_knows(tmp_path: Path) -> None:
    parties = make(tmp_path)
    with running(parties) as made:
        assert made.submit("bank", b"too early") == Rejected(Reason.LATE)
        present(made)
        opened = taken(made)
        sent = reply(parties, opened, "bank")
        assert made.submit("lab", sent) == Rejected(Reason.FOREIGN)
        assert made.submit("lab", b"garbage") == Rejected(Reason.MALFORMED)
        assert made.submit(None, sent) is None, "an app relays what clients signed"
    parties.close()


def test_b_is_away_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parties, away = make(tmp_path), threading.Event()

    def hook(party: str, _what: str) -> None:
        if party == "alpha" and away.is_set():
            raise TransportError("server beta does not answer")

    parties.hook = hook
    away.set()
    with running(parties, ALL) as made:
        present(made)
        until(lambda: "attempt 3" in caplog.text)
        assert "server beta does not answer" in str(made.failing)
        away.clear()
        opened = taken(made)
        answer(parties, made, opened, "bank", "clinic")
        away.set()
        answer(parties, made, opened, "lab")
        until(lambda: "step finish" in caplog.text)
        assert made.submit("lab", b"") == Rejected(Reason.LATE)
        away.clear()
        assert made.outcome(0, SOON) is Outcome.OPENED
        until(lambda: made.failing is None)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert all("beta" in line and "attempt" in line and "precad abandon" in line for line in lines)
    parties.check()
    parties.close()


def test_what_no_retry_mends_is_an_error_and_the_service_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parties, broken = make(tmp_path), [True]

    def tamper(_round: int, what: Exchange, sender: str, message: bytes) -> bytes:
        return message[:-1] if what is Exchange.BEGIN and sender == "beta" and broken[0] else message

    parties.tamper = tamper
    with running(parties) as made:
        present(made)
        until(lambda: any(record.levelno == logging.ERROR for record in caplog.records))
        assert made.failing is not None
        broken[0] = False
        assert taken(made).number == 0
    parties.close()


STEPS = [*(f"send {what.value}" for what in Exchange), *(f"got {what.value}" for what in Exchange)]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_each_step(tmp_path: Path, step: str) -> None:
    """A is killed once, and runs again on its store: the round ends as if nothing had been, and once."""
    parties, crashed = make(tmp_path), list[str]()

    def hook(party: str, what: str) -> None:
        if what == step and not crashed:
            crashed.append(step)
            raise Crash(party)

    parties.hook = hook
    for _ in range(2):
        with running(parties, ALL) as made:
            present(made)
            opened = made.open_round(-1, SOON)
            if opened is not None and opened.number == 0:
                answer(parties, made, opened)
            made.outcome(0, SOON)
        parties.kill("alpha")
    assert crashed
    assert [receipts.parse(line).events.kind for line in parties.a.store.log()][:1] == [receipts.OPENED]
    for sent in parties.wire.values():
        assert len(sent) == 1
    assert parties.b.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)
    parties.close()


def test_stopped_in_the_middle(tmp_path: Path) -> None:
    """What was submitted is there when A runs again; it waits for those that may have joined before."""
    parties = make(tmp_path)
    with running(parties) as made:
        present(made)
        first = taken(made)
        answer(parties, made, first, "bank")
    parties.kill("alpha")
    with running(parties, replace(QUICK, join=0.01)) as made:
        again = taken(made)
        assert again.invitation == first.invitation
        assert made.outcome(0, 0.3) is None
        assert answer(parties, made, again, "clinic", "lab") == [None] * 2
        assert made.outcome(0, SOON) is Outcome.OPENED
    assert parties.a.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)
    parties.close()


def test_an_app(tmp_path: Path) -> None:
    """Its readiness begins a round; the round waits for its replies, and for no others that are not there."""
    parties = make(tmp_path)
    with running(parties, ALL) as made:
        made.attach()
        assert made.open_round(-1, 0.05) is None
        made.wanted()
        opened = taken(made)
        made.wanted(yes=False)
        answer(parties, made, opened, "bank")
        assert made.outcome(0, 0.3) is None
        made.no_more(0)
        assert made.outcome(0, SOON) is Outcome.OPENED
        assert made.open_round(0, 0.1) is None, "the next round waits until the app is ready for it"
    parties.close()


def test_an_app_that_dies_leaves_the_round_to_the_others(tmp_path: Path) -> None:
    parties = make(tmp_path)
    with running(parties) as made:
        made.attach()
        made.wanted()
        opened = taken(made)
        answer(parties, made, opened, "bank")
        assert made.outcome(0, 0.5) is None
        made.detach()
        assert made.outcome(0, SOON) is Outcome.OPENED
    parties.close()


def test_a_round_is_given_up_by_its_operator(tmp_path: Path) -> None:
    parties, away = make(tmp_path), threading.Event()

    def hook(party: str, what: str) -> None:
        if party == "alpha" and away.is_set() and what == "send receipt":
            raise TransportError("server beta does not answer")

    parties.hook = hook
    with running(parties) as made:
        with pytest.raises(ProtocolError, match="no round is under way"):
            made.abandon(SOON)
        present(made)
        opened = taken(made)
        answer(parties, made, opened, "bank")
        with pytest.raises(ProtocolError, match=says("the last round is 0, not 5")):
            made.abandon(SOON, 5)
        assert "round 0 is given up" in made.abandon(SOON, 0)
        assert made.outcome(0, 0) is Outcome.ABANDONED
        away.set()
        answer(parties, made, taken(made, 0))
        until(lambda: made.failing is not None)
        with pytest.raises(ProtocolError, match="cannot be abandoned"):
            made.abandon(SOON)
        away.clear()
        assert made.outcome(1, SOON) is Outcome.OPENED
    parties.close()


def test_two_operators_who_mean_different_rounds(tmp_path: Path) -> None:
    """Neither is told that the other's was given up."""
    parties = make(tmp_path)
    idle = Conductor(parties.a, QUICK)
    assert "is being asked" in idle.abandon(0.0, 3)
    with pytest.raises(ProtocolError, match="another round is just being given up"):
        idle.abandon(0.0, 4)
    parties.close()


def test_a_full_disk_keeps_no_operator_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parties = make(tmp_path)

    def full(*_: object) -> None:
        raise DiskError(FULL)

    with running(parties) as made:
        present(made)
        taken(made)
        monkeypatch.setattr(parties.a.store, "abandon", full)
        with pytest.raises(DiskError, match="disk is full"):
            made.abandon(SOON / 4)
    parties.close()


def test_a_submission_does_not_wait_for_b(tmp_path: Path) -> None:
    """It waits its turn while its round collects; when A closes the round with B, however slowly, it is late."""
    parties = make(tmp_path)
    found = list[Rejected | None]()
    with running(parties, SHORT) as made:
        present(made)
        opened = taken(made)
        sent = reply(parties, opened, "bank")
        with parties.a.lock:
            thread = threading.Thread(target=lambda: found.append(made.submit("bank", sent)))
            thread.start()
            thread.join(SOON / 4)
            assert found == [Rejected(Reason.LATE)]
        thread.join(SOON)
    parties.close()


def test_an_answer_counts_in_its_own_round(tmp_path: Path) -> None:
    parties = make(tmp_path)
    attendance = Attendance(parties.task, QUICK)
    attendance.begin(OpenRound(1, b"", frozenset(world.CLIENTS), world.MODEL), (), resumed=False)
    for name in world.CLIENTS:
        attendance.answer(name, 0)
    assert not attendance.may_close()
    for name in world.CLIENTS:
        attendance.answer(name, 1)
    assert attendance.may_close()
    parties.close()


def test_patience_is_checked() -> None:
    for value in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=says("round_seconds", value)):
            Patience(round=value)


def test_a_round_that_ends_before_clients_reply(tmp_path: Path) -> None:
    parties = make(tmp_path, reply_seconds=60.0)
    with pytest.raises(ValueError, match=says("round_seconds", 60)):
        Conductor(parties.a, Patience(round=60.0))
    parties.close()


def test_a_disk_that_is_full_does_not_end_the_rounds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log's file is brought up to date after a later round; the store has it all."""
    parties = make(tmp_path)

    def full() -> None:
        raise OSError("no space left")

    with running(parties) as made:
        made._write_log = full
        present(made)
        answer(parties, made, taken(made))
        assert made.outcome(0, SOON) is Outcome.OPENED
        until(lambda: "no space left" in caplog.text)
        present(made)
        assert taken(made, 0).number == 1
    parties.close()


def test_a_server_that_was_set_back_plays_no_round(tmp_path: Path) -> None:
    parties = make(tmp_path)
    parties.a.store.note_set_back("a client shows it")
    with running(parties) as made:
        present(made)
        until(lambda: made.failing is not None)
        assert "set back" in (made.failing or "")
        assert made.open_round(-1, 0.1) is None
    parties.close()
