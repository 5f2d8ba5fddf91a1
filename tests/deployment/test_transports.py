"""One suite for both ways to B: in memory, and over HTTPS with mutual TLS on loopback."""

import asyncio
import datetime
import errno
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from precad.deployment import doors, keys, tls
from precad.deployment import https as https_transport
from precad.deployment import service as http_server
from precad.deployment.client import Client
from precad.deployment.helper import HelperServer
from precad.deployment.https import HttpTransport
from precad.deployment.leader import Leader
from precad.deployment.log import JsonLines
from precad.deployment.parties import Parties
from precad.deployment.service import Metrics
from precad.deployment.task import Task
from precad.deployment.transport import Exchange, Transport, TransportError, limit
from precad.deployment.visitors import Bounds
from precad.errors import ProtocolError
from precad.privacy.ledger import Entry
from precad.protocol.messages import VERSION
from precad.protocol.states import Role
from tests.deployment import world
from tests.messages import says

NOW = datetime.datetime.now(datetime.UTC)
FOREVER = 30.0


@dataclass
class Site:
    """Both servers, their files, and a running B."""

    world: Parties
    folder: Path
    helper: HelperServer
    port: int = 0
    metrics: Metrics | None = None

    @property
    def task(self) -> Task:
        return self.world.task

    def pair(self, name: str) -> tls.Pair:
        return tls.Pair(self.folder / f"{name}.tls.pem", self.folder / f"{name}.tls.key")

    def http(self, name: str = "alpha", **options: object) -> HttpTransport:
        return HttpTransport(self.task, "127.0.0.1", self.port, self.pair(name), **options)  # type: ignore[arg-type]


def make_site(folder: Path, made: datetime.datetime = NOW) -> Site:
    setting = world.make(now=made)
    setting.save(folder)
    key_b = setting.servers[Role.B].signing
    return Site(setting, folder, HelperServer(setting.task, key_b, folder / "beta.db", world.MODEL))


@contextmanager
def serving(site: Site, context_of: Site | None = None, bounds: Bounds | None = None) -> Iterator[Site]:
    """B on a free port, in a thread."""
    logger, shown = logging.getLogger("precad.server"), context_of or site
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    listening = doors.listen("127.0.0.1", 0)
    site.port, site.metrics = listening.getsockname()[1], Metrics()
    own, peer = shown.task.server_b, site.task.server_a
    context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, shown.pair("beta"), own, peer)
    door = doors.serve_aside(http_server.exchange_app(site.helper, site.metrics), [listening], context, bounds)
    try:
        yield site
    finally:
        door.leave()
        logger.setLevel(before)
        site.helper.close()


@pytest.fixture
def https(tmp_path: Path) -> Iterator[Site]:
    with serving(make_site(tmp_path)) as site:
        yield site


@pytest.fixture(params=["memory", "https"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, Transport]]:
    site = make_site(tmp_path)
    if request.param == "memory":
        yield site, site.helper
        site.helper.close()
        return
    with serving(site), site.http() as transport:
        yield site, transport


def play(site: Site, transport: Transport, rounds: int = 2) -> Leader:
    leader = Leader(site.task, site.world.servers[Role.A].signing, site.folder / "alpha.db", world.MODEL, transport)
    clients = {
        name: Client(site.task, name, own.signing, site.folder / f"{name}.db")
        for name, own in site.world.clients.items()
    }
    for _ in range(rounds):
        leader.start_round()
        for name in sorted(leader.selected()):
            joined = clients[name].join(leader.invitation(), leader.model())
            assert leader.submit(clients[name].answer(joined, np.ones(world.DIM))) is None
        leader.finish_round()
    for client in clients.values():
        client.close()
    return leader


def test_rounds(way: tuple[Site, Transport]) -> None:
    site, transport = way
    leader = play(site, transport)
    assert np.array_equal(leader.model(), site.helper.store.model())
    assert leader.ledger.participations() == site.helper.ledger.participations() == dict.fromkeys(world.CLIENTS, 2)
    assert [line.split('"link"')[0] for line in leader.store.log()] == [
        line.split('"link"')[0] for line in site.helper.store.log()
    ]
    leader.close()


def test_a_refusal_has_bs_words(way: tuple[Site, Transport]) -> None:
    site, transport = way
    with pytest.raises(ProtocolError, match=says("round 7", "current round")):
        transport.exchange(7, Exchange.CLOSE, b"")
    with pytest.raises(ProtocolError, match="message ends after 0 bytes"):
        transport.exchange(0, Exchange.BEGIN, b"")
    leader = play(site, transport, 1)
    with pytest.raises(ProtocolError, match=says("no second")):
        transport.exchange(0, Exchange.SHARE, b"another")
    leader.close()


def test_a_server_that_was_set_back_is_not_asked_again(https: Site) -> None:
    """It refuses for good: A hears so at once, and not after all its attempts."""
    https.helper.store.note_set_back("somebody saw it")
    with https.http(sleep=pytest.fail) as transport, pytest.raises(ProtocolError, match=says("set back", "saw it")):
        transport.exchange(0, Exchange.CLOSE, b"")


def test_the_same_again(way: tuple[Site, Transport]) -> None:
    site, transport = way
    sent: dict[Exchange, bytes] = {}

    class Tap:
        def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
            sent[what] = body
            answer = transport.exchange(round_, what, body)
            assert transport.exchange(round_, what, body) == answer
            return answer

    play(site, Tap(), 1).close()
    assert set(sent) == set(Exchange)


def test_too_long_a_message(https: Site) -> None:
    with https.http() as transport:
        for what in Exchange:
            with pytest.raises(ProtocolError, match=says(what.value, "bytes")):
                transport.exchange(0, what, bytes(limit(https.task, what) + 1))
        play(https, transport, 1).close()


def test_limits_hold_for_the_largest_messages(https: Site) -> None:
    """All clients take part, and no message comes near its limit from above."""
    sizes: dict[Exchange, int] = {}

    class Tap:
        def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
            answer = https.helper.exchange(round_, what, body)
            sizes[what] = max(len(body), len(answer))
            return answer

    play(https, Tap(), 1).close()
    for what, size in sizes.items():
        assert size <= limit(https.task, what) <= size + 4096 + 800 * len(https.task.roster)


def test_another_version(https: Site) -> None:
    with https.http() as transport:
        transport._client.headers["precad-protocol"] = "9"
        with pytest.raises(ProtocolError, match=says("version 9", f"version {VERSION}")):
            transport.exchange(0, Exchange.CLOSE, b"")


def test_another_task(https: Site) -> None:
    other = replace(https.task, training=replace(https.task.training, rounds=7))
    path = https.folder / "other.db"
    with https.http() as transport:
        leader = Leader(other, https.world.servers[Role.A].signing, path, world.MODEL, transport)
        with pytest.raises(ProtocolError, match=says("alpha", "another task", "precad task digest")):
            leader.start_round()
        leader.close()


def quick(site: Site) -> HttpTransport:
    return site.http(attempts=2, sleep=lambda _seconds: None)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    listening = doors.listen("127.0.0.1", 0)
    site.port = listening.getsockname()[1]
    listening.close()
    with (
        quick(site) as transport,
        pytest.raises(TransportError, match=says("beta", "2 attempts")),
    ):
        transport.exchange(0, Exchange.CLOSE, b"")
    site.helper.close()


def test_no_retry_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each line names the peer, the step, the attempt and the time left."""
    site, waits = make_site(tmp_path), list[float]()
    listening = doors.listen("127.0.0.1", 0)
    site.port = listening.getsockname()[1]
    listening.close()
    with site.http(attempts=4, sleep=waits.append) as transport, pytest.raises(TransportError):
        transport.exchange(3, Exchange.CLOSE, b"")
    assert waits == [1.0, 2.0, 4.0]
    for record, attempt, left in zip(caplog.records, (2, 3, 4), ("7", "6", "4"), strict=True):
        said = says("round 3", "close", "beta", f"attempt {attempt} of 4", f"in {left} s")
        assert re.search(said, record.getMessage())
        fields = json.loads(JsonLines().format(record))
        assert (fields["peer"], fields["exchange"], fields["round"]) == ("beta", "close", 3)
        assert (fields["attempt"], fields["seconds_left"]) == (attempt, float(left))
    site.helper.close()


def test_no_wait_for_an_answer_is_silent(
    https: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slow(*_: object) -> bytes:
        time.sleep(0.5)
        return b"answered"

    monkeypatch.setattr(https.helper, "exchange", slow)
    monkeypatch.setattr(https_transport, "NEWS", 0.2)
    with https.http(timeout=20.0) as transport:
        assert transport.exchange(3, Exchange.SHARE, b"") == b"answered"
        time.sleep(0.3)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert re.search(says("round 3", "share", "beta", "0.2 s", "19.8 s left"), lines[0])


def test_an_answer_byte_by_byte(https: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is for all of the answer: a byte now and then does not prolong it."""

    async def drip(scope: Scope, receive: Receive, send: Send) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x"
                await asyncio.sleep(0.05)

        await StreamingResponse(pieces())(scope, receive, send)

    monkeypatch.setattr(Route, "handle", lambda _self, *asgi: drip(*asgi))
    begin = time.monotonic()
    slow = https.http(timeout=0.5, attempts=1)
    with slow, pytest.raises(TransportError, match=says("beta", "within 0.5 s")):
        slow.exchange(0, Exchange.CLOSE, b"")
    assert time.monotonic() - begin < 4


def test_another_certificate_than_as(https: Site) -> None:
    """Somebody else reaches B: it has a certificate, but not the one in the task."""
    stranger = https.folder / "stranger"
    keys.OwnKeys.new("alpha", NOW).save(stranger)
    mallory = Site(https.world, stranger, https.helper, https.port)
    identity = keys.load_public(stranger / "alpha.pub")
    mallory.world = replace(mallory.world, task=replace(https.task, server_a=identity))
    with quick(mallory) as transport, pytest.raises(TransportError, match=says("refuses", "certificate")):
        transport.exchange(0, Exchange.CLOSE, b"")


def test_no_certificate(https: Site) -> None:
    context = tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, https.pair("alpha"), https.task.server_a, https.task.server_b)
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.load_verify_locations(cadata=https.task.server_b.certificate)
    for verify, fine in ((context, True), (bare, False)):
        with httpx.Client(verify=verify, trust_env=False) as client:
            try:
                status = client.post(f"https://127.0.0.1:{https.port}/v1/rounds/0/close").status_code
            except httpx.TransportError:
                status = 0
        assert (status == 400) is fine


def test_another_certificate_than_bs(tmp_path: Path) -> None:
    """Somebody stands in B's place."""
    site, other = make_site(tmp_path / "site"), make_site(tmp_path / "other")
    wrong = pytest.raises(TransportError, match=says("certificate", "not the one", "beta"))
    with serving(site, context_of=other), quick(site) as transport, wrong:
        transport.exchange(0, Exchange.CLOSE, b"")
    other.helper.close()


@pytest.mark.parametrize("days", [-365 * 11, 30])
def test_a_clock_that_is_off(tmp_path: Path, days: int) -> None:
    off = make_site(tmp_path, NOW + datetime.timedelta(days=days))
    wrong = pytest.raises(TransportError, match=says("certificate", "clock"))
    with serving(off) as site, quick(site) as transport, wrong:
        transport.exchange(0, Exchange.CLOSE, b"")


def test_files_of_another_certificate(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with pytest.raises(ValueError, match=says("not the certificate", "alpha")):
        site.http("beta")
    mixed = tls.Pair(tmp_path / "alpha.tls.pem", tmp_path / "beta.tls.key")
    with pytest.raises(ValueError, match=says("not the key")):
        tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, mixed, site.task.server_a, site.task.server_b)
    with pytest.raises(ValueError, match=says("cannot read", "none.pem")):
        tls.Pair(tmp_path / "none.pem", tmp_path / "alpha.tls.key").check(site.task.server_a)
    site.helper.close()


def test_a_port_that_is_taken() -> None:
    listening = doors.listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with pytest.raises(ValueError, match=says("127.0.0.1", f"port {port}")):
        doors.listen("127.0.0.1", port)
    listening.close()


def test_b_comes_back_while_a_tries(https: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at B is 507: A tries again, and the round goes on when there is room."""
    connection = https.helper.store._connection
    waits: list[float] = []

    def make_room(seconds: float) -> None:
        waits.append(seconds)
        connection.execute("PRAGMA max_page_count = 1000000")

    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    real = https.helper.exchange

    def filling(round_: int, what: Exchange, body: bytes) -> bytes:
        if what is Exchange.TALLY and not waits:
            https.helper.store.pin(round_, {"filler": bytes(1)})
            connection.execute(f"PRAGMA max_page_count = {pages}")
            https.helper.store.pin(round_, {"more filler": bytes(10**6)})
        return real(round_, what, body)

    monkeypatch.setattr(https.helper, "exchange", filling)
    with https.http(sleep=make_room) as transport:
        play(https, transport, 1).close()
    assert waits == [1.0]


@pytest.mark.parametrize("what", [Exchange.SHARE, Exchange.RECEIPT])
def test_a_disk_that_fills_while_b_counts_or_logs(https: Site, monkeypatch: pytest.MonkeyPatch, what: Exchange) -> None:
    """Wherever the disk is full, A hears so, and the round ends when there is room."""
    waits: list[float] = []
    connection = https.helper.ledger._connection
    real_record, real_answer = https.helper.ledger.record, https.helper.exchange

    def record(round_: int, participants: Iterable[str]) -> Entry:
        if what is Exchange.SHARE and not waits:
            connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
            with https.helper.ledger._transaction():
                connection.execute("CREATE TABLE filler AS SELECT zeroblob(1000000)")
        return real_record(round_, participants)

    def answer(round_: int, wanted: Exchange, body: bytes) -> bytes:
        if wanted is what is Exchange.RECEIPT and not waits:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_answer(round_, wanted, body)

    monkeypatch.setattr(https.helper.ledger, "record", record)
    monkeypatch.setattr(https.helper, "exchange", answer)
    full = quick(https)
    with full, pytest.raises(TransportError, match=says("beta", "disk is full")):
        play(https, full, 1)
    connection.execute("PRAGMA max_page_count = 1000000")
    waits.append(0.0)
    with https.http() as transport:
        leader = Leader(
            https.task, https.world.servers[Role.A].signing, https.folder / "alpha.db", world.MODEL, transport
        )
        leader.finish_round()
        assert np.array_equal(leader.model(), https.helper.store.model())
        assert leader.ledger.participations() == https.helper.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)
        leader.close()


def test_a_stop_waits_for_the_exchange_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, answers = threading.Event(), list[bytes]()

    def slow(*_: object) -> bytes:
        begun.set()
        time.sleep(1.0)
        return b"answered"

    site = make_site(tmp_path)
    monkeypatch.setattr(site.helper, "exchange", slow)
    with serving(site):
        transport = site.http()
        asking = threading.Thread(target=lambda: answers.append(transport.exchange(0, Exchange.CLOSE, b"")))
        asking.start()
        assert begun.wait(FOREVER)
    asking.join(FOREVER)
    transport.close()
    assert answers == [b"answered"]


def test_a_stop_does_not_wait_for_an_idle_connection(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with serving(site):
        transport = site.http()
        with pytest.raises(ProtocolError):
            transport.exchange(0, Exchange.CLOSE, b"")
        stop = time.monotonic()
    assert time.monotonic() - stop < FOREVER / 3
    transport.close()


def test_no_word_of_the_log_names_a_client(https: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Rounds and refusals: a stranger among the selected, garbage, a second message, an exchange before its time."""
    logger = logging.getLogger("precad.server")
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    with https.http() as transport:
        leader = play(https, transport, 1)
        for what in Exchange:
            for body in (b"", b"bank", bytes(100)):
                with pytest.raises(ProtocolError):
                    transport.exchange(0, what, body)
        leader.start_round()
        with pytest.raises(ProtocolError, match="before its time"):
            transport.exchange(1, Exchange.SHARE, leader.own(1, Exchange.CLOSE))
        leader.close()
    logger.removeHandler(caplog.handler)
    assert len(caplog.records) > 3 * len(Exchange)
    lines = [JsonLines().format(record) for record in caplog.records]
    assert all(json.loads(line)["event"] in ("exchange", "refused") for line in lines)
    assert not any(name in line for line in lines for name in world.CLIENTS)


def test_a_fault_tells_nothing(https: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> bytes:
        raise RuntimeError("seed 0123")

    monkeypatch.setattr(https.helper, "exchange", fault)
    with (
        quick(https) as transport,
        pytest.raises(TransportError, match=says("fault", "log")) as caught,
    ):
        transport.exchange(0, Exchange.CLOSE, b"")
    assert "0123" not in str(caught.value)


def test_health_and_metrics_name_nobody(https: Site) -> None:
    with https.http() as transport:
        play(https, transport, 1).close()
    assert https.metrics is not None
    operations = http_server.operations_app(https.helper, https.metrics)
    health, metrics = get(operations, "/health"), get(operations, "/metrics")
    assert health.json()["status"] == "ok"
    assert health.json()["state"] == "settled"
    assert "precad_rounds_opened_total 1" in metrics.text
    assert 'precad_answers_total{exchange="share",status="200"} 1' in metrics.text
    assert not any(name in health.text + metrics.text for name in world.CLIENTS)
    https.helper.store.close()
    assert get(operations, "/health").status_code == 503


def get(app: Starlette, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9100") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_an_answer_that_is_too_long(https: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https.helper, "exchange", lambda *_: bytes(10**6))
    with https.http() as transport, pytest.raises(ProtocolError, match="answers with more than"):
        transport.exchange(0, Exchange.CLOSE, b"")
