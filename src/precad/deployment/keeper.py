"""A client's key, state and budget in a process of their own, for apps that somebody else wrote (PROTOCOL §9).

On Flower, organisation A ships the app that trains. It runs as another user, and of the client it reaches this
process's Unix socket alone: it cannot read the key, take back what was counted, or pass a budget. What it can ask for:

- ``GET /v2/client``: the task, the client's name in it, its participations, how long a rehearsal took;
- ``POST /v2/introduction``: the proof that a node is this client's, for the 32 bytes that A asked with, and the node's
  number in 8 bytes;
- ``POST /v2/told``: to hear a verdict; the answer is its word;
- ``POST /v2/join``, ``/v2/zeros`` and ``/v2/answer`` with the digest of a model in the query and an invitation in the
  header :data:`INVITATION_HEADER`: to join a round (204; 200 with what was answered before), to seal an update of zeros
  and throw it away, and to answer with an update, of 8 bytes for each parameter, or of zeros if there are none;
- ``POST /v2/rehearsal?milliseconds=N``: to keep how long one took.

Every round counts before its reply is given out, however often it is asked for. A refusal is a sentence with status
403, as the client's own; other statuses are those of :func:`precad.deployment.refusals.refusal`.
"""

import base64
import binascii
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from precad.deployment import doors
from precad.deployment.client import ASK_BYTES, Client, Joined, RefusedError
from precad.deployment.client_config import ClientConfig
from precad.deployment.disk import exclusive
from precad.deployment.doors import body_of, number
from precad.deployment.kept_client import INVITATION_HEADER
from precad.deployment.log import FewLines, log, log_as_json
from precad.deployment.refusals import refusal
from precad.deployment.replies import MARGIN
from precad.deployment.visitors import Bounds
from precad.mpc.prg import Digest

LOG = logging.getLogger("precad.client")
MOST_MESSAGE = 1 << 16
"""Bytes of a verdict."""
LOCAL = Bounds(idle=10 * 86_400.0, head=10 * 86_400.0)
"""An app connects before it trains, and may train for days."""


def run(config: ClientConfig) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        StoreError: The client's state is another's; or another process runs this client.
        ValueError: The settings, the key and the task do not go together.
    """
    log_as_json()
    task = config.load_task()
    with exclusive(config.store), closing(config.open_client(task)) as client:
        listening = doors.listen_at(config.app_socket)
        log("started", client=client.name, task=task.digest.hex(), socket=str(config.app_socket))
        doors.serve(keeper_app(client, config.audit_log), [listening], bounds=LOCAL)
        log("stopped", client=client.name)


def keeper_app(client: Client, audit_log: Path) -> Starlette:
    """What an app reaches."""
    keeper = _Keeper(client, audit_log)
    return Starlette(
        routes=[
            Route("/v2/client", keeper.answered(keeper.about, 0), methods=["GET"]),
            Route("/v2/introduction", keeper.answered(keeper.introduction, ASK_BYTES + 8), methods=["POST"]),
            Route("/v2/told", keeper.answered(keeper.told, MOST_MESSAGE), methods=["POST"]),
            Route("/v2/join", keeper.answered(keeper.join, 0), methods=["POST"]),
            Route("/v2/zeros", keeper.answered(keeper.zeros, 0), methods=["POST"]),
            Route("/v2/answer", keeper.answered(keeper.answer, 8 * client.task.bounds.dim), methods=["POST"]),
            Route("/v2/rehearsal", keeper.answered(keeper.rehearsal, 0), methods=["POST"]),
        ]
    )


class _Keeper:
    """The client, for one request at a time."""

    def __init__(self, client: Client, audit_log: Path) -> None:
        self._client, self._audit_log, self._lock = client, audit_log, threading.Lock()
        self._refused = FewLines("refused")

    def answered(
        self, handler: Callable[[Request, bytes], Response], most: int
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler that gets a body of at most ``most`` bytes, and whose every refusal is a sentence."""

        def alone(request: Request, body: bytes) -> Response:
            with self._lock:
                return handler(request, body)

        async def answer(request: Request) -> Response:
            try:
                return await run_in_threadpool(alone, request, await body_of(request, most, "a request"))
            except RefusedError as refused:
                status, words = 403, str(refused)
            except Exception as error:
                status, words = refusal(error)
            self._refused.add(path=request.url.path[:80], status=status, words=words)
            return PlainTextResponse(words, status)

        return answer

    def about(self, _request: Request, _body: bytes) -> Response:
        """What an app may know."""
        client = self._client
        found = {
            "name": client.name,
            "task": client.task.as_text(),
            "participations": client.participations(),
            "rehearsed": client.rehearsed(),
        }
        return JSONResponse(found)

    def introduction(self, _request: Request, body: bytes) -> Response:
        """The proof that a node is this client's."""
        return Response(self._client.introduce(body[:-8], int.from_bytes(body[-8:], "little")))

    def told(self, _request: Request, message: bytes) -> Response:
        """A verdict."""
        verdict = self._client.hear(message)
        LOG.info("the last submission was found %s", verdict)
        self._client.write_log(self._audit_log)
        return PlainTextResponse(verdict)

    def join(self, request: Request, _body: bytes) -> Response:
        """Join a round."""
        joined = self._joined(request)
        LOG.info("round %d: invited", joined.round.number)
        return Response(status_code=204) if joined.reply is None else Response(joined.reply)

    def zeros(self, request: Request, _body: bytes) -> Response:
        """What :meth:`answer` begins with, for an app that measures how long sealing takes."""
        self._client.seal_zeros(self._joined(request))
        return Response(status_code=204)

    def answer(self, request: Request, body: bytes) -> Response:
        """The reply for A."""
        joined, dim = self._joined(request), self._client.task.bounds.dim
        if len(body) not in (0, 8 * dim):
            raise HTTPException(400, f"an update has {8 * dim} bytes or none, got {len(body)}")
        update = np.frombuffer(body, "<f8") if body else np.zeros(dim)
        reply = self._client.answer(joined, update, self._client.seal_zeros(joined))
        LOG.info("round %d: the app has its sealed submission", joined.round.number)
        self._client.write_log(self._audit_log)
        return Response(reply)

    def rehearsal(self, request: Request, _body: bytes) -> Response:
        """Keep what a rehearsal took, if a client could join after it: an app cannot spoil the rounds of the next."""
        seconds = number(request.query_params.get("milliseconds", "")) / 1000
        most = self._client.task.training.reply_seconds / MARGIN
        if not 0 < seconds <= most:
            raise HTTPException(400, f"a rehearsal takes more than 0 and at most {most:g} seconds, got {seconds:g}")
        self._client.note_rehearsal(seconds)
        return Response(status_code=204)

    def _joined(self, request: Request) -> Joined:
        try:
            digest = Digest(bytes.fromhex(request.query_params.get("model", "")))
            invitation = base64.b64decode(request.headers.get(INVITATION_HEADER, ""), validate=True)
        except (ValueError, binascii.Error) as error:
            raise HTTPException(400, f"no digest of a model, or no invitation: {error}") from None
        return self._client.join_model(invitation, digest)
