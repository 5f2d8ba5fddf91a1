"""How A reaches B: one exchange is A's message and B's answer. A retry sends the same bytes and gets the same bytes."""

import socket
from enum import Enum
from pathlib import Path
from typing import Protocol

from precad.deployment import sealing
from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.files import short_name
from precad.protocol import submission

KNOCK = 10.0
"""Seconds, for a process that is there to let somebody in."""


class Exchange(Enum):
    """The exchanges of a round, in order."""

    BEGIN = "begin"
    SUBMISSIONS = "submissions"
    CLOSE = "close"
    NONCE = "nonce"
    CHECKS = "checks"
    TALLY = "tally"
    SHARE = "share"
    RECEIPT = "receipt"


def limit(task: Task, what: Exchange) -> int:
    """The most bytes that either server's message in an exchange can have."""
    clients, check = len(task.roster), 8 * sum(submission.check_sizes(task.bounds).values())
    sizes = {
        Exchange.BEGIN: 72 * clients,
        Exchange.SUBMISSIONS: (sealing.OVERHEAD + 1024) * clients,
        Exchange.CLOSE: 32 * clients,
        Exchange.CHECKS: (check + 256) * clients,
        Exchange.SHARE: 8 * task.bounds.dim,
        Exchange.RECEIPT: 72 * clients,
    }
    return 4096 + sizes.get(what, 0)


def submission_limit(task: Task) -> int:
    """The most bytes that an honest client's reply has."""
    return 8 * sum(submission.part_a_sizes(task.bounds).values()) + 2 * sealing.OVERHEAD + 2048


class TransportError(PrecadError):
    """A server was not reached, or its answer was lost: the exchange may be tried again."""


def knock(path: Path) -> None:
    """Whether somebody listens at a Unix socket and lets this user in; if not, a :class:`TransportError`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.settimeout(KNOCK)
        try:
            with short_name(path) as name:
                attempt.connect(name)
        except OSError as error:
            raise TransportError(
                f"nobody answers at {path} ({error.strerror or error}): does `precad server` run, and may this user "
                "reach its socket?"
            ) from None


class Transport(Protocol):
    """A's way to B."""

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """Send a message, return the answer. B's refusal is a ``ProtocolError`` with B's words."""
        ...
