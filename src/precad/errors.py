"""The errors of precad.

::

    ValueError            a caller's mistake: a value outside its stated range
    PrecadError
    ├── ProtocolError     a server's breach: bytes or steps that the protocol does not allow
    └── UnusableError     a model, a loss or data that cannot be trained with; a ValueError too

A bad client is not an error: its submission is :class:`Rejected`, and the round goes on. A message names what was
wrong, the value and the bound; it never holds a share, a seed or a record.
"""

import threading
from dataclasses import dataclass
from enum import Enum

_WORDS = 200


class PrecadError(Exception):
    """Base of the errors that precad defines."""

    exit_code = 2
    """Of a command that ends with it."""


class ProtocolError(PrecadError):
    """A peer sent something that the protocol does not allow."""


class UnusableError(PrecadError, ValueError):
    """A model, a loss or data that somebody brought, and that cannot be trained with: the message says why."""


def failure(error: BaseException) -> str:
    """What somebody's code raised for one record, in a line, whatever it is: an exception may fail to tell, too.

    Ctrl-C, which comes to the main thread alone, is no failure of a record, and is raised again.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
    try:
        first = (str(error).strip().splitlines() or [""])[0][:_WORDS]
    except BaseException:
        first = ""
    return f"{type(error).__name__}{': ' if first else ''}{first}"


class Reason(Enum):
    """Why a submission does not count. No reason depends on the data of a client that follows the protocol."""

    MALFORMED = "the bytes are not a submission of this task"
    NOT_SELECTED = "the client was not selected in this round"
    REPEATED = "the client has already submitted in this round"
    LATE = "the round is not open to submissions"
    SIGNATURE = "the header is not signed with the client's key in the roster"
    SEAL = "the part was not sealed to this server for this submission"
    FOREIGN = "the header is of another task, round, model or client"
    PART = "the part is not the one that the header names"
    COMMITMENT = "the part does not open its commitment"
    ONE_SIDED = "the other server does not have the same submission"
    INVALID = "the update is not within its bound, or its proof is false"


@dataclass(frozen=True)
class Rejected:
    """A submission that does not count."""

    reason: Reason
