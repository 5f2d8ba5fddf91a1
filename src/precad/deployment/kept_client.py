"""A client as an app's process has it: its key, state and budget are in another, behind a Unix socket.

:mod:`precad.deployment.keeper` is the other side. The connection is opened before any training, and stays: training
that uses up this process's memory or files does not keep the client from answering.
"""

import http.client
import logging
import socket
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.deployment import task as tasks
from precad.deployment.client import RefusedError
from precad.deployment.task import Task
from precad.deployment.transport import TransportError
from precad.files import short_name
from precad.mpc.prg import Digest
from precad.protocol.digests import model_digest
from precad.protocol.messages import Sealed
from precad.tables import parse_json

LOG = logging.getLogger("precad.client")
INVITATION_HEADER = "precad-invitation"
"""An invitation, in base64."""
PATIENCE = 60.0
"""Seconds for which a keeper may be away, as when it is restarted."""
PAUSE, LONGEST_PAUSE = 1.0, 5.0
_ANSWER = 600.0
_REFUSED = 403


@dataclass(frozen=True)
class KeptRound:
    """A round that was joined."""

    invitation: bytes
    model: Digest
    reply: bytes | None


class KeptClient:
    """A client whose process listens at a Unix socket: an :class:`precad.deployment.replies.Answering`.

    Args:
        path: The socket.
        sleep: Waits between two attempts.

    Raises:
        TransportError: Nobody listens there, or this user may not reach it.
    """

    def __init__(self, path: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._path, self._sleep = path, sleep
        self._connection = _Connection(path)
        self._about: dict[str, Any] = parse_json(self._ask("GET", "client")[1])
        self.name: str = self._about["name"]

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    @cached_property
    def task(self) -> Task:
        """The client's own copy of the task."""
        return tasks.from_json(parse_json(self._about["task"]))

    def introduce(self, ask: bytes, node: int) -> bytes:
        """The proof that a node of Flower is this client's."""
        return self._ask("POST", "introduction", ask + node.to_bytes(8, "little"))[1]

    def hear(self, message: bytes) -> str:
        """The verdict on a submission, if both servers signed it."""
        return self._ask("POST", "told", message)[1].decode()

    def join(self, invitation: bytes, model: NDArray[np.float64]) -> KeptRound:
        """Have an invitation and the model that came with it checked, before any training."""
        try:
            digest = model_digest(model)
        except ValueError as error:
            raise RefusedError(f"what came is no model: {error}") from None
        status, reply = self._of_round(KeptRound(invitation, digest, None), "join")
        return KeptRound(invitation, digest, reply if status == http.client.OK else None)

    def seal_zeros(self, joined: KeptRound) -> None:
        """Have zeros sealed, and thrown away: the keeper has its own to fall back on."""
        self._of_round(joined, "zeros")

    def answer(self, joined: KeptRound, update: NDArray[np.floating], zeros: Sealed | None = None) -> bytes:
        """The reply for server A. An update that is no vector of the model's length is replaced by zeros."""
        del zeros
        if joined.reply is not None:
            return joined.reply
        try:
            body = np.ascontiguousarray(update, "<f8").tobytes()
        except Exception:
            LOG.exception("an update of zeros is sent in place of one that is no vector of numbers")
            body = b""
        if len(body) != 8 * self.task.bounds.dim:
            LOG.error("an update of zeros is sent in place of one of %d bytes", len(body))
            body = b""
        return self._of_round(joined, "answer", body)[1]

    def participations(self) -> int:
        """In how many rounds this client had sent when this object was made."""
        return int(self._about["participations"])

    def rehearsed(self) -> float | None:
        """The seconds that a rehearsal took; None before there was one."""
        seconds: float | None = self._about["rehearsed"]
        return seconds

    def note_rehearsal(self, seconds: float) -> None:
        """Keep what a rehearsal took."""
        self._about["rehearsed"] = seconds
        self._ask("POST", f"rehearsal?milliseconds={max(1, int(1000 * seconds))}")

    def _of_round(self, joined: KeptRound, what: str, body: bytes = b"") -> tuple[int, bytes]:
        headers = {INVITATION_HEADER: b64encode(joined.invitation).decode()}
        return self._ask("POST", f"{what}?model={joined.model.hex()}", body, headers)

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Ask until the keeper answers: the same bytes each time, so that a repetition does no harm."""
        pause, end = PAUSE, time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.request(method, f"/v2/{path}", body, headers or {})
                response = self._connection.getresponse()
                return _checked(response.status, response.read())
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                pause = self._wait(error, pause, end - time.monotonic())

    def _wait(self, error: Exception, pause: float, left: float) -> float:
        """Say why, and wait; how long to wait the next time."""
        words = f"the process that keeps this client's key does not answer at {self._path}: {error!r}"
        if left < pause or isinstance(error, PermissionError):
            raise TransportError(
                f"{words}; does `precad client --flower` run, and may this user reach its socket?"
            ) from None
        LOG.warning("%s; another attempt in %g s, and so on for %.0f s", words, pause, left)
        self._sleep(pause)
        return min(LONGEST_PAUSE, 2 * pause)


def _checked(status: int, answer: bytes) -> tuple[int, bytes]:
    words = answer.decode(errors="replace")[:1000]
    if status == _REFUSED:
        raise RefusedError(words)
    if status >= http.client.BAD_REQUEST:
        raise TransportError(f"the keeper of this client's key: {words}")
    return status, answer


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("keeper", timeout=_ANSWER)
        self._path = path

    def connect(self) -> None:
        """Open it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with short_name(self._path) as name:
            self.sock.connect(name)
