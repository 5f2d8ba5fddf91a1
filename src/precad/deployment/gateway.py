"""What the internet reaches of A's Flower: the fleet's paths, for nodes that A knows, and nothing else.

A SuperLink serves its nodes, its operators and its apps on one port, and only nodes need to show who they are. So it
listens on 127.0.0.1, and this gateway in front of it, with TLS on both sides. A request is passed if it is a POST to
exactly one of :data:`PATHS`, in the very bytes, and signed by a node whose public key is in A's folder of nodes. What
is passed is a new request: its path is ours, and of its headers only those that the fleet needs are taken over. No
answer to anybody else says what is inside.
"""

import asyncio
import base64
import binascii
import datetime
import logging
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from precad.deployment import doors
from precad.deployment.addresses import check_host, check_port
from precad.deployment.keys import check_secret
from precad.deployment.log import FewLines, log, log_as_json
from precad.deployment.visitors import Bounds
from precad.files import read_bytes
from precad.mpc.fixed_point import check_positive
from precad.tables import build, read_toml

PATHS = {
    f"/v1/fleet/{name}".encode(): f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
}
"""What a node that A registered needs. Registering is A's alone, and goes another way."""
MEDIA_TYPE = "application/protobuf"
PUBLIC_KEY, TIMESTAMP, SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
"""A node's key, the time, and its signature of the time, in the headers of Flower."""
TAKEN_OVER = frozenset(
    {
        *("content-type", "content-length", PUBLIC_KEY, TIMESTAMP, SIGNATURE),
        *("flwr-package-name", "flwr-package-version", "flwr-component-name"),
    }
)
TOLERANCE = datetime.timedelta(seconds=300)
"""How old a signature may be, as for Flower."""
MOST_KEY = 4096
"""Bytes of a node's public key's file."""
MOST_BYTES = 10**12
"""Of one request, whatever the settings say."""
MOST_SHOWN = 80
"""Letters of a path in the log."""


@dataclass(frozen=True)
class GatewayConfig:
    """The settings. Paths are relative to the file that they stand in."""

    certificate: Path
    """What the gateway shows to nodes, which have it from A's operator."""
    tls_key: Path
    superlink_certificate: Path
    """What the SuperLink must show to the gateway: this one and no other."""
    nodes: Path
    """The folder of the nodes' public keys, ``*.pub`` as ``ssh-keygen`` writes them; read again when it changes."""
    host: str = "0.0.0.0"  # noqa: S104 - this is the door to the outside
    port: int = 9092
    superlink_port: int = 8000
    """On 127.0.0.1."""
    most_bytes: int = 1 << 26
    """Of one request. A node sends its sealed reply in one."""
    seconds: float = 600.0
    """For one request and its answer."""
    most_connections: int = Bounds.in_all
    """That the gateway has open at once."""
    most_per_address: int = Bounds.per_address
    """Of one address, behind which there may be several nodes."""

    def __post_init__(self) -> None:
        check_positive("seconds", self.seconds)
        check_host("host", self.host)
        check_port("port", self.port)
        check_port("superlink_port", self.superlink_port, least=1)
        if not 1 <= self.most_bytes <= MOST_BYTES:
            raise ValueError(f"most_bytes must be from 1 to {MOST_BYTES}, got {self.most_bytes}")

    def shown(self) -> ssl.SSLContext:
        """TLS towards the nodes."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            check_secret(self.tls_key)
            read_bytes(self.certificate, 1 << 16)  # OpenSSL itself would wait at a pipe
            context.load_cert_chain(self.certificate, self.tls_key)
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot use the certificate {self.certificate} with {self.tls_key}: {error}") from None
        return context

    def inside(self) -> httpx.AsyncClient:
        """The way to the SuperLink, whose certificate is pinned."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        try:
            context.load_verify_locations(cadata=read_bytes(self.superlink_certificate, 1 << 16).decode())
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read the certificate {self.superlink_certificate}: {error}") from None
        return httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{self.superlink_port}",
            verify=context,
            timeout=httpx.Timeout(self.seconds, connect=10.0),
            limits=httpx.Limits(max_keepalive_connections=0),  # no two requests share a connection inside
            headers={"accept": MEDIA_TYPE, "accept-encoding": "identity"},
            trust_env=False,
        )


def load(path: Path) -> GatewayConfig:
    """The settings of a file. An unknown key, a missing one or a wrong type is a ``ValueError``."""
    return build(GatewayConfig, read_toml(path), str(path), folder=path.parent)


class Nodes:
    """The nodes that A knows, by the header in which each shows its key.

    Raises:
        ValueError: There is no such folder, or a file in it is not a node's public key. Later, when the folder has
            changed, that is a line of the log, and the node in question is not heard.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._changed = folder, 0
        self._known: dict[str, ec.EllipticCurvePublicKey] = {}
        for words in self._read():
            raise ValueError(words)

    def __len__(self) -> int:
        return len(self._known)

    def refusal(self, request: Request, now: datetime.datetime) -> str | None:
        """Why a request is not of a known node, and of now. What a stranger sends is looked up, and not parsed."""
        for words in self._read():
            log("node not read", logging.ERROR, words=words)
        shown, timestamp, signature = (_only(request, name) for name in (PUBLIC_KEY, TIMESTAMP, SIGNATURE))
        if shown not in self._known:
            return "not a known node"
        try:
            raw = base64.b64decode(signature, validate=True)
            self._known[shown].verify(raw, timestamp.encode(), ec.ECDSA(hashes.SHA256()))
            age = now - datetime.datetime.fromisoformat(timestamp)
        except (ValueError, TypeError, binascii.Error, InvalidSignature):
            return "not signed by the node whose key it shows"
        if abs(age) < TOLERANCE:
            return None
        return f"signed {age.total_seconds():.0f} s ago by the node's clock: this machine's clock or the node's is off"

    def _read(self) -> list[str]:
        """Read the folder, if it has changed; what is wrong with it, in words."""
        try:
            changed = self._folder.stat().st_mtime_ns
            os.scandir(self._folder).close()
        except OSError as error:
            changed, wrong = -1, [f"cannot read the folder of nodes {self._folder}: {error.strerror}"]
        else:
            wrong = []
        if changed == self._changed:
            return []
        self._changed, self._known = changed, {}
        for path in sorted(self._folder.glob("*.pub")) if not wrong else ():
            try:
                header, key = _node(path)
            except ValueError as error:
                wrong.append(str(error))
            else:
                self._known[header] = key
        return wrong


class Gateway:
    """The gateway as an ASGI application.

    Args:
        config: The settings.
        inside: The way to the SuperLink.
    """

    def __init__(self, config: GatewayConfig, inside: httpx.AsyncClient) -> None:
        self._config, self._inside, self.nodes = config, inside, Nodes(config.nodes)
        self._refused = FewLines("refused")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request, or refuse it. A refusal ends the connection: what follows on it is not read."""
        request, started = Request(scope, receive), False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            refused = self._refusal(request, datetime.datetime.now(datetime.UTC))
            if refused is None:
                async with asyncio.timeout(self._config.seconds):
                    await self._pass_on(request, sending)
        except ClientDisconnect:
            refused = 400, "the node broke off"
        except (httpx.HTTPError, TimeoutError) as error:
            refused = 502, f"no answer of the SuperLink: {type(error).__name__}"
        if refused is not None:
            self._refused.add(status=refused[0], words=refused[1], **_shown(request))
            if not started:
                await _plain(refused[0])(scope, receive, send)

    def _refusal(self, request: Request, now: datetime.datetime) -> tuple[int, str] | None:
        """A status and, for the log alone, the reason; None for a request that is passed."""
        length = _only(request, "content-length")
        if request.scope["raw_path"] not in PATHS or request.scope["query_string"]:
            return 404, "not a path of the fleet"
        if request.method != "POST":
            return 404, "not a POST"
        unknown = self.nodes.refusal(request, now)
        if unknown is not None:
            return 401, unknown
        if _only(request, "content-type") != MEDIA_TYPE:
            return 415, "not the fleet's type of content"
        if "transfer-encoding" in request.headers or not re.fullmatch("[0-9]{1,12}", length):
            return 411, "without one length"
        if int(length) > self._config.most_bytes:
            return 413, f"more than {self._config.most_bytes} bytes"
        return None

    async def _pass_on(self, request: Request, send: Send) -> None:
        """A new request to the SuperLink, and its answer, piece by piece."""
        taken = [(name, _only(request, name)) for name in TAKEN_OVER if name in request.headers]
        headers = [(name.encode(), value.encode("latin-1")) for name, value in taken]
        path = PATHS[request.scope["raw_path"]]
        async with self._inside.stream("POST", path, headers=headers, content=request.stream()) as answer:
            status = answer.status_code
            if status >= httpx.codes.INTERNAL_SERVER_ERROR:
                raise httpx.RemoteProtocolError(f"status {status}")
            kept = [name for name in ("content-type", "content-length") if name in answer.headers]
            raw = [(name.encode(), answer.headers[name].encode()) for name in kept]
            await send({"type": "http.response.start", "status": status, "headers": raw})
            async for piece in answer.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})


def run(config: GatewayConfig) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    log_as_json()
    gateway, context = Gateway(config, config.inside()), config.shown()
    bounds = Bounds(config.most_connections, config.most_per_address)
    listening = doors.listen(config.host, config.port)
    log("started", host=config.host, port=listening.getsockname()[1], nodes=len(gateway.nodes))
    doors.serve(gateway, [listening], context, bounds)
    log("stopped")


def _node(path: Path) -> tuple[str, ec.EllipticCurvePublicKey]:
    """A node's key, and the header in which Flower shows it."""
    try:
        key = serialization.load_ssh_public_key(read_bytes(path, MOST_KEY))
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"cannot read the public key of a node {path}: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError(f"{path} is not an ECDSA public key, as Flower's nodes have")
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(pem).decode(), key


def _only(request: Request, header: str) -> str:
    """A header's value, or nothing if the request has it more than once, or not at all."""
    values = request.headers.getlist(header)
    return values[0] if len(values) == 1 else ""


def _plain(status: int) -> Response:
    """An answer that says nothing but its status, and ends the connection."""
    return Response(status_code=status, headers={"connection": "close"})


def _shown(request: Request) -> dict[str, object]:
    """A request in the log: who asked for what, no longer than a line."""
    address = request.client.host if request.client else "unknown"
    target = request.scope["raw_path"][:MOST_SHOWN].decode(errors="replace")
    return {"address": address, "method": request.method[:MOST_SHOWN], "path": target}
