"""The page of a run while it is trained, on 127.0.0.1: it asks for the state every second and shows the latest.

The server answers ``GET /`` and ``GET /state`` and nothing else. A page of another site cannot read it: a request whose
``Host`` is not this address (a name that was made to point here) or whose ``Origin`` is another one is refused. It
reads the run's files and holds nothing, so that trainer and server may stop and start in any order.
"""

import hashlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from precad.errors import PrecadError
from precad.report import formatting
from precad.report.figures import Figures
from precad.report.page import policy, render
from precad.report.run import ReportError, Run, Source

PATIENCE = 20.0
"""A run is stalled when no round has come for this many times the usual one …"""
LEAST_WAIT = 30.0
"""… and for this many seconds: evaluations and checkpoints take time too."""
UNPACED = 300.0
"""Seconds that are waited where nobody knows how long a round takes: before the first, and at a server."""
ADDRESS = "127.0.0.1"

Clock = Callable[[], float]
"""Seconds since the epoch."""


@dataclass(frozen=True)
class State:
    """Where a run stands."""

    stamp: str
    """Another one where the page is another one."""
    status: str
    """running, stalled, finished or lost."""
    said: str


class Watched:
    """A run's folder, read again when its files have changed, but not more than a tenth of the time."""

    def __init__(self, source: Source, clock: Clock) -> None:
        """A folder that is no run is an error of one sentence."""
        self._source, self._clock, self._turn = source, clock, threading.Lock()
        self._salt = secrets.token_bytes(16)
        self._seen, self._run = _stamp(source.files, self._salt), source.read()
        self._page = render([self._run], live=self._seen)
        self._next, self._fault = 0.0, ""

    def page(self) -> str:
        """The latest page; the last good one if the folder cannot be read now."""
        with self._turn:
            self._look()
            return self._page

    def state(self) -> State:
        """Whether rounds still come."""
        with self._turn:
            self._look()
            if self._fault:
                return State(self._seen, "lost", self._fault)
            return state_of(self._run, self._seen, self._age())

    def _age(self) -> float:
        """Seconds since something was written."""
        try:
            newest = max(path.stat().st_mtime for path in self._source.files if path.exists())
        except (OSError, ValueError):
            return 0.0
        return max(0.0, self._clock() - newest)

    def _look(self) -> None:
        stamp, start = _stamp(self._source.files, self._salt), time.monotonic()
        if (stamp == self._seen and not self._fault) or start < self._next:
            return
        try:
            self._run = self._source.read()
            self._page = render([self._run], live=stamp)
            self._seen, self._fault = stamp, ""
        except (PrecadError, ValueError, OSError) as error:
            self._fault = f"cannot be read now: {error}"
        end = time.monotonic()
        self._next = end + 9 * (end - start)


def state_of(run: Run, stamp: str, age: float) -> State:
    """The state of a run of which nothing was written for ``age`` seconds."""
    if run.finished:
        return State(stamp, "finished", "finished")
    usual, done = Figures(run).usual_round, f"round {run.done:,} of {run.config.training.rounds:,}"
    if age <= (UNPACED if usual is None else max(LEAST_WAIT, PATIENCE * usual)):
        return State(stamp, "running", f"running: {done}")
    pace = f", where one usually takes {formatting.seconds(usual)}" if usual is not None else ""
    return State(stamp, "stalled", f"stalled at {done}: nothing for {formatting.seconds(age)}{pace}")


class LiveServer(ThreadingHTTPServer):
    """Serves one run's page on ``ADDRESS``; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, watched: Watched, port: int) -> None:
        self.watched = watched
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OverflowError:
            raise ReportError(f"--port must be in [0, 65535], got {port}") from None
        except OSError as error:
            raise ReportError(
                f"port {port} cannot be used ({error.strerror}): choose another with --port, or 0 for a free one"
            ) from None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is nothing to tell; anything else is a fault of ours."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def own(self) -> frozenset[str]:
        """The hosts under which it may be asked."""
        port = self.server_address[1]
        return frozenset({f"{ADDRESS}:{port}", f"localhost:{port}"})


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "precad", ""
    timeout = 10

    def do_GET(self) -> None:
        own = self.server.own()
        origin = self.headers.get("Origin")
        if self.headers.get_all("Host") not in [[host] for host in own]:
            return self._answer(403, "text/plain", "refused: this is served to 127.0.0.1 alone\n")
        foreign = origin is not None and origin not in {f"http://{host}" for host in own}
        if foreign or self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return self._answer(403, "text/plain", "refused: another site asks\n")
        if self.path == "/":
            return self._answer(200, "text/html", self.server.watched.page())
        if self.path == "/state":
            state = self.server.watched.state()
            return self._answer(200, "application/json", json.dumps(vars(state)))
        return self._answer(404, "text/plain", "there is / and /state\n")

    def _refuse(self) -> None:
        self.close_connection = True
        self._answer(405, "text/plain", "GET only\n", {"Allow": "GET"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self, status: int, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (_HEADERS | (more or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", policy(live=True) + "; frame-ancestors 'none'")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Nothing: the terminal is for the person."""


_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def _stamp(files: tuple[Path, ...], salt: bytes) -> str:
    """What changes when a file does, and says nothing else: a store's length tells how many took part."""
    parts = []
    for path in files:
        try:
            found = path.stat()
            parts.append(f"{found.st_mtime_ns:x}.{found.st_size:x}")
        except OSError:
            parts.append("-")
    return hashlib.blake2b("_".join(parts).encode(), key=salt, digest_size=16).hexdigest()
