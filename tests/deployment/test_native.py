"""Native clients over real mutual TLS: rounds, kills, restarts, and an A that lies; nothing is lost, one line each."""

import asyncio
import logging
import shutil
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from precad.deployment import doors, native, receipts, tls, way_to_a
from precad.deployment.client import Client, ForGoodError, RefusedError
from precad.deployment.conductor import Outcome
from precad.deployment.data_file import DataBudget
from precad.deployment.data_ledger import DataLedger
from precad.deployment.disk import BusyError, StoreError, exclusive
from precad.deployment.log import JsonLines
from precad.deployment.native import LONGEST_PAUSE, NativeClient
from precad.deployment.transport import TransportError
from precad.deployment.way_to_a import MOST_MESSAGE, WayToA
from precad.protocol.codec import Blob
from precad.protocol.messages import Invitation, Invited, Told, decode, encode
from precad.protocol.params import Unit
from tests.deployment import world
from tests.deployment.consortium import Crash
from tests.deployment.native_site import NOW, NativeSite, add_half
from tests.messages import says


def check_books(site: NativeSite, rounds: int = 2) -> None:
    """Every round was opened once, with everybody's submission, and everybody knows."""
    logs = {name: site.client(name).log() for name in world.CLIENTS}
    receipts.audit(site.task, site.a.store.log(), site.b.store.log(), logs)
    for name in world.CLIENTS:
        assert site.client(name).participations() == rounds
        assert [receipts.parse(line).events.kind for line in logs[name]] == ["sent", "told"] * rounds
        assert (site.folder / f"{name}.audit.log").read_text().splitlines() == logs[name]


def test_rounds_until_the_task_is_over(tmp_path: Path) -> None:
    site = NativeSite(tmp_path)
    with site.conducting(), site.clients(*world.CLIENTS) as ended:
        pass
    assert set(ended) == set(world.CLIENTS)
    assert all("over" in why for why in ended.values()), ended
    check_books(site)
    site.close()


def test_a_client_that_has_taken_part_as_often_as_it_may_ends(tmp_path: Path) -> None:
    training = replace(world.TRAINING, participations=1, rounds=3)
    site = NativeSite(tmp_path, world.make(training, now=NOW))
    with site.conducting(), site.clients(*world.CLIENTS) as ended:
        pass
    assert all("1 times" in why for why in ended.values()), ended
    assert site.take_part("bank") == ended["bank"]
    check_books(site, 1)
    site.close()


class Mortal(WayToA):
    """Dies before or after a chosen call."""

    step, calls = -1, 0
    sent: dict[int, set[bytes]]

    def _dying(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._die()
        answer = call(*arguments)
        self._die()
        return answer

    def _die(self) -> None:
        self.calls += 1
        if self.calls == self.step:
            raise Crash("bank")

    def next_round(self, after: int, heard: int) -> Invited | None:
        found: Invited | None = self._dying(super().next_round, after, heard)
        return found

    def model(self, digest: Any) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._dying(super().model, digest)
        return found

    def submit(self, number: int, reply: bytes) -> str:
        self.sent.setdefault(number, set()).add(reply)
        words: str = self._dying(super().submit, number, reply)
        return words


def test_a_kill_at_each_step_loses_nothing(tmp_path: Path) -> None:
    """One client dies at its first step, comes back, dies at the second step of its new life, and so on."""
    site = NativeSite(tmp_path, rounds=4)
    sent: dict[int, set[bytes]] = {}
    why = ""
    with site.conducting(), site.clients("clinic", "lab"):
        for step in range(1, 60):
            config = site.config("bank")
            with closing(config.open_client(site.task)) as client, closing(Mortal(site.task, config)) as way:
                way.step, way.sent = step, sent
                try:
                    why = NativeClient(config, client, way, add_half).run()
                except Crash:
                    continue
            break
    assert "over" in why
    assert sorted(sent) == [0, 1, 2, 3]
    assert all(len(replies) == 1 for replies in sent.values())
    check_books(site, 4)
    site.close()


@pytest.mark.parametrize("method", ["join", "answer", "_count_and_store", "hear"])
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_while_it_counts_loses_nothing(
    tmp_path: Path, method: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = NativeSite(tmp_path)
    real, died = getattr(Client, method), list[bool]()

    def dying(client: Client, *arguments: Any) -> Any:
        if client.name == "bank" and not died and not after:
            died.append(True)
            raise Crash("bank")
        answer = real(client, *arguments)
        if client.name == "bank" and not died:
            died.append(True)
            raise Crash("bank")
        return answer

    monkeypatch.setattr(Client, method, dying)
    with site.conducting(), site.clients("clinic", "lab"):
        with pytest.raises(Crash):
            site.take_part("bank")
        assert "over" in site.take_part("bank")
    check_books(site)
    site.close()


def test_clients_of_both_kinds_in_one_round(tmp_path: Path) -> None:
    """Two come by themselves, the third through an app."""
    site = NativeSite(tmp_path)
    with site.conducting(), site.clients("bank", "clinic") as ended:
        site.conductor.attach()
        for number in range(2):
            site.conductor.wanted()
            opened = site.conductor.open_round(number - 1, 30)
            assert opened is not None
            told, client = site.conductor.told("lab"), site.client("lab")
            assert told is None or client.hear(told) == receipts.VALID
            reply = client.answer(client.join(opened.invitation, opened.model), np.full(world.DIM, 0.5))
            assert site.conductor.submit(None, reply) is None
            site.conductor.no_more(number)
            assert site.conductor.outcome(number, 30) is Outcome.OPENED
        site.conductor.detach()
    assert all("over" in why for why in ended.values()), ended
    assert site.a.ledger.participations() == dict.fromkeys(world.CLIENTS, 2)
    logs = {name: site.client(name).log() for name in world.CLIENTS}
    receipts.audit(site.task, site.a.store.log(), site.b.store.log(), logs)
    site.close()


def test_server_a_goes_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a round: the same round goes on, each wait of a client is a line."""
    site = NativeSite(tmp_path)
    training, go_on = threading.Event(), threading.Event()

    def train(model: NDArray[np.float64], round_: int, look: float) -> NDArray[np.float64]:
        training.set()
        go_on.wait(30)
        return add_half(model, round_, look)

    with site.clients(*world.CLIENTS, train=train) as ended:
        with site.conducting():
            assert training.wait(30)
        site.kill("alpha")
        go_on.set()
        deadline = time.monotonic() + 30
        while not any("submitting in round 0" in record.getMessage() for record in caplog.records):
            assert time.monotonic() < deadline, "no client has said that it waits for A"
            time.sleep(0.05)
        with site.conducting():
            for thread in threading.enumerate():
                if thread.name.startswith("Thread") and "play" in thread.name:
                    thread.join(60)
    assert all("over" in why for why in ended.values()), ended
    lines = [record.getMessage() for record in caplog.records if "another attempt" in record.getMessage()]
    assert all("server alpha" in line and "seconds" in line for line in lines)
    check_books(site)
    site.close()


class Enough(BaseException):
    """The test has seen what it waited for."""


Answer = Callable[[Request], Response]


class Liar(NativeSite):
    """An A with the right certificate that answers as it likes, and has an open round."""

    @contextmanager
    def lying(self, answers: dict[str, Answer]) -> Iterator[None]:
        self.a.start_round()
        routes = [Route(path, answer, methods=["GET", "POST"]) for path, answer in answers.items()]
        pair = tls.Pair(self.folder / "alpha.tls.pem", self.folder / "alpha.tls.key")
        bank = self.task.members["bank"].identity
        context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, pair, self.task.server_a, bank)
        door = doors.serve_aside(Starlette(routes=routes), [self.listening], context)
        try:
            yield
        finally:
            door.leave()
            self.listening.close()

    def heard(self, answers: dict[str, Answer], caplog: pytest.LogCaptureFixture, attempts: int = 3) -> list[str]:
        """The client's warnings, of so many attempts."""
        pauses = list[float]()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == attempts:
                raise Enough

        with self.lying(answers), pytest.raises(Enough):
            self.take_part("bank", sleep=sleep)
        assert pauses == sorted(pauses)
        assert 0 < pauses[0] < pauses[-1] <= LONGEST_PAUSE
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def message(invitation: bytes = b"", told: bytes = b"") -> Response:
    return Response(encode(Invited(Blob(invitation), Blob(told))))


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 16)
        await asyncio.sleep(0.001)


GARBAGE = b"garbage" * 9
NEXT, MODEL, SUBMIT = "/v2/rounds/next", "/v2/models/{digest}", "/v2/rounds/{round}/submission"
LIES: dict[str, tuple[Callable[[Liar], dict[str, Answer]], str]] = {
    "garbage": (lambda _: {NEXT: lambda _: Response(GARBAGE)}, "not a precad message"),
    "an endless answer": (lambda _: {NEXT: lambda _: StreamingResponse(endless())}, f"more than {MOST_MESSAGE}"),
    "an endless refusal": (lambda _: {NEXT: lambda _: StreamingResponse(endless(), 500)}, "more than 1024"),
    "a redirect": (lambda _: {NEXT: lambda _: RedirectResponse("http://127.0.0.1:1/")}, "status 307"),
    "a fault": (lambda _: {NEXT: lambda _: Response("\x1b[31m" * 999, 500)}, "more than 1024"),
    "nothing, at once": (lambda _: {NEXT: lambda _: Response(status_code=204)}, "at once"),
    "news of nothing": (lambda _: {NEXT: lambda _: message()}, "news of nothing"),
    "a garbled invitation": (lambda _: {NEXT: lambda _: message(GARBAGE)}, "not a precad message"),
    "a garbled verdict": (lambda _: {NEXT: lambda _: message(told=GARBAGE)}, "not a precad message"),
    "compressed": (
        lambda _: {NEXT: lambda _: Response(b"\x1f\x8b" + bytes(99), headers={"content-encoding": "gzip"})},
        "not a precad message",
    ),
    "no model": (lambda a: {NEXT: lambda _: message(a.a.invitation())}, "status 404"),
    "half a model": (
        lambda a: {NEXT: lambda _: message(a.a.invitation()), MODEL: lambda _: Response(bytes(8 * world.DIM - 8))},
        f"expected {8 * world.DIM}",
    ),
    "another model": (
        lambda a: {NEXT: lambda _: message(a.a.invitation()), MODEL: lambda _: Response(bytes(8 * world.DIM))},
        "not the one that both servers signed",
    ),
    "an endless model": (
        lambda a: {NEXT: lambda _: message(a.a.invitation()), MODEL: lambda _: StreamingResponse(endless())},
        f"more than {8 * world.DIM}",
    ),
    "another round": (
        lambda a: {
            NEXT: lambda _: message(encode(replace(decode(a.a.invitation(), Invitation), round=1 << 62))),
            MODEL: lambda _: Response(world.MODEL.tobytes()),
        },
        "did not sign",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_a_that_lies_gets_a_line_and_nothing_else(
    tmp_path: Path, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is counted, and the next attempt comes later each time."""
    caplog.set_level(logging.INFO)
    site = Liar(tmp_path, rounds=1)
    make, words = LIES[lie]
    warnings = [line for line in site.heard(make(site), caplog) if "alpha" in line]
    assert len(warnings) == 3
    assert all(words in line and len(line) < 700 for line in warnings), warnings
    assert site.client("bank").participations() == 0
    site.close()


def test_an_a_that_is_honest_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Liar(tmp_path, rounds=1)
    for make, _ in (LIES["garbage"], LIES["another round"], LIES["another model"]):
        site.heard(make(site), caplog)
        site.listening = doors.listen("127.0.0.1", site.port)
    site.kill("alpha")
    with site.conducting(), site.clients(*world.CLIENTS) as ended:
        pass
    assert all("over" in why for why in ended.values()), ended
    check_books(site, 1)
    site.close()


def test_an_answer_that_comes_too_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, each in time: the whole has a limit of its own."""

    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.05)

    site = Liar(tmp_path)
    answers: dict[str, Answer] = {MODEL: lambda _: StreamingResponse(drops())}
    refused = pytest.raises(TransportError, match=says("within", "seconds"))
    monkeypatch.setattr(way_to_a, "SLOWEST", 1 << 30)
    with site.lying(answers), closing(site.way("bank", answer_seconds=0.5)) as way, refused:
        way.model(site.task.model)
    site.close()


def test_a_verdict_on_what_was_never_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is a line; an invitation that comes with it is answered."""
    other = NativeSite(tmp_path / "other", rounds=1)
    other.round()
    told = other.a.told("bank")
    assert told is not None
    site = Liar(tmp_path / "own", rounds=1)
    kept = list[bytes]()

    async def keep(request: Request) -> Response:
        kept.append(await request.body())
        return Response("")

    def news(_request: Request) -> Response:
        return Response("over", 410) if kept else message(site.a.invitation(), told)

    answers: dict[str, Any] = {NEXT: news, MODEL: lambda _: Response(world.MODEL.tobytes()), SUBMIT: keep}
    with site.lying(answers):
        assert site.take_part("bank") == "over"
    assert len(kept) == 1
    assert "did not send" in caplog.text
    for each in (site, other):
        each.close()


def test_a_verdict_again_and_again_does_not_keep_a_client_busy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first is heard; the same again, or one that rises and rises, is a line and a longer pause each time."""
    site = Liar(tmp_path, rounds=2)
    site.round()
    told = site.a.told("bank")
    assert told is not None
    again = decode(told, Told)
    asked = list[int]()

    def rising(_request: Request) -> Response:
        asked.append(len(asked))
        return message(told=told if len(asked) < 3 else encode(replace(again, round=len(asked) << 58)))

    lines = site.heard({NEXT: rising}, caplog, attempts=6)
    assert len([line for line in lines if "another attempt" in line]) == 6
    assert len(asked) == 7
    site.close()


def test_a_budget_of_the_data_that_is_spent_ends_it(tmp_path: Path) -> None:
    site = NativeSite(tmp_path)
    DataLedger.new(tmp_path / "data", DataBudget(epsilon=0.01, delta=1e-5, unit=Unit.CLIENT)).close()
    config = site.config("bank", data=tmp_path / "data")
    with site.conducting(), closing(config.open_client(site.task)) as client, closing(site.way("bank")) as way:
        with pytest.raises(ForGoodError, match=says("budget")):
            NativeClient(config, client, way, add_half).run()
        assert client.participations() == 0
    site.close()


def test_a_ledger_of_the_data_that_is_gone_ends_it(tmp_path: Path) -> None:
    site = NativeSite(tmp_path)
    config = site.config("bank", data=tmp_path / "data")
    with pytest.raises(StoreError, match="no ledger of a data set"):
        config.open_client(site.task)
    DataLedger.new(tmp_path / "data", DataBudget(epsilon=1e3, delta=1e-5, unit=Unit.CLIENT)).close()
    with site.conducting(), closing(config.open_client(site.task)) as client, closing(site.way("bank")) as way:
        shutil.rmtree(tmp_path / "data")
        native = NativeClient(config, client, way, add_half)
        with pytest.raises(StoreError, match="no ledger of a data set"):
            native.run()
    site.close()


def test_one_process_runs_a_client(tmp_path: Path) -> None:
    site = NativeSite(tmp_path)
    with exclusive(tmp_path / "bank.db"), pytest.raises(BusyError, match="another process"):
        native.run(site.config("bank"), site.task, add_half)
    site.close()


def test_why_a_training_failed_is_in_the_clients_own_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its update is zeros, and counts like any other."""

    def train(_model: NDArray[np.float64], _round: int, _look: float) -> NDArray[np.float64]:
        raise RuntimeError("the records are away")

    site = NativeSite(tmp_path, rounds=1)
    with site.conducting(), site.clients(*world.CLIENTS, train=train) as ended:
        pass
    assert all("over" in why for why in ended.values()), ended
    lines = [JsonLines().format(record) for record in caplog.records if record.exc_info]
    assert len(lines) == len(world.CLIENTS)
    assert all("the records are away" in line for line in lines)
    assert "the records are away" not in JsonLines().format(
        logging.LogRecord("precad.server", logging.ERROR, "x", 1, "fault", None, lines_info(caplog))
    )
    check_books(site, 1)
    site.close()


def lines_info(caplog: pytest.LogCaptureFixture) -> Any:
    return next(record.exc_info for record in caplog.records if record.exc_info)


def test_a_refusal_names_what_is_wrong_with_the_settings(tmp_path: Path) -> None:
    site = NativeSite(tmp_path)
    with pytest.raises(ValueError, match="not the certificate"):
        site.way("bank", certificate=tmp_path / "lab.tls.pem")
    bare = replace(site.task.members["bank"].identity, certificate=b"")
    site.task.without_member("bank").with_member(bare, 100).save(tmp_path / "bare.json")
    own = site.config("bank", task=tmp_path / "bare.json")
    with pytest.raises(ValueError, match="Flower alone"):
        native.run(own, own.load_task(), lambda model, _round, _look: model)
    with pytest.raises(ValueError, match=says("zoo", "roster")):
        site.config("zoo").load_task()
    with pytest.raises(ValueError, match="port"):
        site.config("bank", port=0)
    with pytest.raises(ValueError, match="answer_seconds"):
        site.config("bank", answer_seconds=0.0)
    assert issubclass(ForGoodError, RefusedError)
    site.close()
