"""Server B as a service: HTTPS with mutual TLS for A; health and metrics for its operator (PROTOCOL §10).

``POST /v1/rounds/{round}/{exchange}``: A's message in, B's message out. 200 with the answer; 409 a refusal, for good;
400 another version; 413 too long; 507 the disk is full; 503 try again. Logs and metrics hold no name of a client and no
figure about one.
"""

import asyncio
import errno
import json
import logging
import signal
import socket
import ssl
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from precad.deployment import receipts, tls
from precad.deployment.config import ServerConfig
from precad.deployment.disk import FULL, StoreError
from precad.deployment.helper import HelperServer
from precad.deployment.https import VERSION_HEADER
from precad.deployment.transport import Exchange, limit
from precad.errors import ProtocolError
from precad.protocol.messages import VERSION

LOG = logging.getLogger("precad.server")
FAREWELL = 5.0
"""Seconds, after the last answer before a stop."""
_NAMES = frozenset(what.value for what in Exchange)


class Metrics:
    """Counts for the operator, in Prometheus' text format. Nothing about any client."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()

    def count(self, what: str, status: int, seconds: float) -> None:
        """One answer."""
        self._answers[what, status] += 1
        self._seconds[what] += seconds  # type: ignore[assignment] # a sum of times

    def as_text(self, opened: int) -> str:
        """All counts."""
        lines = ["# TYPE precad_rounds_opened_total counter", f"precad_rounds_opened_total {opened}"]
        lines.append("# TYPE precad_answers_total counter")
        for (what, status), count in sorted(self._answers.items()):
            lines.append(f'precad_answers_total{{exchange="{what}",status="{status}"}} {count}')
        lines.append("# TYPE precad_answer_seconds_total counter")
        for what, seconds in sorted(self._seconds.items()):
            lines.append(f'precad_answer_seconds_total{{exchange="{what}"}} {seconds:.6f}')
        return "\n".join(lines) + "\n"


def exchange_app(helper: HelperServer, metrics: Metrics, after: Callable[[], None] = lambda: None) -> Starlette:
    """What A reaches. One exchange at a time; ``after`` runs after each that may have ended a round."""
    lock = asyncio.Lock()

    async def exchange(request: Request) -> Response:
        start = time.perf_counter()
        number, what, status = request.path_params["round"], request.path_params["what"], 200
        try:
            wanted, body = await _read(helper, request)
            async with lock:
                answer = await run_in_threadpool(helper.exchange, number, wanted, body)
                if wanted in (Exchange.BEGIN, Exchange.RECEIPT):
                    await run_in_threadpool(after)
        except Exception as error:
            status, words = _refusal(error)
            answer = words.encode()
            log("refused", logging.WARNING, round=number, status=status, words=words)
        name = what if what in _NAMES else "unknown"
        metrics.count(name, status, time.perf_counter() - start)
        log("exchange", round=number, exchange=name, status=status)
        return Response(answer, status, media_type="application/octet-stream" if status == 200 else "text/plain")

    return Starlette(routes=[Route("/v1/rounds/{round:int}/{what}", exchange, methods=["POST"])])


async def _read(helper: HelperServer, request: Request) -> tuple[Exchange, bytes]:
    """A's message, no longer than it may be."""
    spoken = request.headers.get(VERSION_HEADER, "none")
    if spoken != str(VERSION):
        raise HTTPException(400, f"protocol version {spoken}, this server speaks version {VERSION}")
    if request.path_params["what"] not in _NAMES:
        raise HTTPException(404, "there is no such exchange")
    what = Exchange(request.path_params["what"])
    allowed, body = limit(helper.task, what), bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > allowed:
            raise HTTPException(413, f"{what.value} has more than {allowed} bytes")
    return what, bytes(body)


def _refusal(error: Exception) -> tuple[int, str]:
    """The status and the words for A. A fault of this program goes to the log by its place alone: no value."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, ClientDisconnect):
        return 400, "the message broke off"
    if isinstance(error, ProtocolError):
        return 409, str(error)
    if isinstance(error, StoreError):
        return 507 if "disk is full" in str(error) else 503, str(error)
    if isinstance(error, OSError):
        return (507, FULL) if error.errno == errno.ENOSPC else (503, f"a file cannot be written: {error.strerror}")
    where = traceback.extract_tb(error.__traceback__)[-1]
    log("fault", logging.ERROR, kind=type(error).__name__, file=where.filename, line=where.lineno)
    return 500, "a fault in this server: see its log"


def operations_app(helper: HelperServer, metrics: Metrics) -> Starlette:
    """Health and metrics, for the operator."""

    def health(_request: Request) -> Response:
        try:
            row = helper.last()
        except StoreError as error:
            return JSONResponse({"status": "failing", "why": str(error)}, 503)
        status = {"round": row.number, "state": row.status.value} if row is not None else {"round": None}
        return JSONResponse({"status": "ok", "protocol": VERSION, "task": helper.task.digest.hex(), **status})

    def show(_request: Request) -> Response:
        return PlainTextResponse(metrics.as_text(helper.store.opened_rounds()))

    return Starlette(routes=[Route("/health", health), Route("/metrics", show)])


def run(config: ServerConfig) -> None:
    """Serve until SIGTERM or Ctrl-C: what is being answered is answered, then the files are closed."""
    _log_as_json()
    helper = config.open_helper()
    try:
        context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, config.pair(), helper.identity, helper.peer)
        listening = _listen(config.host, config.port)
        metrics = Metrics()
        if config.metrics_port:
            operations = uvicorn.Server(_settings(operations_app(helper, metrics)))
            sockets = {"sockets": [_listen("127.0.0.1", config.metrics_port)]}
            threading.Thread(target=operations.run, kwargs=sockets, daemon=True).start()

        def write_log() -> None:
            receipts.extend(config.audit_log, helper.store.log)

        write_log()
        settings = _settings(exchange_app(helper, metrics, write_log))
        settings.load()
        settings.ssl = context
        where = {"host": config.host, "port": listening.getsockname()[1]}
        log("started", server=helper.identity.name, task=helper.task.digest.hex(), **where)
        for wanted in (signal.SIGTERM, signal.SIGINT):
            signal.signal(wanted, lambda *_: None)  # uvicorn stops at the signal, then raises it again
        uvicorn.Server(settings).run(sockets=[listening])
        log("stopped", server=helper.identity.name)
    finally:
        helper.close()


def log(event: str, level: int = logging.INFO, **values: object) -> None:
    """One line of the log."""
    LOG.log(level, event, extra={"values": values})


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"time": self.formatTime(record), "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps({**head, **getattr(record, "values", {})}, ensure_ascii=False)


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    for name in ("precad.server", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "precad.server" else logging.WARNING)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror}; is another server running?") from None
    return listening


class _Connection(H11Protocol):
    """A connection that a stop of the server cuts off: at once if it is idle, else some seconds after its answer.

    TLS by itself would wait half a minute for the other side's farewell. If an answer is lost so, A asks for it again.
    """

    def shutdown(self) -> None:
        if self._is_answering():
            super().shutdown()
            self._abort_after_answer()
        else:
            self.transport.abort()

    def _abort_after_answer(self) -> None:
        if self._is_answering():
            self.loop.call_later(0.1, self._abort_after_answer)
        else:
            self.loop.call_later(FAREWELL, self.transport.abort)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


def _settings(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Connection,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=60,
        timeout_keep_alive=120,
        h11_max_incomplete_event_size=16384,
    )
