"""How an app plays server A's rounds: in its own process, for a simulation, or through the socket of A's service.

The app brings the network to its clients, and nothing else: who takes part, what counts and what is opened is decided
by the :class:`Leader` alone. Through the socket the app's process needs none of A's files.
"""

import logging
import time
from base64 import b64decode
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

import httpx
import numpy as np
from numpy.typing import NDArray

from precad.deployment import task as tasks
from precad.deployment.attendance import OpenRound
from precad.deployment.conductor import Outcome
from precad.deployment.leader import Leader
from precad.deployment.task import Task
from precad.deployment.transport import TransportError, knock, submission_limit
from precad.errors import ProtocolError, Reason, Rejected
from precad.files import short_name
from precad.protocol.digests import model_digest
from precad.protocol.messages import Invitation, decode
from precad.tables import parse_json

LOG = logging.getLogger("flwr.precad")
APP_HEADER = "precad-app"
"""What an app shows that it is the one that plays."""
POLL = 20.0
"""Seconds for which A keeps a question open."""
LONGEST_PAUSE = 30.0


class Rounds(Protocol):
    """Server A, for an app."""

    @property
    def task(self) -> Task:
        """The task."""
        ...

    def open(self) -> OpenRound:
        """Begin the next round, or go on with the one that is open; its numbers and its model.

        Raises:
            ProtocolError: All rounds of the task were opened.
        """
        ...

    def told(self, client: str) -> bytes | None:
        """What became of a client's last submission, for that client alone."""
        ...

    def submit(self, number: int, replies: Iterable[bytes]) -> list[Rejected | None]:
        """The clients' replies in a round; for each, why it does not count, or None."""
        ...

    def is_over(self, number: int) -> bool:
        """Whether a round takes no replies any more."""
        ...

    def close(self, number: int) -> Outcome:
        """There are no more replies in a round: what became of it."""
        ...

    def model(self) -> NDArray[np.float64]:
        """The current model."""
        ...


@dataclass(frozen=True)
class OwnRounds:
    """Server A in the app's own process: for a simulation."""

    leader: Leader
    audit_log: Path

    @property
    def task(self) -> Task:
        """The task."""
        return self.leader.task

    def open(self) -> OpenRound:
        """Begin the next round, or go on with the one that is open."""
        number = self.leader.start_round()
        return OpenRound(number, self.leader.invitation(), self.leader.selected(), self.leader.model())

    def told(self, client: str) -> bytes | None:
        """What became of a client's last submission."""
        return self.leader.told(client)

    def submit(self, number: int, replies: Iterable[bytes]) -> list[Rejected | None]:
        """The clients' replies."""
        del number
        with self.leader.all_or_none():
            return [self.leader.submit(reply) for reply in replies]

    def is_over(self, number: int) -> bool:
        """Never: a round ends when its app says so."""
        del number
        return False

    def close(self, number: int) -> Outcome:
        """End a round."""
        del number
        given_up = self.leader.end_round()
        self.leader.write_log(self.audit_log)
        return Outcome.OPENED if given_up is None else Outcome.ABANDONED

    def model(self) -> NDArray[np.float64]:
        """The current model."""
        return self.leader.model()


class RemoteRounds:
    """Server A's service, through its socket.

    One app plays at a time: a connection that is kept open says which. If A is away, this waits, and the log says so.

    Args:
        socket: Where A listens for its app.
        sleep: Waits between two attempts.

    Raises:
        TransportError: A does not answer there.
        ProtocolError: Another app plays this task.
    """

    def __init__(self, socket: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._socket, self._sleep = socket, sleep
        knock(socket)
        self._open = ExitStack()
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=self._open.enter_context(short_name(socket))),
            base_url="http://server-a",
            timeout=httpx.Timeout(600.0, connect=10.0),
        )
        self._lease: httpx.Response | None = None
        self._last = -1
        try:
            self._take_lease()
            self.task = tasks.from_json(parse_json(self._once("GET", "/v2/task").content))
        except httpx.TransportError as error:
            self.end()
            raise TransportError(f"server A at {socket} does not answer: {error}") from None
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Let another app play."""
        if self._lease is not None:
            self._lease.close()
        self._http.close()
        self._open.close()

    def open(self) -> OpenRound:
        """Wait until a round collects that this app has not played yet."""
        begun = time.monotonic()
        while True:
            answer = self._ask("GET", f"/v2/rounds/next?after={self._last}")
            if answer.status_code == httpx.codes.OK:
                break
            waited = time.monotonic() - begun
            LOG.info("no round is open after %.0f s; server A's own log says what it waits for", waited)
        found = parse_json(answer.content)
        opened = OpenRound(found["number"], b64decode(found["invitation"]), frozenset(found["selected"]), self.model())
        if model_digest(opened.model) != decode(opened.invitation, Invitation).model:
            raise ProtocolError(f"round {opened.number} was over before this app had its model")
        return opened

    def told(self, client: str) -> bytes | None:
        """What became of a client's last submission."""
        answer = self._ask("GET", f"/v2/told/{client}")
        return answer.content if answer.status_code == httpx.codes.OK else None

    def submit(self, number: int, replies: Iterable[bytes]) -> list[Rejected | None]:
        """The clients' replies, one at a time. One that is too long for A's door stays here."""
        return [self._submit(number, reply) for reply in replies]

    def _submit(self, number: int, reply: bytes) -> Rejected | None:
        if len(reply) > submission_limit(self.task):
            return Rejected(Reason.MALFORMED)
        words = self._ask("POST", f"/v2/rounds/{number}/submission", reply).text
        return Rejected(Reason(words)) if words else None

    def is_over(self, number: int) -> bool:
        """Whether A has ended a round, because its time is over or its operator gave it up."""
        return self._ask("GET", f"/v2/rounds/{number}/over").text == "yes"

    def close(self, number: int) -> Outcome:
        """Say that there are no more replies, and wait until A has ended the round."""
        self._last, begun = number, time.monotonic()
        while True:
            self._ask("POST", f"/v2/rounds/{number}/end")  # again after a restart of A, which has forgotten it
            answer = self._ask("GET", f"/v2/rounds/{number}/outcome")
            if answer.status_code == httpx.codes.OK:
                return Outcome(answer.text)
            waited = time.monotonic() - begun
            LOG.info("round %d is not over after %.0f s; server A's own log says what it waits for", number, waited)

    def model(self) -> NDArray[np.float64]:
        """The current model."""
        return np.frombuffer(self._ask("GET", "/v2/model").content, "<f8").astype(np.float64)

    def _ask(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        """Ask until A answers. Everything may be asked again."""
        for attempt in count(1):
            try:
                knock(self._socket)
                if self._lease is None:
                    self._take_lease()
                return self._once(method, path, body)
            except (httpx.TransportError, TransportError) as error:
                if self._lease is not None:
                    self._lease.close()
                    self._lease = None
                pause = min(LONGEST_PAUSE, 0.5 * 2 ** min(attempt, 10))
                words = "server A at %s does not answer (%s), attempt %d; the next is in %.1f s, and so on without end"
                LOG.warning(words, self._socket, error, attempt, pause)
                self._sleep(pause)
        raise AssertionError("not reached")

    def _once(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        response = self._http.request(method, path, content=body, headers={APP_HEADER: self._token})
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE):
            raise TransportError(response.text)
        if response.status_code >= httpx.codes.BAD_REQUEST:
            raise ProtocolError(f"server A: {response.text[:1000]}")
        return response

    def _take_lease(self) -> None:
        """Keep one answer of A open: as long as it is, this app is the one that plays."""
        knock(self._socket)
        lease = self._http.send(self._http.build_request("GET", "/v2/lease"), stream=True)
        if lease.status_code != httpx.codes.OK:
            lease.read()
            lease.close()
            raise ProtocolError(f"server A: {lease.text[:1000]}")
        self._lease, self._pieces = lease, lease.iter_raw()  # kept: the connection ends with what reads from it
        self._token = next(self._pieces).decode().strip()
