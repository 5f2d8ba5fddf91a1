"""The app's door of server A: HTTP over a Unix socket, for the one app, such as a ServerApp, that plays its task.

``GET /v2/lease`` is answered with a word, and never ends: while it is open, its connection's app is the one that
plays; another gets 409 and a sentence. With that word in the header ``precad-app``: ``GET /v2/task``; ``GET
/v2/rounds/next?after=N``, which waits for a round (204: not yet; 410: the task is over); ``GET /v2/model``; ``GET
/v2/told/CLIENT``; ``POST /v2/rounds/N/submission`` (200 with no words, or the reason), ``POST /v2/rounds/N/end``,
``GET /v2/rounds/N/over`` and ``GET /v2/rounds/N/outcome``, which waits. No key, no store and no noise can be reached
from here.
"""

import asyncio
import logging
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from precad.deployment.conductor import Conductor
from precad.deployment.doors import body_of, number
from precad.deployment.log import log
from precad.deployment.refusals import refusal
from precad.deployment.rounds import APP_HEADER, POLL
from precad.deployment.transport import submission_limit

Handler = Callable[[Request], Awaitable[Response]]
_LOOK = 0.2
"""Seconds between two looks whether the service ends."""


def app_app(conductor: Conductor) -> Starlette:
    """What the app reaches."""
    door = _Door(conductor)
    return Starlette(
        routes=[
            Route("/v2/lease", _in_words(door.lease)),
            Route("/v2/task", door.leased(door.task)),
            Route("/v2/rounds/next", door.leased(door.next_round)),
            Route("/v2/model", door.leased(door.model)),
            Route("/v2/told/{client}", door.leased(door.told)),
            Route("/v2/rounds/{round}/submission", door.leased(door.submission), methods=["POST"]),
            Route("/v2/rounds/{round}/end", door.leased(door.end), methods=["POST"]),
            Route("/v2/rounds/{round}/over", door.leased(door.is_over)),
            Route("/v2/rounds/{round}/outcome", door.leased(door.outcome)),
        ]
    )


class _Door:
    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._token: str | None = None

    def leased(self, handler: Handler) -> Handler:
        """A handler for the app that plays, and for no other."""

        async def checked(request: Request) -> Response:
            shown = request.headers.get(APP_HEADER, "")
            if self._token is None or not secrets.compare_digest(shown.encode(), self._token.encode()):
                raise HTTPException(401, "this app is not, or no longer, the one that plays this task")
            return await handler(request)

        return _in_words(checked)

    async def lease(self, _request: Request) -> Response:
        """Become the app that plays, for as long as the answer is open."""
        if self._token is not None:
            log("refused", logging.WARNING, words="a second app")
            raise HTTPException(409, "another app plays this task: wait until it has ended, or end it")
        self._token = secrets.token_hex(16)
        self._conductor.attach()
        log("an app plays")
        return _Lease(self._token, self._conductor.is_stopping, self._release)

    def _release(self) -> None:
        self._token = None
        self._conductor.detach()
        log("the app has gone")

    async def task(self, _request: Request) -> Response:
        """The task, as it stands in its file."""
        return PlainTextResponse(self._conductor.task.as_text())

    async def next_round(self, request: Request) -> Response:
        """A round that collects."""
        if await run_in_threadpool(self._conductor.is_over):
            rounds = self._conductor.task.training.rounds
            raise HTTPException(410, f"all {rounds} rounds of the task were opened")
        self._conductor.wanted()
        shown = request.query_params.get("after", "-1")
        after = -1 if shown == "-1" else number(shown)
        opened = await run_in_threadpool(self._conductor.open_round, after, POLL)
        if opened is not None:
            self._conductor.wanted(yes=False)
            invitation = b64encode(opened.invitation).decode()
            found = {"number": opened.number, "invitation": invitation, "selected": sorted(opened.selected)}
            return JSONResponse(found)
        return Response(status_code=204)

    async def model(self, _request: Request) -> Response:
        """The current model."""
        model = await run_in_threadpool(self._conductor.model)
        return Response(model.astype("<f8").tobytes(), media_type="application/octet-stream")

    async def told(self, request: Request) -> Response:
        """What a client is to be told."""
        told = await run_in_threadpool(self._conductor.told, request.path_params["client"])
        return Response(status_code=204) if told is None else Response(told, media_type="application/octet-stream")

    async def submission(self, request: Request) -> Response:
        """A client's reply, of whoever signed it."""
        number(request.path_params["round"])
        body = await body_of(request, submission_limit(self._conductor.task), "a submission")
        rejected = await run_in_threadpool(self._conductor.submit, None, body)
        return PlainTextResponse("" if rejected is None else rejected.reason.value)

    async def end(self, request: Request) -> Response:
        """The app has no more replies."""
        self._conductor.no_more(number(request.path_params["round"]))
        return PlainTextResponse("")

    async def is_over(self, request: Request) -> Response:
        """Whether a round was opened or given up."""
        found = await run_in_threadpool(self._conductor.outcome, number(request.path_params["round"]), 0.0)
        return PlainTextResponse("no" if found is None else "yes")

    async def outcome(self, request: Request) -> Response:
        """What became of a round."""
        found = await run_in_threadpool(self._conductor.outcome, number(request.path_params["round"]), POLL)
        return Response(status_code=204) if found is None else PlainTextResponse(found.value)


class _Lease(Response):
    """An answer that stays open until the app goes, or the service ends."""

    def __init__(self, token: str, is_stopping: Callable[[], bool], release: Callable[[], None]) -> None:
        self.status_code, self.background = 200, None
        self._token, self._is_stopping, self._release = token, is_stopping, release

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Hold the lease."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": []})
            await send({"type": "http.response.body", "body": f"{self._token}\n".encode(), "more_body": True})
            while not self._is_stopping():
                try:
                    async with asyncio.timeout(_LOOK):
                        if (await receive())["type"] == "http.disconnect":
                            break
                except TimeoutError:
                    continue
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._release()


def _in_words(handler: Handler) -> Handler:
    """Every refusal is a sentence."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            status, words = refusal(error)
            return PlainTextResponse(words, status)

    return answer
