"""The app's door: an app plays A's rounds through a socket, one app at a time, and reaches nothing else."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from precad.deployment import app_door, doors, receipts
from precad.deployment.app_door import app_app
from precad.deployment.attendance import OpenRound, Patience
from precad.deployment.conductor import Conductor, Outcome
from precad.deployment.rounds import RemoteRounds
from precad.deployment.transport import TransportError, submission_limit
from precad.deployment.visitors import LOCAL
from precad.errors import ProtocolError, Reason, Rejected
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.deployment.test_conductor import make
from tests.messages import says

PATIENCE = Patience(round=60.0, join=60.0)
ANOTHER_APP = """
import sys
from pathlib import Path
from precad.deployment.rounds import RemoteRounds
rounds = RemoteRounds(Path(sys.argv[1]))
print("plays", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Consortium]:
    made = make(tmp_path, rounds=2)
    yield made
    made.close()


@contextmanager
def service(parties: Consortium) -> Iterator[Path]:
    """Server A's conductor and its door, as the service has them."""
    conductor, socket = Conductor(parties.a, PATIENCE), parties.folder / "a.sock"
    door = doors.serve_aside(app_app(conductor), [doors.listen_at(socket)], bounds=LOCAL)
    thread = threading.Thread(target=conductor.run)
    thread.start()
    try:
        yield socket
    finally:
        conductor.stop()
        door.leave()
        thread.join()


def answer(parties: Consortium, rounds: RemoteRounds, opened: OpenRound, *names: str) -> list[Rejected | None]:
    replies = []
    for name in names or sorted(opened.selected):
        told = rounds.told(name)
        if told is not None:
            assert parties.client(name).hear(told) == receipts.VALID
        joined = parties.client(name).join(opened.invitation, opened.model)
        replies.append(parties.client(name).answer(joined, np.full(world.DIM, 0.5)))
    return rounds.submit(opened.number, replies)


def test_an_app_plays_all_rounds(parties: Consortium) -> None:
    with service(parties) as socket:
        rounds = RemoteRounds(socket)
        assert rounds.task == parties.task
        for number in range(2):
            opened = rounds.open()
            assert (opened.number, opened.selected) == (number, frozenset(world.CLIENTS))
            too_much = bytes(submission_limit(parties.task) + 1)
            assert rounds.submit(number, [b"garbage", too_much]) == [Rejected(Reason.MALFORMED)] * 2
            assert answer(parties, rounds, opened) == [None] * 3
            assert rounds.close(number) is Outcome.OPENED
            assert np.array_equal(rounds.model(), parties.a.model())
        with pytest.raises(ProtocolError, match=says("2 rounds", "opened")):
            rounds.open()
        rounds.end()
    parties.check()


def test_two_apps_at_once(parties: Consortium) -> None:
    """The second is refused with a sentence, and nothing of the first's round is lost; then it is the second's turn."""
    with service(parties) as socket:
        first = RemoteRounds(socket)
        opened = first.open()
        assert answer(parties, first, opened, "bank", "clinic") == [None] * 2
        for _ in range(3):
            with pytest.raises(ProtocolError, match=says("another app plays this task")):
                RemoteRounds(socket)
        assert answer(parties, first, opened, "lab") == [None]
        assert first.close(0) is Outcome.OPENED
        assert parties.a.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)
        first.end()
        second = _as_soon_as_possible(socket)
        assert second.open().number == 1
        second.end()


def test_an_app_that_is_killed_leaves_its_place(parties: Consortium) -> None:
    """It played from a process of its own, which had none of A's files; the next goes on with the same round."""
    with service(parties) as socket:
        command = [sys.executable, "-c", ANOTHER_APP, str(socket)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"plays\n"
            with pytest.raises(ProtocolError, match=says("another app")):
                RemoteRounds(socket)
            os.kill(process.pid, signal.SIGKILL)
        rounds = _as_soon_as_possible(socket)
        assert answer(parties, rounds, rounds.open()) == [None] * 3
        assert rounds.close(0) is Outcome.OPENED
        rounds.end()


def test_a_is_killed_while_an_app_plays(parties: Consortium, caplog: pytest.LogCaptureFixture) -> None:
    """The app waits, says so, and goes on with the round when A is back: what was submitted is there."""
    back = threading.Event()
    with service(parties) as socket:
        rounds = RemoteRounds(socket, sleep=lambda _: back.wait(60))  # type: ignore[arg-type]
        opened = rounds.open()
        assert answer(parties, rounds, opened, "bank") == [None]
    parties.kill("alpha")
    verdicts: list[Rejected | None] = []
    outcomes: list[Outcome] = []

    def go_on() -> None:
        verdicts.extend(answer(parties, rounds, opened, "clinic", "lab"))
        outcomes.append(rounds.close(0))

    thread = threading.Thread(target=go_on)
    thread.start()
    with service(parties):
        back.set()
        thread.join(60)
        assert (verdicts, outcomes) == ([None, None], [Outcome.OPENED])
        rounds.end()
    assert "does not answer" in caplog.text
    assert parties.a.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)


def test_nobody_selected_is_given_up_until_somebody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parties = make(tmp_path, client_rate=1e-9)
    monkeypatch.setattr(app_door, "POLL", 0.5)
    with service(parties) as socket:
        rounds = RemoteRounds(socket)
        assert rounds._ask("GET", "/v2/rounds/next?after=-1").status_code in (200, 204)
        assert rounds.close(0) is Outcome.ABANDONED
        assert np.array_equal(rounds.model(), world.MODEL)
        rounds.end()
    parties.close()


def test_what_is_refused(parties: Consortium) -> None:
    with service(parties) as socket:
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://a") as stranger:
            for path in ("task", "model", "told/bank", "rounds/next?after=0", "rounds/0/outcome"):
                assert stranger.get(f"/v2/{path}").status_code == 401
            rounds = RemoteRounds(socket)
            assert stranger.get("/v2/model").status_code == 401
            stranger.headers["precad-app"] = rounds._token
            assert stranger.get("/v2/rounds/next?after=-2").status_code == 400
            assert stranger.get(f"/v2/rounds/{'9' * 5000}/outcome").status_code == 400
            assert stranger.post("/v2/rounds/0/submission", content=bytes(10**6)).status_code == 413
            assert stranger.get("/v2/told/..%2fx").status_code in (204, 404)
            rounds.end()


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=says("a.sock", "precad server")):
        RemoteRounds(tmp_path / "a.sock")


def test_a_path_that_is_too_long_for_the_system(parties: Consortium, tmp_path: Path) -> None:
    parties.folder = tmp_path / ("deep" * 20) / ("deeper" * 20)
    parties.folder.mkdir(parents=True)
    with service(parties) as socket:
        assert len(str(socket)) > 107
        rounds = RemoteRounds(socket)
        assert rounds.open().number == 0
        rounds.end()


def _as_soon_as_possible(socket: Path) -> RemoteRounds:
    """The door notices that an app has gone as soon as its connection has ended."""
    for _ in range(100):
        try:
            return RemoteRounds(socket)
        except ProtocolError:
            threading.Event().wait(0.05)
    raise AssertionError("the place is still taken")
