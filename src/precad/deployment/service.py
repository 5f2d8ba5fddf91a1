"""Server B as a service: HTTPS with mutual TLS for A; health and metrics for its operator (PROTOCOL §10).

``POST /v1/rounds/{round}/{exchange}``: A's message in, B's message out. 200 with the answer; 409 a refusal, for good;
400 another version, or a message that broke off; 404 no such exchange; 413 too long; 507 the disk is full; 503 try
again; 500 a fault. Logs and metrics hold no name of a client and no figure about one.
"""

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from precad.deployment import doors, tls
from precad.deployment.config import ServerConfig
from precad.deployment.control import MODE, control_app, give_up
from precad.deployment.disk import StoreError
from precad.deployment.doors import OwnHost
from precad.deployment.helper import HelperServer
from precad.deployment.https import VERSION_HEADER
from precad.deployment.log import log, log_as_json
from precad.deployment.refusals import refusal
from precad.deployment.server import Server
from precad.deployment.transport import Exchange, limit
from precad.deployment.visitors import LOCAL
from precad.protocol.messages import VERSION

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
        number, what, status = -1, request.path_params["what"], 200
        try:
            number = doors.number(request.path_params["round"])
            wanted, body = await _read(helper, request)
            async with lock:
                answer = await run_in_threadpool(helper.exchange, number, wanted, body)
                if wanted in (Exchange.BEGIN, Exchange.RECEIPT):
                    await run_in_threadpool(after)
        except Exception as error:
            status, words = refusal(error)
            answer = words.encode()
            log("refused", logging.WARNING, round=number, status=status, words=words)
        name = what if what in _NAMES else "unknown"
        metrics.count(name, status, time.perf_counter() - start)
        log("exchange", round=number, exchange=name, status=status)
        return doors.in_pieces(answer) if status == 200 else Response(answer, status, media_type="text/plain")

    return Starlette(routes=[Route("/v1/rounds/{round}/{what}", exchange, methods=["POST"])])


async def _read(helper: HelperServer, request: Request) -> tuple[Exchange, bytes]:
    """A's message, no longer than it may be."""
    spoken = request.headers.get(VERSION_HEADER, "none")
    if spoken != str(VERSION):
        raise HTTPException(400, f"protocol version {spoken[:20]}, this server speaks version {VERSION}")
    if request.path_params["what"] not in _NAMES:
        raise HTTPException(404, "there is no such exchange")
    what = Exchange(request.path_params["what"])
    return what, await doors.body_of(request, limit(helper.task, what), what.value)


def operations_app(server: Server, metrics: Metrics, failing: Callable[[], str | None] = lambda: None) -> Starlette:
    """Health and metrics, for the operator; nothing for a page of a browser that was sent here under another name."""

    def health(_request: Request) -> Response:
        try:
            row, why = server.last(), failing()
        except StoreError as error:
            row, why = None, str(error)
        if why is not None:
            return JSONResponse({"status": "failing", "why": why}, 503)
        status = {"round": row.number, "state": row.status.value} if row is not None else {"round": None}
        return JSONResponse({"status": "ok", "protocol": VERSION, "task": server.task.digest.hex(), **status})

    def show(_request: Request) -> Response:
        return PlainTextResponse(metrics.as_text(server.store.opened_rounds()))

    return Starlette(routes=[Route("/health", health), Route("/metrics", show)], middleware=[Middleware(OwnHost)])


def run(config: ServerConfig) -> None:
    """Serve B until SIGTERM or Ctrl-C: what is being answered is answered, then the files are closed."""
    log_as_json()
    with config.alone(), closing(config.open_helper()) as helper:
        context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, config.pair(), helper.identity, helper.peer)
        listening = doors.listen(config.host, config.port)
        metrics, control = Metrics(), doors.listen_at(config.control_socket, MODE)
        doors.serve_aside(control_app(lambda wanted: give_up(helper, config, wanted)), [control], bounds=LOCAL)
        if config.metrics_port:
            inside = doors.listen("127.0.0.1", config.metrics_port)
            doors.serve_aside(operations_app(helper, metrics), [inside], bounds=LOCAL)

        def write_log() -> None:
            helper.write_log(config.audit_log)

        write_log()
        where = {"host": config.host, "port": listening.getsockname()[1]}
        log("started", server=helper.identity.name, task=helper.task.digest.hex(), **where)
        doors.serve(exchange_app(helper, metrics, write_log), [listening], context, config.bounds())
        log("stopped", server=helper.identity.name)
