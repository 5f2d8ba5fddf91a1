"""The gateway, with raw sockets in front of it and a SuperLink behind it that records what it gets."""

import base64
import datetime
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.types import ASGIApp, Receive, Scope, Send

from precad.deployment import doors, gateway
from precad.deployment.gateway import PATHS, Gateway, GatewayConfig
from precad.deployment.keys import OwnKeys
from tests.messages import says

NOW = datetime.datetime.now(datetime.UTC)
FOREVER = 30.0
PULL = "/v1/fleet/pull-messages"
INSIDE = ("/v1/control/start-run", "/v1/runtime/acquire-task", "/v1/fleet/register-node", "/v1/fleet/unregister-node")


@dataclass
class SuperLink:
    """It answers everything, and keeps what it was asked."""

    asked: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    status: int = 200
    answer: bytes = b"the answer"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.asked.append((scope["method"], scope["raw_path"], scope["query_string"]))
        self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.bodies.append(body)
        headers = [(b"content-type", b"application/protobuf"), (b"x-inside", b"secret"), (b"server", b"superlink")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.answer})


@dataclass
class Site:
    """A running gateway, and what is behind it."""

    port: int
    superlink: SuperLink
    node: ec.EllipticCurvePrivateKey
    folder: Path

    def signed(self, node: ec.EllipticCurvePrivateKey | None = None, at: datetime.datetime | None = None) -> str:
        """The headers of a node."""
        own, stamp = node or self.node, (at or datetime.datetime.now(datetime.UTC)).isoformat()
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        public = own.public_key().public_bytes(serialization.Encoding.PEM, spki)
        signature = own.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
        key, proof = (base64.b64encode(each).decode() for each in (public, signature))
        return f"flwr-public-key: {key}\r\nflwr-timestamp: {stamp}\r\nflwr-signature: {proof}\r\n"

    def request(
        self, target: str, method: str = "POST", body: bytes = b"ask", more: str = "", host: str = "a.example"
    ) -> bytes:
        """The bytes of a request that a node signed."""
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{self.signed()}Content-Type: application/protobuf\r\n"
        length = "" if "content-length" in more.lower() else f"Content-Length: {len(body)}\r\n"
        return f"{head}{length}{more}\r\n".encode("latin-1") + body

    def send(self, raw: bytes, seconds: float = FOREVER) -> bytes:
        """All that comes back until the gateway ends the connection, or, if it does not, its first answer."""
        with self.connection(seconds) as sock:
            with suppress(ssl.SSLError, ConnectionError):  # it may refuse a request before its end
                sock.sendall(raw)
            return read(sock)

    @contextmanager
    def connection(self, seconds: float = FOREVER) -> Iterator[ssl.SSLSocket]:
        context = ssl.create_default_context(cafile=str(self.folder / "gateway.tls.pem"))
        context.check_hostname = False
        with (
            socket.create_connection(("127.0.0.1", self.port), seconds) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as sock,
        ):
            yield sock


def read(sock: ssl.SSLSocket) -> bytes:
    """One answer: up to the end of its body, or of the connection."""
    received = b""
    while True:
        received = re.sub(rb"^HTTP/1.1 100.*?\r\n\r\n", b"", received, flags=re.DOTALL)
        head, found, body = received.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        if found and lengths and len(body) >= int(lengths[0]):
            return received
        if found and b"chunked" in head and body.endswith(b"0\r\n\r\n"):
            return received
        piece = sock.recv(65536)
        if not piece:
            return received
        received += piece


@contextmanager
def serving(app: ASGIApp, context: ssl.SSLContext) -> Iterator[int]:
    listening = doors.listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    door = doors.serve_aside(app, [listening], context)
    try:
        yield port
    finally:
        door.leave()


def write_public(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.write_bytes(key.public_key().public_bytes(*form) + b" bank\n")


def settings(folder: Path) -> GatewayConfig:
    def pair(name: str) -> tuple[Path, Path]:
        OwnKeys.new(name, NOW).save(folder)
        return folder / f"{name}.tls.pem", folder / f"{name}.tls.key"

    (folder / "nodes").mkdir()
    return GatewayConfig(*pair("gateway"), pair("superlink")[0], folder / "nodes", most_bytes=1 << 20, seconds=FOREVER)


@pytest.fixture
def site(running: Site) -> Site:
    """The running one, as if nobody had asked anything."""
    running.superlink.__init__()  # type: ignore[misc] # as new
    return replace(running)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    tmp_path = tmp_path_factory.mktemp("gateway")
    config, superlink, node = settings(tmp_path), SuperLink(), ec.generate_private_key(ec.SECP384R1())
    write_public(tmp_path / "nodes" / "bank.pub", node)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "superlink.tls.pem", tmp_path / "superlink.tls.key")
    with serving(superlink, context) as inside:
        config = replace(config, superlink_port=inside)
        with serving(Gateway(config, config.inside()), config.shown()) as port:
            yield Site(port, superlink, node, tmp_path)


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1]) if answer else 0


@pytest.mark.parametrize("path", PATHS.values())
def test_the_fleets_paths_are_passed(site: Site, path: str) -> None:
    body = bytes(range(256)) * 2000
    answer = site.send(site.request(path, body=body, more="X-Forwarded-For: 1.2.3.4\r\nCookie: a=b\r\n"))
    assert status(answer) == 200
    assert site.superlink.answer in answer
    assert b"secret" not in answer
    assert b"superlink" not in answer
    assert site.superlink.asked == [("POST", path.encode(), b"")]
    assert site.superlink.bodies == [body]
    taken = set(site.superlink.headers)
    assert taken <= gateway.TAKEN_OVER | {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert site.superlink.headers["host"].startswith("127.0.0.1:")


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(
    "target",
    [
        "{inside}",
        "/v1/fleet/..{control}",
        "/v1/fleet/../..{inside}",
        "/v1/fleet/pull-messages/../../..{inside}",
        "/v1/fleet/%2e%2e/%2e%2e{inside}",
        "/v1/fleet/..%2f..{inside}",
        "/v1/fleet/..%5c..{inside}",
        "/v1/fleet/%252e%252e/%252e%252e{inside}",
        "/v1/fleet/pull-messages;{inside}",
        "/v1/fleet/pull-messages%00{inside}",
        "/v1/fleet/pull-messages%0d%0aPOST%20{inside}",
        "/v1/fleet/pull-messages#{inside}",
        "//{inside}",
        "/.{inside}",
        "{inside}/",
        "{inside}.",
        "{inside}?x=/v1/fleet/pull-messages",
        "https://127.0.0.1:8000{inside}",
        "http://localhost{inside}",
        "https://a.example/v1/fleet/pull-messages/../..{inside}",
        "{upper}",
    ],
)
def test_no_other_path_is(site: Site, target: str, inside: str) -> None:
    control = inside.removeprefix("/v1")
    raw = site.request(target.format(inside=inside, control=control, upper=inside.upper()))
    assert status(site.send(raw)) in (400, 404)
    assert site.superlink.asked == []


@pytest.mark.parametrize(
    "target",
    [
        f"{PULL}/",
        f"{PULL}.",
        f"{PULL}%20",
        f"{PULL}?a=b",
        f"/{PULL}",
        PULL.upper(),
        "/v1/fleet/pull%2dmessages",
        "/v1//fleet/pull-messages",
        "/v1/./fleet/pull-messages",
        f"https://a.example{PULL}",
        "/v1/fleet/",
        "/v1/fleet",
        "/",
        "*",
        "/health",
        "/docs",
        "/openapi.json",
        f"{PULL}{'/..' * 3000}",
        "/" + "a" * 15_000,
        "/" + "a" * 100_000,
    ],
)
def test_a_path_that_is_almost_the_fleets_is_not_passed(site: Site, target: str) -> None:
    assert status(site.send(site.request(target))) in (400, 404)
    assert site.superlink.asked == []


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PRI", "post", "CONNECT", "X"]
)
def test_no_other_method_is(site: Site, method: str) -> None:
    assert status(site.send(site.request(PULL, method))) == 404
    assert status(site.send(site.request("127.0.0.1:8000", method))) in (400, 404)
    assert site.superlink.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1:8000/v1/control/start-run?", "localhost", "", "a/../..", "x" * 5000])
def test_the_host_of_a_request_goes_nowhere(site: Site, host: str) -> None:
    site.send(site.request(PULL, host=host))
    assert all(asked == ("POST", PULL.encode(), b"") for asked in site.superlink.asked)
    assert site.superlink.headers.get("host", "127.0.0.1:").startswith("127.0.0.1:")


@pytest.mark.parametrize(
    "more",
    [
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 60\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: 00000000000000000000004\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
    ],
)
def test_no_second_request_is_smuggled_in_a_first(site: Site, more: str) -> None:
    second = site.request("/v1/control/start-run")
    raw = site.request(PULL, body=b"0\r\n\r\n" + second, more=more)
    with site.connection(3.0) as sock:
        sock.sendall(raw)
        assert b"the answer" not in read(sock) or site.superlink.asked
    assert all(asked == ("POST", PULL.encode(), b"") for asked in site.superlink.asked)


def test_requests_in_one_connection_are_judged_one_by_one(site: Site) -> None:
    raw = site.request(PULL) + site.request("/v1/control/start-run") + site.request(PULL)
    with site.connection() as sock:
        sock.sendall(raw)
        received = b""
        while piece := sock.recv(65536):
            received += piece
    assert received.count(b"HTTP/1.1 200") == received.count(b"HTTP/1.1 404") == 1, "the third is not read"
    assert site.superlink.asked == [("POST", PULL.encode(), b"")]


@pytest.mark.parametrize(
    "more",
    [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
        "Expect: 100-continue\r\n",
        "X-Original-URL: /v1/control/start-run\r\nX-Rewrite-URL: /v1/control/start-run\r\n",
        "X-HTTP-Method-Override: GET\r\nFlwr-Task-Token: x\r\nFlwr-Superexec-Signature: x\r\n",
        "Connection: flwr-public-key\r\n",
    ],
)
def test_headers_lead_nowhere_else(site: Site, more: str) -> None:
    site.send(site.request(PULL, more=more))
    assert all(asked == ("POST", PULL.encode(), b"") for asked in site.superlink.asked)
    lowered = " ".join(site.superlink.headers)
    assert not any(word in lowered for word in ("upgrade", "x-", "task-token", "superexec", "http2"))


def test_http_2_is_not_spoken(site: Site) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    assert status(site.send(preface)) in (0, 400, 404)
    assert site.superlink.asked == []


def test_only_known_nodes_are_heard(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of a stranger, or of an old signature, reaches the SuperLink, whatever the path."""
    stranger = ec.generate_private_key(ec.SECP384R1())
    body = "Content-Type: application/protobuf\r\nContent-Length: 3\r\n\r\nask"
    hour = datetime.timedelta(hours=1)
    now = datetime.datetime.now(datetime.UTC)
    twice = site.signed() + site.signed()
    borrowed = site.signed(stranger).splitlines()[1:]
    borrowed = [site.signed().splitlines()[0], *borrowed, ""]
    heads = ["", site.signed(stranger), site.signed(at=now - hour), site.signed(at=now + hour), twice]
    naive = datetime.datetime.now()
    heads += ["\r\n".join(borrowed), site.signed(at=naive), site.signed().replace("signature: ", "signature: !")]
    with caplog.at_level(logging.WARNING, "precad.server"):
        time.sleep(1.1)  # the refusals of other tests are counted no more
        for head in heads:
            assert status(site.send(f"POST {PULL} HTTP/1.1\r\nHost: a\r\n{head}{body}".encode())) == 401
    assert site.superlink.asked == []
    said = " ".join(record.__dict__["values"]["words"] for record in caplog.records)
    for words in (r"signed 3[56]\d\d s ago .* clock", r"signed -3[56]\d\d s ago", "not a known node", "not signed by"):
        assert re.search(words, said), said


def test_nodes_come_and_go_while_it_runs(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A node is heard as long as its file is there; a file that is no key keeps nobody out, or in."""
    old, new, folder = site.node, ec.generate_private_key(ec.SECP384R1()), site.folder / "nodes"

    def statuses() -> list[int]:
        return [status(replace(site, node=node).send(replace(site, node=node).request(PULL))) for node in (old, new)]

    assert statuses() == [200, 401]
    write_public(folder / "lab.pub", new)
    assert statuses() == [200, 200]
    with caplog.at_level(logging.ERROR, "precad.server"):
        (folder / "bad.pub").write_text("no key")
        (folder / "lab.pub").unlink()
        assert statuses() == [200, 401]
        folder.rename(site.folder / "away")
        assert statuses() == [401, 401]
    assert {record.getMessage() for record in caplog.records if record.levelname == "ERROR"} == {"node not read"}
    (site.folder / "away" / "bad.pub").unlink()
    (site.folder / "away").rename(folder)
    assert statuses() == [200, 401]


def test_a_body_that_is_too_long_or_breaks_off(site: Site) -> None:
    long = site.request(PULL, body=b"", more=f"Content-Length: {(1 << 20) + 1}\r\n")
    assert status(site.send(long)) == 413
    with site.connection() as sock:
        sock.sendall(site.request(PULL, body=b"half", more="Content-Length: 8\r\n"))
    time.sleep(0.2)
    assert site.superlink.asked == []
    assert status(site.send(site.request(PULL))) == 200


def test_another_type_of_content_is_not_passed(site: Site) -> None:
    raw = site.request(PULL).replace(b"application/protobuf", b"application/json")
    assert status(site.send(raw)) == 415
    assert site.superlink.asked == []


def test_faults_inside_are_not_told_outside(site: Site) -> None:
    site.superlink.status, site.superlink.answer = 500, b"Traceback in /var/lib/flower"
    answer = site.send(site.request(PULL))
    assert status(answer) == 502
    assert answer.endswith(b"\r\n\r\n")
    site.superlink.status = 412
    assert status(site.send(site.request(PULL))) == 412, "nodes are told their own mistakes"


def test_another_superlink_is_not_spoken_to(site: Site, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    config = settings(tmp_path / "other")
    write_public(config.nodes / "bank.pub", site.node)
    wrong = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wrong.load_cert_chain(site.folder / "superlink.tls.pem", site.folder / "superlink.tls.key")
    recorder = SuperLink()
    with serving(recorder, wrong) as inside:
        config = replace(config, superlink_port=inside)
        with serving(Gateway(config, config.inside()), config.shown()) as port:
            other = replace(site, port=port, folder=tmp_path / "other")
            assert status(other.send(other.request(PULL))) == 502
    assert recorder.asked == []


def test_refusals_are_logged_with_the_address(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    time.sleep(1.1)  # the refusals of other tests are counted no more
    with caplog.at_level(logging.WARNING, "precad.server"):
        site.send(site.request("/v1/control/" + "x" * 1000))
    (values,) = [record.__dict__["values"] for record in caplog.records if record.getMessage() == "refused"]
    assert (values["address"], values["method"], values["status"]) == ("127.0.0.1", "POST", 404)
    assert len(json.dumps(values)) < 300


def test_a_flood_of_refusals_does_not_fill_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "precad.server"):
        start = time.monotonic()
        for _ in range(50):
            site.send(site.request("/v1/control/start-run"))
        seconds = time.monotonic() - start
        time.sleep(1.2)
    lines = [record for record in caplog.records if record.getMessage() == "refused"]
    assert len(lines) <= 11 * (1 + seconds)


def test_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says("no file")):
        gateway.load(tmp_path / "gateway.toml")
    (tmp_path / "gateway.toml").write_text('certificate = "a"\ntls_key = "b"\nnodes = "c"\n')
    with pytest.raises(ValueError, match="superlink_certificate"):
        gateway.load(tmp_path / "gateway.toml")
    config = settings(tmp_path)
    for name, value in (("port", 65536), ("superlink_port", 0), ("most_bytes", 0), ("seconds", 0.0)):
        with pytest.raises(ValueError, match=says(name, str(value))):
            replace(config, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says("folder of nodes")):
        gateway.Nodes(tmp_path / "none")
    with pytest.raises(ValueError, match=r"missing\.pem"):
        replace(config, certificate=tmp_path / "missing.pem").shown()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=says("it is a pipe, not a file")):
        replace(config, certificate=tmp_path / "pipe").shown()
    with pytest.raises(ValueError, match=says("folder of nodes")):
        gateway.Nodes(config.certificate)
    config.tls_key.chmod(0o640)
    with pytest.raises(ValueError, match=says("gateway.tls.key", "others")):
        config.shown()
    with pytest.raises(ValueError, match=r"missing\.pem"):
        replace(config, superlink_certificate=tmp_path / "missing.pem").inside()
    (tmp_path / "nodes" / "other.pub").write_text("ssh-ed25519 AAAA")
    with pytest.raises(ValueError, match=r"other\.pub"):
        gateway.Nodes(config.nodes)


def test_as_a_process_it_starts_says_so_and_stops(tmp_path: Path) -> None:
    settings(tmp_path)
    write_public(tmp_path / "nodes" / "bank.pub", ec.generate_private_key(ec.SECP384R1()))
    (tmp_path / "gateway.toml").write_text(
        'certificate = "gateway.tls.pem"\ntls_key = "gateway.tls.key"\nsuperlink_certificate = "superlink.tls.pem"\n'
        'nodes = "nodes"\nhost = "127.0.0.1"\nport = 0\nmost_per_address = 2\n'
    )
    command = [sys.executable, "-m", "precad", "gateway", "--config", str(tmp_path / "gateway.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            started = json.loads(process.stderr.readline())
            assert (started["event"], started["nodes"]) == ("started", 1)
            site = Site(started["port"], SuperLink(), ec.generate_private_key(ec.SECP384R1()), tmp_path)
            assert status(site.send(site.request(PULL))) == 401
            process.send_signal(signal.SIGTERM)
            lines = [json.loads(line) for line in process.stderr.read().splitlines()]
        finally:
            process.kill()
    assert [line["event"] for line in lines] == ["refused", "stopped"]
