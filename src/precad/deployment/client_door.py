"""The clients' door of server A: HTTPS with mutual TLS for clients that run their own code alone (PROTOCOL §13).

``GET /v2/rounds/next?after=N&heard=M`` waits up to :data:`POLL` seconds for what is new to a client: a round after N
that it was selected for, or the verdict on a submission after round M. 200 with an ``Invited``; 204 nothing yet; 410
the task is over. ``GET /v2/models/DIGEST`` is the model of the open round, 8 bytes for each parameter.
``POST /v2/rounds/N/submission`` takes the reply: 200 with no words if it is kept, else with the reason.

The certificate that a connection shows says who is there. A client sees its own things alone, and submits for itself
alone. Every refusal is a sentence: 400 bad input, 403 not one's own, 404 no such thing, 408 too slow, 409 another task,
413 too long, 429 too many requests, at once or in a second.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from precad.deployment.conductor import Conductor
from precad.deployment.doors import body_of, in_pieces, number, peer
from precad.deployment.https import VERSION_HEADER
from precad.deployment.log import FewLines
from precad.deployment.refusals import refusal
from precad.deployment.transport import submission_limit
from precad.deployment.way_to_a import POLL, SLOWEST, TASK_HEADER
from precad.errors import ProtocolError
from precad.protocol.codec import Blob
from precad.protocol.messages import VERSION, Header, Invitation, Invited, Sealed, Told, decode, encode

MOST_AT_ONCE = 4
"""Requests of one client."""
A_SECOND, IN_A_ROW = 20.0, 100.0
"""Requests that one client has a second, on average, and without a pause. A round takes it four."""
_NONE = -1
T = TypeVar("T")


def client_app(conductor: Conductor) -> Starlette:
    """What native clients reach."""
    door = _Door(conductor)
    return Starlette(
        routes=[
            Route("/v2/rounds/next", door.guarded(door.next_round), methods=["GET"]),
            Route("/v2/models/{digest}", door.guarded(door.model), methods=["GET"]),
            Route("/v2/rounds/{round}/submission", door.guarded(door.submission), methods=["POST"]),
        ]
    )


Handler = Callable[[Request, str], Awaitable[Response]]


class _Door:
    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._names = {
            member.identity.certificate: name
            for name, member in conductor.task.members.items()
            if member.identity.certificate
        }
        self._task, self._most = conductor.task.digest.hex(), submission_limit(conductor.task)
        self._at_once: Counter[str] = Counter()
        self._left: dict[str, tuple[float, float]] = {}
        """How many requests each client had left, and when that was."""
        self._threads: CapacityLimiter | None = None
        self._news, self._refused = _News(conductor), FewLines("refused")

    def guarded(self, handler: Handler) -> "_Guarded":
        """A handler that knows who asks, and whose every refusal is a sentence and a line of the log."""
        return _Guarded(self, handler)

    async def answer(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, which counts until its answer is sent."""
        request = Request(scope, receive)
        with ExitStack() as until_sent:
            try:
                name = self._who(request)
                until_sent.enter_context(self._one_of_few(name))
                response = await handler(request, name)
            except Exception as error:
                status, words = refusal(error)
                self._refused.add(path=request.url.path[:80], status=status, words=words)
                response = Response(words, status, media_type="text/plain")
            await response(scope, receive, send)

    def _who(self, request: Request) -> str:
        name = self._names.get(peer(request))
        if name is None:
            raise HTTPException(403, "the certificate shown is of no client of this task")
        spoken, task = request.headers.get(VERSION_HEADER, "none"), request.headers.get(TASK_HEADER, "none")
        if spoken != str(VERSION):
            raise HTTPException(400, f"protocol version {spoken[:20]!a}, this server speaks version {VERSION}")
        if task != self._task:
            raise HTTPException(409, f"the client's task is {task[:64]!a}, this server's is {self._task}")
        return name

    @contextmanager
    def _one_of_few(self, name: str) -> Iterator[None]:
        if self._at_once[name] >= MOST_AT_ONCE:
            raise HTTPException(429, f"more than {MOST_AT_ONCE} requests of one client at once")
        now = asyncio.get_running_loop().time()
        left, since = self._left.get(name, (IN_A_ROW, now))
        left = min(IN_A_ROW, left + A_SECOND * (now - since))
        if left < 1:
            raise HTTPException(429, f"more than {A_SECOND:g} requests of one client a second")
        self._left[name] = left - 1, now
        self._at_once[name] += 1
        try:
            yield
        finally:
            self._at_once[name] -= 1

    async def next_round(self, request: Request, name: str) -> Response:
        """What is new to a client, once there is something."""
        after, heard = (_round(request, key) for key in ("after", "heard"))
        until = asyncio.get_running_loop().time() + POLL
        while True:
            version = self._news.version
            await self._thread(self._conductor.seen, name)
            found = await self._thread(self._conductor.open_round, after, 0.0)
            told = await self._thread(self._conductor.told, name)
            news = told if told is not None and decode(told, Told).round > heard else b""
            invited = found is not None and name in found.selected
            if found is not None and invited:
                await self._thread(self._conductor.joined, name, found.number)
                return _message(Invited(Blob(found.invitation), Blob(news)))
            if news:
                return _message(Invited(Blob(b""), Blob(news)))
            if found is None and await self._thread(self._conductor.is_over):
                return Response("the task is over: all its rounds were opened", 410, media_type="text/plain")
            if found is not None:
                self._news.saw(found.number)
                after = found.number
            if not await self._news.after(version, until):
                return Response(status_code=204)
            if self._conductor.is_stopping():
                raise HTTPException(503, "this server is stopping")

    async def model(self, request: Request, name: str) -> Response:
        """The model of the open round."""
        found = await self._thread(self._conductor.open_round, _NONE, 0.0)
        wanted = request.path_params["digest"]
        own = found is not None and name in found.selected
        if found is None or not own or decode(found.invitation, Invitation).model.hex() != wanted:
            raise HTTPException(404, "not the model of an open round of this client")
        return in_pieces(np.ascontiguousarray(found.model, "<f8").data)

    async def submission(self, request: Request, name: str) -> Response:
        """A client's reply. What becomes of it is for this client alone."""
        number_, body = number(request.path_params["round"]), await self._body(request)
        try:
            header = decode(decode(body, Sealed).header, Header)
        except ProtocolError as error:
            raise HTTPException(400, str(error)) from None
        if header.client != name or header.round != number_:
            raise HTTPException(403, "a submission of another client or round than it was sent for")
        rejected = await self._thread(self._conductor.submit, name, body)
        if rejected is None:
            self._news.saw(number_)
        return Response("" if rejected is None else rejected.reason.value, media_type="text/plain")

    async def _body(self, request: Request) -> bytes:
        seconds = max(POLL, self._most / SLOWEST)
        try:
            async with asyncio.timeout(seconds):
                return await body_of(request, self._most, "a submission")
        except TimeoutError:
            raise HTTPException(408, f"a submission took more than {seconds:.0f} seconds to arrive") from None

    async def _thread(self, call: Callable[..., T], *arguments: object) -> T:
        if self._threads is None:
            self._threads = CapacityLimiter(16)  # of this event loop
        return await run_sync(partial(call, *arguments), limiter=self._threads)


@dataclass(frozen=True)
class _Guarded:
    """What Starlette lets send its answer itself."""

    door: _Door
    handler: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.door.answer(self.handler, scope, receive, send)


class _News:
    """Asks the conductor, on behalf of all who wait and while anybody does, whether a round began or ended."""

    _STEP = 1.0

    def __init__(self, conductor: Conductor) -> None:
        self.version = 0
        self._conductor, self._began, self._ended = conductor, _NONE, _NONE
        self._waiting: set[asyncio.Future[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    def saw(self, number: int) -> None:
        """A round that the conductor has begun: what a client claims to know does not count."""
        self._began = max(self._began, number)

    async def after(self, version: int, until: float) -> bool:
        """Wait until something is newer than this version; False if time is up."""
        loop = asyncio.get_running_loop()
        if self.version != version:
            return True
        mine = loop.create_future()
        self._waiting.add(mine)
        if self._watch is None or self._watch.done():
            self._watch = loop.create_task(self._look())
        try:
            async with asyncio.timeout_at(until):
                await mine
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(mine)
        return True

    async def _look(self) -> None:
        while self._waiting:
            try:
                found = await run_sync(self._conductor.open_round, self._began, self._STEP)
                outcome = await run_sync(self._conductor.outcome, self._began, 0.0)
            except Exception as error:
                refusal(error)
                await asyncio.sleep(self._STEP)
                continue
            ended = outcome is not None and self._ended < self._began
            if ended:
                self._ended = self._began
            if found is not None:
                self.saw(found.number)
            if found is not None or ended or self._conductor.is_stopping():
                self.version += 1
                for each in self._waiting:
                    if not each.done():
                        each.set_result(None)


def _round(request: Request, key: str) -> int:
    text = request.query_params.get(key)
    return _NONE if text is None else number(text)


def _message(message: Invited) -> Response:
    return Response(encode(message), media_type="application/octet-stream")
