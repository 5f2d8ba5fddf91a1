"""A's way to B over HTTPS with mutual TLS: retries what may be retried, and says in words what may not.

No wait is silent: the log says for whom, at which step, for how long, and how much time is left.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from precad.deployment import tls
from precad.deployment.addresses import https_url
from precad.deployment.task import Task
from precad.deployment.tls import Pair
from precad.deployment.transport import Exchange, TransportError, limit
from precad.errors import ProtocolError
from precad.protocol.messages import VERSION

LOG = logging.getLogger(__name__)
VERSION_HEADER = "precad-protocol"
NEWS = 30.0
"""Seconds between two lines of the log about one wait."""


class HttpTransport:
    """Server A's way to server B over mutual TLS: a :class:`precad.deployment.transport.Transport`.

    Args:
        task: The task, which pins both certificates.
        host: Where B listens.
        port: B's port.
        pair: The certificate that A shows, and its key.
        attempts: How often a message is sent before a :class:`TransportError`.
        timeout: The seconds that B has to answer, to the last byte.
        connect: The seconds that a connection to B may take.
        sleep: Waits between two attempts.
    """

    def __init__(
        self,
        task: Task,
        host: str,
        port: int,
        pair: Pair,
        *,
        attempts: int = 6,
        timeout: float = 600.0,
        connect: float = 10.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._task, self._peer, self._attempts, self._sleep = task, task.server_b, attempts, sleep
        self._timeout = timeout
        context = tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, pair, task.server_a, task.server_b)
        self._url = https_url(host, port)
        self._client = httpx.Client(
            base_url=self._url,
            verify=context,
            timeout=httpx.Timeout(timeout, connect=connect),
            headers={
                VERSION_HEADER: str(VERSION),
                "content-type": "application/octet-stream",
                "accept-encoding": "identity",
            },
            trust_env=False,
        )

    def __enter__(self) -> "HttpTransport":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """Send until B answers; the same bytes each time, so that a repetition does no harm."""
        last = ""
        for attempt in range(self._attempts):
            if attempt:
                self._pause(round_, what, attempt, last)
            try:
                with self._news(round_, what):
                    return self._once(round_, what, body)
            except httpx.TransportError as error:
                words = tls.in_words(str(error), self._peer)
                if words is not None:
                    raise TransportError(f"{self._url}: {words}") from None
                last = f"server {self._peer.name} at {self._url} does not answer: {str(error) or type(error).__name__}"
                if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
                    last += "; if this goes on, it refuses this server's certificate: do both hold the same task?"
            except TransportError as error:
                last = str(error)
        raise TransportError(f"{last} ({self._attempts} attempts)")

    def _pause(self, round_: int, what: Exchange, attempt: int, last: str) -> None:
        """Wait before the next attempt, longer each time."""
        pauses = [min(30.0, 0.5 * 2**each) for each in range(attempt, self._attempts)]
        left, many = sum(pauses), f"attempt {attempt + 1} of {self._attempts}"
        words = f"{last}; {many} in {pauses[0]:g} s, the last one in {left:g} s"
        self._tell(round_, what, words, attempt=attempt + 1, seconds_left=left)
        self._sleep(pauses[0])

    def _tell(self, round_: int, what: Exchange, words: str, **values: object) -> None:
        """A line of the log: in words and, where the log is JSON, in fields."""
        fields = {"peer": self._peer.name, "round": round_, "exchange": what.value, **values}
        LOG.warning("round %d, %s: %s", round_, what.value, words, extra={"values": fields})

    @contextmanager
    def _news(self, round_: int, what: Exchange) -> Iterator[None]:
        """A line of the log from time to time, for as long as B does not answer."""
        answered = threading.Event()

        def tell() -> None:
            waited = 0.0
            while not answered.wait(NEWS):
                waited += NEWS
                left = max(0.0, self._timeout - waited)
                words = f"no answer of server {self._peer.name} at {self._url} for {waited:g} s, {left:g} s left"
                self._tell(round_, what, words, seconds_left=left)

        threading.Thread(target=tell, daemon=True).start()
        try:
            yield
        finally:
            answered.set()

    def _once(self, round_: int, what: Exchange, body: bytes) -> bytes:
        allowed, end = limit(self._task, what), time.monotonic() + self._timeout
        with self._client.stream("POST", f"/v1/rounds/{round_}/{what.value}", content=body) as response:
            answer = bytearray()
            for chunk in response.iter_raw():
                answer += chunk
                if time.monotonic() > end:
                    raise TransportError(f"server {self._peer.name} has not answered within {self._timeout:g} s")
                if len(answer) > allowed:
                    raise ProtocolError(f"server {self._peer.name} answers with more than {allowed} bytes")
        if response.status_code == httpx.codes.OK:
            return bytes(answer)
        words = f"server {self._peer.name}: {answer.decode(errors='replace')[:1000]}"
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise TransportError(words)
        raise ProtocolError(words)
