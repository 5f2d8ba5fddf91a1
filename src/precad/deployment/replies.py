"""A reply that tells nothing but its submission: it comes whatever training does, when the task says (PROTOCOL §9).

Whether a client answers, and when, must not depend on its records: no noise covers either. So a client that was
invited in order always submits. Training that fails, or takes too long, makes an update of zeros, and the reason is for
the client's own log. The reply leaves at a fixed time after the invitation came, if the task names one.
"""

import contextvars
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.deployment.client import RefusedError
from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.protocol.messages import Sealed

LOG = logging.getLogger("precad.client")
MARGIN = 4
"""The reply time is at least this many rehearsals: one may come first in a round, and two serve as a margin."""
_OF_A_REHEARSAL = 4
"""The part of the longest rehearsal in which records may be looked at."""

Train = Callable[[], NDArray[np.floating]]


class HasReply(Protocol):
    """A round that a client has joined."""

    @property
    def reply(self) -> bytes | None:
        """What was answered in it before."""
        ...


J = TypeVar("J", bound=HasReply)


class Answering(Protocol[J]):
    """A client: in this process, a :class:`Client`; or in another, which keeps its key and its state."""

    @property
    def task(self) -> Task:
        """Its task."""
        ...

    @property
    def name(self) -> str:
        """Its name in the roster."""
        ...

    def join(self, invitation: bytes, model: NDArray[np.float64]) -> J:
        """See :meth:`Client.join`."""
        ...

    def seal_zeros(self, joined: J) -> Sealed | None:
        """A submission of zeros to fall back on; None where the other process has its own."""
        ...

    def answer(self, joined: J, update: NDArray[np.floating], zeros: Sealed | None) -> bytes:
        """See :meth:`Client.answer`."""
        ...

    def hear(self, message: bytes) -> str:
        """See :meth:`Client.hear`."""
        ...

    def introduce(self, ask: bytes, node: int) -> bytes:
        """See :meth:`Client.introduce`."""
        ...

    def participations(self) -> int:
        """In how many rounds it has sent."""
        ...

    def rehearsed(self) -> float | None:
        """The seconds that a rehearsal took."""
        ...

    def note_rehearsal(self, seconds: float) -> None:
        """Keep what a rehearsal took."""
        ...


def reply_to(
    client: Answering[J],
    invitation: bytes,
    model: NDArray[np.float64],
    train: Train,
    *,
    rehearse: Train | None = None,
    arrived: float | None = None,
) -> bytes:
    """Join a round, train, and answer: the same length, at the same time, whatever becomes of the training.

    ``train`` runs in a thread of its own. What it raises there, be it ``SystemExit`` or ``KeyboardInterrupt``, is a
    failure of the training; Ctrl-C reaches the thread that waits, and ends the program. What kills the process, as the
    kernel does when memory is short, cannot be caught: the client is then silent.

    Args:
        client: Who was invited.
        invitation: What server A sent.
        model: The model that came with it.
        train: Computes the update, any float vector: it is clipped to C.
        rehearse: What to time in its place before the first round, where training must not run twice.
        arrived: When the invitation came, by ``time.monotonic()``; now, if not given.

    Returns:
        The reply for server A. If the task has a reply time, this much time has passed since the invitation came.

    Raises:
        RefusedError: The invitation is not in order, the budget is spent, or the reply time is too short for this
            client; nothing was counted or sent.
    """
    begun = time.monotonic() if arrived is None else arrived
    joined = client.join(invitation, model)
    seconds = client.task.training.reply_seconds
    if joined.reply is not None:
        _wait_until(begun + seconds)
        return joined.reply
    zeros = client.seal_zeros(joined)  # before anything of the app's runs
    if seconds:
        _rehearse(client, joined, rehearse or train)
    try:
        reply = client.answer(joined, _update(client, train, begun), zeros)
    except Exception:
        _wait_until(begun + seconds)
        raise
    _wait_until(begun + seconds)
    return reply


def look_seconds(client: Answering[Any], *, rehearsal: bool) -> float:
    """How long an update by record may look, before a client's first round, for records that do not count."""
    seconds = client.task.training.reply_seconds
    if rehearsal:
        return seconds / MARGIN / _OF_A_REHEARSAL
    return math.inf if client.participations() == 0 and not seconds else 0.0


def _update(client: Answering[Any], train: Train, begun: float) -> NDArray[np.floating]:
    """What training gives; zeros where it gives nothing in time."""
    seconds, limit = client.task.training.reply_seconds, None
    if seconds:
        limit = max(0.0, begun + seconds - (client.rehearsed() or 0.0) - time.monotonic())
    trained = _run(train, limit)
    return np.zeros(client.task.bounds.dim) if trained is None else trained


def _rehearse(client: Answering[J], joined: J, train: Train) -> None:
    """Measure once how long training and sealing take; refuse a reply time that leaves no margin."""
    if client.rehearsed() is not None:
        return
    seconds, begun = client.task.training.reply_seconds, time.monotonic()
    _run(train, seconds / MARGIN)
    client.seal_zeros(joined)
    took = time.monotonic() - begun
    if took * MARGIN > seconds:
        raise RefusedError(
            f"a rehearsal took {took:.3g} seconds or more: the task's reply time is {seconds:g} seconds, and must be "
            f"at least {MARGIN} times as long as a rehearsal"
        )
    client.note_rehearsal(took)


def _run(train: Train, limit: float | None) -> NDArray[np.floating] | None:
    """What training gives; None, with the reason in the log, if it fails or does not end within ``limit`` seconds."""
    given: list[NDArray[np.floating]] = []

    def work() -> None:
        try:
            given.append(train())
        except PrecadError as error:
            LOG.error("training failed, and its update is zeros: %s", error)
        except BaseException:
            LOG.exception("training failed, and its update is zeros")

    try:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="training", daemon=True)
        thread.start()
    except RuntimeError:
        LOG.exception("training could not begin, and its update is zeros")
        return None
    thread.join(limit)
    if thread.is_alive() and not given:
        LOG.error("training took more than %.3g seconds, and its update is zeros", limit)
    return given[0] if given else None


def _wait_until(due: float) -> None:
    while (left := due - time.monotonic()) > 0:
        time.sleep(left)
