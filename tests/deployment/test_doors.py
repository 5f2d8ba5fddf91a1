"""Who gets in at a door, for how long, and what the log says of all others. All handshakes are real."""

import asyncio
import datetime
import json
import logging
import re
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from precad.deployment import connection, doors, tls
from precad.deployment.https import HttpTransport
from precad.deployment.keys import OwnKeys
from precad.deployment.log import MOST_LINES, FewLines, JsonLines
from precad.deployment.service import Metrics, operations_app
from precad.deployment.transport import Exchange, TransportError
from precad.deployment.visitors import LOCAL, Bounds
from precad.errors import ProtocolError
from precad.protocol.states import Role
from tests.deployment.test_config import running, settings
from tests.deployment.test_config import site as made_site
from tests.deployment.test_transports import NOW, Site, make_site, quick, serving
from tests.messages import says

begun_site = made_site
QUICK = Bounds(in_all=40, per_address=30, handshake=1.0, head=1.0, idle=1.0, taken=1.0)
SOON = 5.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Lines(logging.Handler):
    """The log, line by line, as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(json.loads(JsonLines().format(record)))

    def words(self) -> list[str]:
        return [line["words"] for line in self.said if line["event"] == doors.TURNED_AWAY]

    def wait_for(self, *parts: object) -> dict[str, str]:
        """The line that says this, at last."""
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            for line in self.said:
                if all(str(part) in line.get("words", "") for part in parts):
                    return line
            time.sleep(0.01)
        raise AssertionError(f"no line with {parts}: {self.said}")


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("precad.server")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@dataclass
class House:
    """A door, who stands behind it, and one who may come in."""

    port: int
    owner: OwnKeys
    guest: OwnKeys
    folder: Path

    def context(self, shown: OwnKeys | None) -> ssl.SSLContext:
        """A client's, with a certificate or without."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.owner.identity.certificate)
        if shown is not None:
            context.load_cert_chain(*pair_of(shown, self.folder))
        return context

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SOON)

    @contextmanager
    def connection(self, shown: OwnKeys | None) -> Iterator[ssl.SSLSocket]:
        with self.plain() as plain, self.context(shown).wrap_socket(plain) as sock:
            yield sock

    def ask(self, shown: OwnKeys | None, path: str = "/") -> httpx.Response:
        with httpx.Client(verify=self.context(shown), trust_env=False, timeout=SOON) as client:
            return client.get(f"https://127.0.0.1:{self.port}{path}")


def pair_of(own: OwnKeys, folder: Path) -> tuple[Path, Path]:
    place = folder / own.identity.fingerprint
    if not place.exists():
        own.save(place, durable=False)
    return place / f"{own.identity.name}.tls.pem", place / f"{own.identity.name}.tls.key"


async def welcome(request: Request) -> Response:
    return PlainTextResponse(doors.peer(request).hex())


async def read_all(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def much(_request: Request) -> Response:
    return StreamingResponse(bytes(1 << 20) for _ in range(64))


async def long(_request: Request) -> Response:
    return doors.in_pieces(bytes(1 << 24))


APP = Starlette(
    routes=[
        Route("/", welcome),
        Route("/body", read_all, methods=["POST"]),
        Route("/much", much),
        Route("/long", long),
    ]
)


@contextmanager
def open_house(folder: Path, guest: OwnKeys, bounds: Bounds | None = None, app: Starlette = APP) -> Iterator[House]:
    owner = OwnKeys.new("beta", NOW)
    pair = tls.Pair(*pair_of(owner, folder))
    context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, pair, owner.identity, guest.identity)
    listening = doors.listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    door = doors.serve_aside(app, [listening], context, bounds)
    try:
        yield House(port, owner, guest, folder)
    finally:
        door.leave()


@pytest.fixture
def house(tmp_path: Path, lines: Lines) -> Iterator[House]:
    del lines  # is there first
    with open_house(tmp_path, OwnKeys.new("alpha", NOW)) as found:
        yield found


@pytest.fixture
def hasty(tmp_path: Path, lines: Lines) -> Iterator[House]:
    """A house in which nobody has much time."""
    del lines
    with open_house(tmp_path, OwnKeys.new("alpha", NOW), QUICK) as found:
        yield found


def test_the_guest_is_known_by_its_certificate(house: House, lines: Lines) -> None:
    assert house.ask(house.guest).text == house.guest.identity.certificate.hex()
    assert lines.words() == []


def old_tls(house: House) -> None:
    context = house.context(house.guest)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with house.plain() as plain, suppress(OSError), context.wrap_socket(plain):
        pass


def distrust(house: House) -> None:
    with house.plain() as plain, suppress(OSError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(plain, server_hostname="beta")


def say(raw: bytes) -> Callable[[House], None]:
    def talk(house: House) -> None:
        with house.plain() as plain:
            plain.sendall(raw)
            with suppress(OSError):
                plain.recv(1)

    return talk


def leave_at_once(house: House) -> None:
    house.plain().close()


def show(own: OwnKeys | None) -> Callable[[House], None]:
    def come(house: House) -> None:
        with pytest.raises(httpx.TransportError):
            house.ask(own)

    return come


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        pytest.param(show(None), "it showed no certificate", id="none"),
        pytest.param(show(OwnKeys.new("alpha", NOW)), "certificate is not of this task", id="another"),
        pytest.param(say(b"GET /v1/rounds/0/close HTTP/1.1\r\n\r\n"), "not TLS, but plain HTTP", id="http"),
        pytest.param(say(b"SSH-2.0-OpenSSH_9.6\r\n"), "not TLS", id="ssh"),
        pytest.param(old_tls, "an older TLS than 1.3", id="TLS 1.2"),
        pytest.param(distrust, "it refuses this server's certificate", id="distrust"),
        pytest.param(leave_at_once, "broke off in its TLS handshake", id="scan"),
    ],
)
def test_every_refused_handshake_is_a_line(
    house: House, lines: Lines, attempt: Callable[[House], None], words: str
) -> None:
    attempt(house)
    line = lines.wait_for(words)
    assert (line["event"], line["level"], line["address"]) == (doors.TURNED_AWAY, "warning", "127.0.0.1")
    assert len(lines.words()) == 1
    assert house.ask(house.guest).status_code == 200


def test_a_handshake_that_does_not_come(hasty: House, lines: Lines) -> None:
    with hasty.plain() as plain:
        assert plain.recv(1) == b""
    lines.wait_for("no TLS handshake within 1 s")


def test_the_other_side_is_told_why(house: House) -> None:
    """asyncio by itself sends no alert, and the other side sees a connection that breaks."""
    with pytest.raises(httpx.ReadError, match=r"(?i)alert unknown ca"):
        house.ask(OwnKeys.new("alpha", NOW))
    with pytest.raises(httpx.ReadError, match=r"(?i)alert certificate required"):
        house.ask(None)


def test_a_certificate_that_a_known_one_has_signed(tmp_path: Path, lines: Lines) -> None:
    """A member whose certificate may sign others lets nobody in by it."""
    authority, child = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def certify(subject: str, key: ec.EllipticCurvePrivateKey, ca: bool) -> bytes:
        names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in (subject, "bank")]
        builder = x509.CertificateBuilder(names[1], names[0], key.public_key(), x509.random_serial_number())
        dated = builder.not_valid_before(NOW - datetime.timedelta(1)).not_valid_after(NOW + datetime.timedelta(1))
        extended = dated.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        return extended.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    signing = OwnKeys.new("bank", NOW)
    bank = OwnKeys(replace(signing.identity, certificate=certify("bank", authority, True)), signing.signing, authority)
    other = OwnKeys(replace(signing.identity, certificate=certify("other", child, False)), signing.signing, child)
    with open_house(tmp_path, bank) as house:
        assert house.ask(bank).status_code == 200
        with pytest.raises(httpx.TransportError):
            house.ask(other)
        lines.wait_for("not of this task")


def test_of_many_lines_the_log_has_a_few_and_a_count(lines: Lines) -> None:
    async def turn_away() -> None:
        few = FewLines(doors.TURNED_AWAY)
        for _ in range(2):
            for number in range(MOST_LINES + 15):
                few.add(words=f"no {number}")
            await asyncio.sleep(1.1)
        few.flush()

    asyncio.run(turn_away())
    once = [*(f"no {number}" for number in range(MOST_LINES)), "15 more"]
    assert lines.words() == [*once, *once]


def drip(sock: ssl.SSLSocket, raw: bytes) -> None:
    """Byte by byte, until the other side has had enough."""
    with suppress(OSError):
        for byte in raw:
            sock.sendall(bytes([byte]))
            time.sleep(0.05)
        pytest.fail("it was waited for")


def test_a_guest_that_says_nothing(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        assert not read_to_end(sock)
    lines.wait_for("no whole request for 1 s")


def test_a_head_byte_by_byte(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        drip(sock, b"GET / HTTP/1.1\r\nHost: " + b"x" * 200)
    lines.wait_for("no whole request for 1 s")


def test_a_second_head_byte_by_byte(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        sock.sendall(REQUEST)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        drip(sock, b"GET / HTTP/1.1\r\nHost: " + b"x" * 200)
    lines.wait_for("no whole request for 2 s")


def test_a_body_that_stops(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        sock.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123")
        assert b"200 OK" not in read_to_end(sock)
    lines.wait_for("a request paused for 1 s")


def test_a_body_that_takes_its_time_without_a_pause(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        sock.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        for _ in range(9):
            time.sleep(0.15)
            sock.sendall(b"x")
        assert b"200 OK" in sock.recv(4096)
    assert lines.words() == []


def test_an_answer_that_is_not_taken(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        sock.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        lines.wait_for("its answer was not taken for 1 s")


def test_answers_that_are_not_taken_with_more_requests_behind_them(hasty: House, lines: Lines) -> None:
    """They are no work under way: they are cut, and a newcomer beyond the bound takes the place of one at once."""
    with ExitStack() as stack:
        for _ in range(QUICK.per_address):
            sock = stack.enter_context(hasty.connection(hasty.guest))
            sock.settimeout(0.2)
            with suppress(TimeoutError, OSError):
                sock.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
        assert hasty.ask(hasty.guest).status_code == 200
        lines.wait_for("its answer was not taken for 1 s")


def test_an_answer_that_is_taken_slowly(hasty: House, lines: Lines) -> None:
    """In more time than any single wait may take."""
    taken, begun = 0, time.monotonic()
    with hasty.connection(hasty.guest) as sock:
        sock.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        while taken < 1 << 24:
            some = len(sock.recv(1 << 14))
            assert some, f"cut after {taken} bytes"
            taken += some
            time.sleep(0.003)
    assert time.monotonic() - begun > QUICK.idle + 1
    assert lines.words() == []


def test_a_stop_does_not_wait_for_a_slow_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FAREWELL", 0.2)
    with ExitStack() as stack:
        with open_house(tmp_path, OwnKeys.new("alpha", NOW)) as house:
            sock = stack.enter_context(house.connection(house.guest))
            sock.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in sock.recv(4096)
            begun = time.monotonic()
        assert time.monotonic() - begun < 10


def test_a_stop_does_not_wait_for_the_rest_of_a_request(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with open_house(tmp_path, OwnKeys.new("alpha", NOW)) as house:
            sock = stack.enter_context(house.connection(house.guest))
            sock.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
            time.sleep(0.5)
            begun = time.monotonic()
        assert time.monotonic() - begun < 20


def test_an_idle_connection_ends_in_peace(hasty: House, lines: Lines) -> None:
    with hasty.connection(hasty.guest) as sock:
        sock.sendall(REQUEST)
        assert b"200 OK" in read_to_end(sock)
    assert lines.words() == []


def read_to_end(sock: ssl.SSLSocket) -> bytes:
    received = b""
    with suppress(ConnectionError, ssl.SSLError):
        while piece := sock.recv(4096):
            received += piece
    return received


def test_beyond_what_is_being_answered_a_newcomer_is_refused(tmp_path: Path, lines: Lines) -> None:
    begun, done = threading.Semaphore(0), threading.Event()

    def slow(_request: Request) -> Response:
        begun.release()
        done.wait(SOON)
        return PlainTextResponse("")

    guest, app = OwnKeys.new("alpha", NOW), Starlette(routes=[Route("/", slow)])
    with open_house(tmp_path, guest, replace(QUICK, in_all=2), app) as house, ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(house.connection(guest))
            sock.sendall(REQUEST)
            assert begun.acquire(timeout=SOON)
        with pytest.raises(httpx.TransportError):
            house.ask(guest)
        lines.wait_for("2 connections in all, each with a request under way")
        done.set()
        assert b"200 OK" in sock.recv(4096)


@pytest.mark.parametrize("years", [-11, 2])
@pytest.mark.parametrize("whose", [Role.A, Role.B])
def test_a_clock_that_is_off_is_said_at_both_sides(
    tmp_path: Path, lines: Lines, caplog: pytest.LogCaptureFixture, whose: Role, years: int
) -> None:
    """One server's certificate is not valid at the other's time: the one's log and the other's error say so."""
    site, at = make_site(tmp_path), NOW + datetime.timedelta(days=365 * years)
    off = OwnKeys.new(site.task.server(whose).name, at)
    for ending in ("key", "pub", "tls.key", "tls.pem"):
        (tmp_path / f"{off.identity.name}.{ending}").unlink()
    off.save(tmp_path)
    a, b = (off.identity if role is whose else site.task.server(role) for role in Role)
    site.world = replace(site.world, task=replace(site.task, server_a=a, server_b=b))
    noticed = says("certificate", "beta", "clock", "2026" if years < 0 else "2028")
    with serving(site), quick(site) as transport:
        logging.getLogger("precad.server").setLevel(logging.INFO)
        with pytest.raises(TransportError, match=noticed if whose is Role.B else says("beta", "refuses", "clocks")):
            transport.exchange(0, Exchange.CLOSE, b"")
    lines.wait_for("certificate", "check both clocks")
    own = [record.getMessage() for record in caplog.records if record.name == tls.LOG.name]
    assert re.search(says(off.identity.name, "clock"), own[0])


LONG = "9" * 5000


@pytest.mark.parametrize(
    "number", [LONG, "-1", "1.0", "1e3", "%2B1", "٣", "007", "0x10", "1_0", "%30%30", " 1", "9223372036854775808", "x"]
)
def test_a_round_that_is_no_number_is_a_bad_request(tmp_path: Path, number: str) -> None:
    with serving(make_site(tmp_path)) as site, site.http() as transport:
        answer = transport._client.post(f"/v1/rounds/{number}/close", content=b"")
        assert (answer.status_code, "digits" in answer.text) == (400, True)
        assert len(answer.text) < 200
        with pytest.raises(ProtocolError, match=says("round 7")):
            transport.exchange(7, Exchange.CLOSE, b"")


@pytest.mark.parametrize("length", [LONG, "-1", "1.0", "٣".encode().decode("latin-1"), "1, 2"])
def test_a_length_that_is_no_number_is_a_bad_request(house: House, length: str) -> None:
    with house.connection(house.guest) as sock:
        sock.sendall(f"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode("latin-1"))
        assert read_to_end(sock).startswith(b"HTTP/1.1 400")


@pytest.fixture(scope="module")
def metrics_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    site = make_site(tmp_path_factory.mktemp("operator"))
    listening = doors.listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    door = doors.serve_aside(operations_app(site.helper, Metrics()), [listening], bounds=LOCAL)
    yield port
    door.leave()
    site.helper.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}", 200),
        ("GET /metrics HTTP/1.1\r\nHost: LOCALHOST:{port}", 200),
        ("HEAD /metrics HTTP/1.1\r\nHost: [::1]:{port}", 200),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example:{port}", 421),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example:{port}", 421),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}@evil.example", 421),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1", 421),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:1", 421),
        ("GET /metrics HTTP/1.1\r\nHost:", 421),
        ("GET /metrics HTTP/1.0", 421),
        ("GET /metrics HTTP/1.1", 400),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example", 400),
        ("GET http://127.0.0.1:{port}/metrics HTTP/1.1\r\nHost: evil.example", 421),
        ("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}", 405),
        ("GET /v1/rounds/0/close HTTP/1.1\r\nHost: 127.0.0.1:{port}", 404),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}", 404),
    ],
)
def test_the_metrics_port_answers_to_its_own_name_alone(metrics_port: int, head: str, status: int) -> None:
    """A page elsewhere can have its name lead to 127.0.0.1, and so a browser to this port."""
    with socket.create_connection(("127.0.0.1", metrics_port), SOON) as sock:
        sock.sendall(head.format(port=metrics_port).encode() + b"\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(4096), b""))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"precad_rounds" in answer) is (status == 200 and head.startswith("GET /metrics"))


def test_a_unix_socket_is_for_its_owner_and_group(tmp_path: Path) -> None:
    for _ in range(2):  # the second time it lies there from before
        doors.listen_at(tmp_path / "alpha.sock").close()
        assert (tmp_path / "alpha.sock").stat().st_mode & 0o777 == 0o660
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=says("cannot listen", tmp_path / "file")):
        doors.listen_at(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(ValueError, match=says("path too long")):
        doors.listen_at(tmp_path / ("x" * 200))


def test_a_guest_that_makes_up_an_address_for_itself_closes_no_door(tmp_path: Path) -> None:
    """A Unix socket may be bound to any name, also to one that no file has."""
    place = tmp_path / "door.sock"
    door = doors.serve_aside(APP, [doors.listen_at(place)], bounds=LOCAL)
    try:
        for name in (f"\0precad-{tmp_path}", str(tmp_path / "own.sock"), ""):
            with socket.socket(socket.AF_UNIX) as sock:
                if name:
                    sock.bind(name[:100])
                sock.settimeout(SOON)
                sock.connect(str(place))
                sock.sendall(REQUEST)
                assert b"200 OK" in sock.recv(4096), name
    finally:
        door.leave()


IDLE = 1150
FEW_FILES = 1024


def test_idle_connections_keep_nobody_out(begun_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """B may open 1,024 files, as a process usually may; 1,150 connections from A's own address are idle."""
    _allow_files(3 * IDLE)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES}, {FEW_FILES}))"
    start = [sys.executable, "-c", f"{limit}; from precad.cli.app import app; app()"]
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: popen([*start, *command[3:]], **options))
    own = settings(begun_site, "alpha")
    context = tls.pinned_context(
        ssl.PROTOCOL_TLS_CLIENT, own.pair(), begun_site.task.server_a, begun_site.task.server_b
    )
    with running(begun_site) as process, ExitStack() as stack:
        assert process.stderr is not None
        said = list[str]()
        reading = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
        reading.start()
        for number in range(IDLE):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", begun_site.port), SOON))
            if number % 10 == 0:
                stack.enter_context(context.wrap_socket(plain))
        with HttpTransport(begun_site.task, "127.0.0.1", begun_site.port, own.pair(), attempts=1) as transport:
            begin = time.monotonic()
            with pytest.raises(ProtocolError, match=says("round 7")):
                transport.exchange(7, Exchange.CLOSE, b"")
            assert time.monotonic() - begin < 2.0
        process.terminate()
        reading.join(SOON)
    turned_away = [line for line in map(json.loads, said) if line["event"] == doors.TURNED_AWAY]
    assert MOST_LINES < len(turned_away) < IDLE / 2
    assert "gave way" in turned_away[0]["words"]
    assert any(line["words"].endswith(" more") for line in turned_away)


def test_nobody_is_counted_who_has_gone(tmp_path: Path) -> None:
    """Half a handshake, none, garbage, a reset, a stranger, a guest: beyond the bound, and then all of them leave."""
    owner, guest = OwnKeys.new("beta", NOW), OwnKeys.new("alpha", NOW)
    pair = tls.Pair(*pair_of(owner, tmp_path))
    context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, pair, owner.identity, guest.identity)
    listening = doors.listen("127.0.0.1", 0)
    house = House(listening.getsockname()[1], owner, guest, tmp_path)
    door = doors.serve_aside(APP, [listening], context, Bounds(in_all=30, per_address=20))
    with ExitStack() as stack:
        for number in range(120):
            plain = stack.enter_context(house.plain())
            with suppress(OSError):
                if number % 6 == 0:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    plain.close()
                elif number % 6 < 3:
                    plain.sendall((b"\x16\x03\x01\x02\x00\x01", b"garbage\r\n\r\n")[number % 6 - 1])
                elif number % 6 < 5:
                    shown = house.context((None, guest)[number % 6 - 3])
                    stack.enter_context(shown.wrap_socket(plain))
        assert len(door._visitors) <= 30
        assert house.ask(guest).status_code == 200
    end = time.monotonic() + SOON
    while len(door._visitors) and time.monotonic() < end:
        time.sleep(0.01)
    assert (len(door._visitors), door._visitors._crowds, len(door._tasks)) == (0, {}, 1)
    door.leave()


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
