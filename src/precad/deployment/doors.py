"""What every listening socket of ours has in common: bounds, a line in the log for all it turns away, and its end.

asyncio keeps to itself why a TLS handshake failed, and does not even tell the other side. So each connection is
accepted here, its handshake is watched, OpenSSL's alert is sent, and the reason goes to the log in words.
"""

import asyncio
import errno
import re
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from precad.deployment import tls
from precad.deployment.connection import FAREWELL, Connection
from precad.deployment.log import FewLines
from precad.deployment.visitors import Bounds, Visitor, Visitors
from precad.files import short_name, words_of

ALERT = 1.0
"""Seconds, in which the other side can read why its handshake failed."""
MOST_HEAD = 16384
"""Bytes of a request's head."""
PIECE = 1 << 16
"""Bytes of an answer that are handed over at once."""
TURNED_AWAY = "turned away"
"""The event of the log."""
BROKE_OFF = "broke off in its TLS handshake"
_USED_UP = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors that pass when a connection ends."""
_FAIL: ContextVar[Callable[[ssl.SSLError], None]] = ContextVar("fail")
"""Is told why the handshake of the connection that is being received failed."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; a port that is taken is a ``ValueError``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        asked = "; is another server running?" if error.errno == errno.EADDRINUSE else ""
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror}{asked}") from None
    return listening


def listen_at(path: Path, mode: int = 0o660) -> socket.socket:
    """A Unix socket that listens, for its owner and group alone, whatever the umask.

    One that nobody listens at any more is replaced: whoever holds the store's lock is the only one who may listen here.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            path.unlink()
        with short_name(path) as name:
            listening.bind(name)
        path.chmod(mode)  # before it listens, so that nobody gets in earlier
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise ValueError(f"cannot listen at {path}: {words_of(error)}") from None
    return listening


def serve(
    app: ASGIApp, sockets: list[socket.socket], context: ssl.SSLContext | None = None, bounds: Bounds | None = None
) -> None:
    """Serve until SIGTERM or Ctrl-C, and end what is being answered."""
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, lambda *_: None)  # uvicorn stops at the signal, then raises it again
    Door(app, context, bounds).run(sockets)


def serve_aside(
    app: ASGIApp, sockets: list[socket.socket], context: ssl.SSLContext | None = None, bounds: Bounds | None = None
) -> "Door":
    """Serve in a thread of its own, until :meth:`Door.leave` or the end of the process."""
    door = Door(app, context, bounds)
    door.thread = threading.Thread(target=door.run, args=(sockets,), daemon=True)
    door.thread.start()
    return door


def peer(request: Request) -> bytes:
    """The certificate (DER) of the task that the connection of a request has shown; empty where none is asked for."""
    certificate: bytes = request.scope["state"]["certificate"]
    return certificate


def number(text: str) -> int:
    """A number in a path or a query; anything but plain digits without a leading zero, below 2^63, is a bad request."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text) or int(text) >= 2**63:
        shown = text if len(text) <= 40 else f"{text[:40]}... ({len(text):,} letters)"
        raise HTTPException(400, f"a number must be below 2^63, in digits without a leading zero, got {shown!a}")
    return int(text)


async def body_of(request: Request, most: int, what: str) -> bytes:
    """A request's body; one with more than ``most`` bytes is refused as soon as they are there."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"{what} has more than {most} bytes")
    return bytes(body)


def in_pieces(body: bytes | memoryview) -> Response:
    """A long answer, of which each piece waits until the other side has taken most of those before.

    So it takes next to no memory for a connection, and a slow one is cut only if it stops.
    """
    view = memoryview(body).cast("B")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(view), PIECE):
            yield bytes(view[start : start + PIECE])

    length = {"content-length": str(len(view))}
    return StreamingResponse(pieces(), headers=length, media_type="application/octet-stream")


class OwnHost:
    """Lets a request pass that names this machine and the port, as one of this machine's does.

    A page from elsewhere that a browser here shows can let its own name lead to 127.0.0.1, but then it is in the Host.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        port = scope["server"][1]
        own = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        app = self._app
        if Request(scope).headers.get("host", "").lower() not in own:
            app = PlainTextResponse(f"the Host must be 127.0.0.1:{port}", 421)
        await app(scope, receive, send)


class Door(uvicorn.Server):
    """One app behind listening sockets.

    Args:
        app: What is served.
        context: TLS; one of :func:`precad.deployment.tls.pinned_context` lets in whoever shows a certificate that it
            names. None for a door that this machine alone reaches.
        bounds: What is allowed.
    """

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None = None, bounds: Bounds | None = None) -> None:
        self._bounds, self._context = bounds or Bounds(), context
        super().__init__(_settings(app, self._bounds))
        if context is not None:
            context.sslobject_class = _Handshake
        self._pinned = context.pinned if isinstance(context, tls.PinnedContext) else None
        self.thread: threading.Thread | None = None
        self._refused = FewLines(TURNED_AWAY)
        self._visitors = Visitors(
            self._bounds, lambda visitor, words: self._refused.add(address=visitor.address, words=words)
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def leave(self) -> None:
        """End what is being answered, then stop; for a door of :func:`serve_aside`."""
        self.should_exit = True
        if self.thread is not None:
            self.thread.join()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn: begin to accept connections."""
        await self.lifespan.startup()
        self.servers = []
        for each in sockets or []:
            self._begin(self._accept(each))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn: accept no more, end what is being answered."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().shutdown(sockets)
        self._refused.flush()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _USED_UP:
                    self._visitors.make_room()
                await asyncio.sleep(0.05)
                continue
            # A Unix socket has no address, or one that the other side has made up.
            visitor = Visitor(address[0] if isinstance(address, tuple) else "this machine", accepted.close)
            if self._visitors.admit(visitor):
                self._begin(self._receive(accepted, visitor))
            else:
                accepted.close()
            await asyncio.sleep(0)  # others have their turn

    async def _receive(self, accepted: socket.socket, visitor: Visitor) -> None:
        """One connection until its handshake is over: from then on it is in the hands of :class:`_Connection`."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is None or accepted.fileno() < 0:  # it has given way already
            return
        faults = list[ssl.SSLError]()

        def cut() -> None:
            task.cancel()

        def fail(error: ssl.SSLError) -> None:
            faults.append(error)
            self._visitors.note(visitor, tls.refused_in_words(error))
            loop.call_later(ALERT, cut)

        visitor.cut = cut
        _FAIL.set(fail)
        times = {"ssl_handshake_timeout": self._bounds.handshake, "ssl_shutdown_timeout": FAREWELL}
        try:
            await loop.connect_accepted_socket(
                partial(Connection, self.config, self.server_state, self._visitors, visitor, self._pinned),
                accepted,
                ssl=self._context,
                **(times if self._context else {}),
            )
        except asyncio.CancelledError:
            self._visitors.leave(visitor)
            raise
        except OSError as error:
            self._visitors.leave(visitor)
            if not faults:
                late = isinstance(error, ConnectionAbortedError)
                self._visitors.note(
                    visitor, f"no TLS handshake within {self._bounds.handshake:g} s" if late else BROKE_OFF
                )


class _Handshake(ssl.SSLObject):
    """Tells of a failed handshake, and has asyncio send OpenSSL's alert, by the claim that more is to come."""

    _failed = False

    def do_handshake(self) -> None:
        if not self._failed:
            try:
                return super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self._failed = True
                _FAIL.get()(error)
        raise ssl.SSLWantReadError


def _settings(app: ASGIApp, bounds: Bounds) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=60,
        timeout_keep_alive=int(bounds.idle),
        h11_max_incomplete_event_size=MOST_HEAD,
    )
