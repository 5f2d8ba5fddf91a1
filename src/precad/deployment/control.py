"""``precad abandon``: the operator gives up a round, at either server, whether its service runs or not.

A service listens for its operator at a Unix socket beside the store that its own user alone reaches.
"""

from collections.abc import Callable
from contextlib import closing

import httpx
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from precad.deployment import conductor
from precad.deployment.config import ServerConfig
from precad.deployment.disk import BusyError
from precad.deployment.doors import number
from precad.deployment.refusals import refusal
from precad.deployment.server import Server
from precad.deployment.transport import TransportError, knock
from precad.errors import ProtocolError
from precad.files import short_name

SECONDS = 30.0
"""For which the command waits until A's service has ended what it asks B."""
MODE = 0o600


def control_app(abandon: Callable[[int | None], str]) -> Starlette:
    """What the operator's commands reach."""

    async def answer(request: Request) -> Response:
        try:
            asked = request.query_params.get("round")
            return PlainTextResponse(await run_in_threadpool(abandon, None if asked is None else number(asked)))
        except Exception as error:
            status, words = refusal(error)
            return PlainTextResponse(words, status)

    return Starlette(routes=[Route("/v2/abandon", answer, methods=["POST"])])


def give_up(server: Server, config: ServerConfig, wanted: int | None) -> str:
    """Give up the round under way; what was done, in a sentence."""
    given_up = server.abandon_round(wanted)
    server.write_log(config.audit_log)
    return conductor.given_up(given_up)


def abandon(config: ServerConfig, wanted: int | None = None) -> str:
    """Give up the round under way at the server of these settings; what was done, in a sentence.

    Args:
        config: The server's settings.
        wanted: The round that is meant; if another one is under way, nothing is done.

    Raises:
        ProtocolError: The protocol does not allow it; the words say why.
    """
    try:
        with config.alone(), closing(config.open_server()) as server:
            return give_up(server, config, wanted)
    except BusyError:
        return _ask_service(config, wanted)


def _ask_service(config: ServerConfig, wanted: int | None) -> str:
    where = config.control_socket
    try:
        knock(where)
        with (
            short_name(where) as name,
            httpx.Client(transport=httpx.HTTPTransport(uds=name), timeout=SECONDS + 10) as http,
        ):
            answer = http.post(f"http://server/v2/abandon{'' if wanted is None else f'?round={wanted}'}")
    except httpx.TransportError as error:
        raise TransportError(f"the server runs, and does not answer at {where}: {error}") from None
    if answer.status_code != httpx.codes.OK:
        raise ProtocolError(answer.text)
    return answer.text
