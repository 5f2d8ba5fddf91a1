"""A's way to B over HTTPS with mutual TLS: retries what may be retried, and says in words what may not."""

import ssl
import time
from collections.abc import Callable

import httpx

from precad.deployment import tls
from precad.deployment.task import Task
from precad.deployment.tls import Pair
from precad.deployment.transport import Exchange, TransportError, limit
from precad.errors import ProtocolError
from precad.protocol.messages import VERSION

VERSION_HEADER = "precad-protocol"


class HttpTransport:
    """Server A's way to server B over mutual TLS: a :class:`precad.deployment.transport.Transport`.

    Args:
        task: The task, which pins both certificates.
        host: Where B listens.
        port: B's port.
        pair: The certificate that A shows, and its key.
        attempts: How often a message is sent before a :class:`TransportError`.
        timeout: The seconds that B has to answer.
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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._task, self._peer, self._attempts, self._sleep = task, task.server_b, attempts, sleep
        context = tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, pair, task.server_a, task.server_b)
        self._url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        self._client = httpx.Client(
            base_url=self._url,
            verify=context,
            timeout=httpx.Timeout(timeout, connect=10.0),
            headers={VERSION_HEADER: str(VERSION), "content-type": "application/octet-stream"},
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
        for attempt in range(self._attempts):
            if attempt:
                self._sleep(min(30.0, 0.5 * 2**attempt))
            try:
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

    def _once(self, round_: int, what: Exchange, body: bytes) -> bytes:
        allowed = limit(self._task, what)
        with self._client.stream("POST", f"/v1/rounds/{round_}/{what.value}", content=body) as response:
            answer = bytearray()
            for chunk in response.iter_bytes():
                answer += chunk
                if len(answer) > allowed:
                    raise ProtocolError(f"server {self._peer.name} answers with more than {allowed} bytes")
        if response.status_code == httpx.codes.OK:
            return bytes(answer)
        words = f"server {self._peer.name}: {answer.decode(errors='replace')[:1000]}"
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise TransportError(words)
        raise ProtocolError(words)
