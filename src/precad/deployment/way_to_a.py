"""A client's way to A over HTTPS with mutual TLS: no answer is longer, or takes longer, than it may (PROTOCOL §13).

What A sends is bytes to be checked. Nothing of it is executed, unpacked, followed or kept: no code, no compression, no
redirect, no cookie.
"""

import asyncio
import ssl

import httpx
import numpy as np
from numpy.typing import NDArray

from precad.deployment import tls
from precad.deployment.addresses import https_url
from precad.deployment.client import ForGoodError
from precad.deployment.client_config import ClientConfig
from precad.deployment.https import VERSION_HEADER
from precad.deployment.task import Task
from precad.deployment.transport import TransportError
from precad.errors import PrecadError, ProtocolError
from precad.mpc.prg import Digest
from precad.protocol.messages import VERSION, Invited, decode

TASK_HEADER = "precad-task"
"""The digest of the client's task, in hexadecimal."""
POLL = 25.0
"""Seconds that A holds the question for the next round, if there is nothing new."""
SLOWEST = 20_000
"""Bytes a second, at which a model or a submission must cross."""
MOST_MESSAGE = 1 << 16
MOST_WORDS = 1 << 10
"""Bytes of an ``Invited``, and of a sentence."""
_LATER = {408, 429}
_FOR_GOOD = {400, 403, 409}


class TaskOverError(PrecadError):
    """All rounds of the task were opened."""


class WayToA:
    """Server A, as a client reaches it. For one thread.

    Args:
        task: The task, which pins both certificates.
        config: The client's settings.

    Raises:
        ValueError: The certificate is not the one that the task gives for the client.
    """

    def __init__(self, task: Task, config: ClientConfig) -> None:
        own = task.members[config.name].identity
        context = tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, config.pair(), own, task.server_a)
        self._task, self._config, self._runner = task, config, asyncio.Runner()
        self._headers = {VERSION_HEADER: str(VERSION), TASK_HEADER: task.digest.hex(), "accept-encoding": "identity"}
        self._transport = httpx.AsyncHTTPTransport(
            verify=context, limits=httpx.Limits(keepalive_expiry=60), trust_env=False
        )
        self._url = https_url(config.host, config.port)
        self.peer = f"server {task.server_a.name} at {self._url}"

    def close(self) -> None:
        """Let go of the connections."""
        self._runner.run(self._transport.aclose())
        self._runner.close()

    def next_round(self, after: int, heard: int) -> Invited | None:
        """What is new: a round after ``after``, or a verdict on one after ``heard``; None if nothing is yet.

        Raises:
            TransportError: A was not reached, or cannot answer now.
            TaskOverError: There will be nothing new.
            ForGoodError: A refuses this client.
            ProtocolError: A answers with something else.
        """
        known = {"after": after, "heard": heard}
        query = "&".join(f"{name}={value}" for name, value in known.items() if value >= 0)
        status, body = self._ask("GET", f"/v2/rounds/next?{query}", most=MOST_MESSAGE, held=POLL)
        if status == httpx.codes.NO_CONTENT:
            return None
        if status == httpx.codes.GONE:
            raise TaskOverError(_words(body))
        if status in _FOR_GOOD:
            raise ForGoodError(f"{self.peer} refuses this client: {_words(body)}")
        self._check(status, body)
        return decode(body, Invited)

    def model(self, digest: Digest) -> NDArray[np.float64]:
        """The model with this digest, as A has it: whoever joins a round checks it."""
        most = 8 * self._task.bounds.dim
        status, body = self._ask("GET", f"/v2/models/{digest.hex()}", most=most)
        self._check(status, body)
        if len(body) != most:
            raise ProtocolError(f"a model of {len(body)} bytes, expected {most}")
        return np.frombuffer(body, "<f8").astype(np.float64)

    def submit(self, number: int, reply: bytes) -> str:
        """Send a reply: no words if A keeps it, else why it does not."""
        status, body = self._ask("POST", f"/v2/rounds/{number}/submission", reply, most=MOST_WORDS)
        self._check(status, body)
        return _words(body)

    def _check(self, status: int, body: bytes) -> None:
        if status >= httpx.codes.INTERNAL_SERVER_ERROR or status in _LATER:
            raise TransportError(f"it cannot answer now: {_words(body)}")
        if status != httpx.codes.OK:
            raise ProtocolError(f"it answers with status {status}: {_words(body)}")

    def _ask(self, method: str, path: str, content: bytes = b"", *, most: int, held: float = 0.0) -> tuple[int, bytes]:
        seconds = held + self._config.answer_seconds + (len(content) + most) / SLOWEST
        try:
            return self._runner.run(self._answer(method, path, content, most, seconds))
        except TimeoutError:
            raise TransportError(f"no whole answer within {seconds:g} seconds") from None
        except httpx.TransportError as error:
            said = str(error) or type(error).__name__
            raise TransportError(tls.in_words(said, self._task.server_a) or f"it does not answer: {said}") from None

    async def _answer(self, method: str, path: str, content: bytes, most: int, seconds: float) -> tuple[int, bytes]:
        times = {"timeout": {"connect": self._config.connect_seconds}}
        request = httpx.Request(method, self._url + path, content=content, headers=self._headers, extensions=times)
        async with asyncio.timeout(seconds):
            response = await self._transport.handle_async_request(request)
            try:
                return response.status_code, await _bounded(response, most)
            finally:
                await response.aclose()


async def _bounded(response: httpx.Response, most: int) -> bytes:
    """The bytes as they come, no more than may come."""
    most = most if response.status_code == httpx.codes.OK else MOST_WORDS
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            raise ProtocolError(f"it answers with more than {most} bytes")
    return bytes(body)


def _words(body: bytes) -> str:
    return body.decode(errors="replace")[:300]
