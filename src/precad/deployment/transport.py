"""How A reaches B: one exchange is A's message and B's answer. A retry sends the same bytes and gets the same bytes."""

from enum import Enum
from typing import Protocol

from precad.deployment import sealing
from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.protocol import submission


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


class TransportError(PrecadError):
    """B was not reached, or its answer was lost: the exchange may be tried again."""


class Transport(Protocol):
    """A's way to B."""

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """Send a message, return the answer. B's refusal is a ``ProtocolError`` with B's words."""
        ...
