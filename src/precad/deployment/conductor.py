"""Server A at work: it begins, collects, closes and opens rounds, for as long as the task has any (PROTOCOL §2).

One thread, :meth:`Conductor.run`, drives the rounds; the doors, of native clients and of an app, call everything else.
All access to the :class:`Leader` goes through one lock. Nothing here need survive a crash: what counts is in the store.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.deployment import receipts
from precad.deployment.attendance import App, Attendance, OpenRound, Patience
from precad.deployment.disk import DiskError
from precad.deployment.leader import Leader
from precad.deployment.server import Server
from precad.deployment.store import Status
from precad.deployment.transport import TransportError
from precad.errors import PrecadError, ProtocolError, Reason, Rejected
from precad.protocol.messages import Header, Sealed, decode

LOG = logging.getLogger("precad.server")
LONGEST_PAUSE = 60.0
"""Seconds between two attempts."""
NEWS = 60.0
"""Seconds between two lines of the log about the same wait."""
_LOOK = 0.5
"""Seconds after which a submission that waits for its turn looks whether its round still collects."""
T = TypeVar("T")


class Outcome(Enum):
    """What became of a round."""

    OPENED = receipts.OPENED
    ABANDONED = receipts.ABANDONED


class _EndError(Exception):
    """The thread is to stop, or the round to be given up."""


class Conductor:
    """A's rounds, for the doors.

    Args:
        leader: Server A, on its store.
        patience: How long it waits.
        write_log: Brings the file of the audit log up to date; it is called after each round.
    """

    def __init__(self, leader: Leader, patience: Patience, write_log: Callable[[], None] = lambda: None) -> None:
        self.task, self._leader, self._write_log = leader.task, leader, write_log
        self.failing: str | None = None
        """Why the rounds do not go on, in words; for the operator."""
        self._lock = leader.lock
        self._changed = threading.Condition()
        self._attendance = Attendance(leader.task, patience)
        self._stopping = False
        self._wish: _Wish | None = None

    def open_round(self, after: int, seconds: float) -> OpenRound | None:
        """The round that collects, if its number is above ``after``; waits for one. None: not yet."""

        def found() -> OpenRound | None:
            opened = self._attendance.open
            return opened if opened is not None and opened.number > after else None

        with self._changed:
            self._changed.wait_for(lambda: found() or self._stopping, seconds)
            return found()

    def told(self, client: str) -> bytes | None:
        """What became of a client's last submission, for that client alone."""
        return self._leader.told(client)

    def model(self) -> NDArray[np.float64]:
        """The current model."""
        return self._leader.model()

    def seen(self, client: str) -> None:
        """A client of the roster is there."""
        with self._changed:
            self._attendance.see(client)
            self._changed.notify_all()

    def joined(self, client: str, number: int) -> None:
        """A client took its invitation: the round waits for it."""
        with self._changed:
            self._attendance.join(client, number)

    def submit(self, client: str | None, reply: bytes) -> Rejected | None:
        """A reply, of the client that the door knows it to be from; None: of whoever its header names and signed it."""
        opened, header = self._attendance.open, _header(reply)
        if opened is None or (header is not None and header.round != opened.number):
            return Rejected(Reason.LATE)
        if client is not None and header is not None and header.client != client:
            return Rejected(Reason.FOREIGN)
        while not self._lock.acquire(timeout=_LOOK):
            if self._attendance.open is not opened:  # it is being closed with B, which may take long
                return Rejected(Reason.LATE)
        try:
            rejected = self._leader.submit(reply)
        finally:
            self._lock.release()
        if rejected is None and header is not None:
            with self._changed:
                self._attendance.answer(header.client, opened.number)
                self._changed.notify_all()
        return rejected

    def outcome(self, number: int, seconds: float) -> Outcome | None:
        """What became of a round; waits for it. None: not yet."""

        def found() -> Outcome | None:
            line = self._leader.store.line_of(number)
            return None if line is None else Outcome(receipts.parse(line).events.kind)

        with self._changed:
            self._changed.wait_for(lambda: found() or self._stopping, seconds)
        return found()

    def is_over(self) -> bool:
        """Whether all rounds of the task were opened."""
        store = self._leader.store
        row = store.last_round()
        return row is not None and row.status is Status.SETTLED and store.opened_rounds() >= self.task.training.rounds

    def is_stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopping

    def attach(self) -> None:
        """An app has come: its clients are counted on."""
        with self._changed:
            self._attendance.app = App(attached=True)

    def detach(self) -> None:
        """The app has gone: nothing waits for it."""
        with self._changed:
            self._attendance.app = App()
            self._changed.notify_all()

    def wanted(self, *, yes: bool = True) -> None:
        """The app is ready for a round, or has one."""
        with self._changed:
            self._attendance.app.waits = yes
            self._changed.notify_all()

    def no_more(self, number: int) -> None:
        """The app has no more replies in a round."""
        with self._changed:
            self._attendance.app.ended = number
            self._changed.notify_all()

    def abandon(self, seconds: float, wanted: int | None = None) -> str:
        """Give up the current round, if it is the one that is wanted; what was done, in a sentence.

        Raises:
            ProtocolError: The protocol does not allow it, and the words say why.
            StoreError: The disk does not allow it.
        """
        with self._changed:
            if self._wish is not None and self._wish.wanted != wanted:
                raise ProtocolError("another round is just being given up: look at the status, and try again")
            wish = self._wish = self._wish or _Wish(wanted)
            self._changed.notify_all()
            self._changed.wait_for(lambda: wish.answer is not None or self._stopping, seconds)
        if wish.answer is None:
            return "server B is being asked: the round is given up when it has answered, if that is still possible"
        if isinstance(wish.answer, PrecadError):
            raise wish.answer
        return given_up(wish.answer)

    @property
    def server(self) -> Server:
        """Server A, for the operator's figures."""
        return self._leader

    def stop(self) -> None:
        """Let :meth:`run` end at the next wait; the round goes on when A runs again."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def run(self) -> None:
        """Play the rounds until :meth:`stop`."""
        few, said = 0, False
        while not self._stopping:
            try:
                self._grant()
                if self.is_over():
                    if not said:
                        LOG.info("all rounds of the task were opened: this server may be stopped")
                    said = True
                    self._pause(NEWS)
                    continue
                few = few + 1 if self._round() is Outcome.ABANDONED else 0
                if few:
                    pause = _growing(few)
                    LOG.warning("%d rounds in a row were given up: the next begins in %.0f s", few, pause)
                    self._pause(pause)
            except _EndError:
                continue
            except Exception as error:
                with suppress(_EndError):
                    self._fail("play a round", 1, error)

    def _round(self) -> Outcome | None:
        """One round, or what is left of the last one; what became of it."""
        row = self._insist("look into the store", self._leader.last)
        if row is None or row.status in (Status.ABANDONED, Status.SETTLED):
            self._await_clients()
        if row is None or row.status in (Status.ABANDONED, Status.SETTLED, Status.OPEN):
            number = self._insist("begin", self._leader.start_round)
            self._collect(number, resumed=row is not None and row.status is Status.OPEN)
        else:
            number = row.number
        given_up = self._insist("finish", self._leader.end_round)
        if given_up is None:
            LOG.info("round %d is opened", number)
        else:
            LOG.warning("round %d is given up, and the model stays as it is: %s", number, given_up)
        self._after()
        return self.outcome(number, 0)

    def _await_clients(self) -> None:
        """Wait until enough clients were seen lately, or the app is ready."""
        attendance = self._attendance
        while (left := attendance.pause) > 0:
            LOG.info("who takes part is hidden, so rounds begin by the clock: the next in %.0f s", left)
            self._pause(left)
        while not self._holds(attendance.may_begin):
            if attendance.app.attached:
                LOG.info("no round begins: the app has not asked for one")
            else:
                there = attendance.there(self.task.members)
                LOG.info("no round begins: %d native clients are there, %d are needed", there, attendance.needed)
            self._pause(NEWS, attendance.may_begin)

    def _collect(self, number: int, *, resumed: bool) -> None:
        """Let submissions in until the round may close."""
        leader, attendance = self._leader, self._attendance
        with self._lock:
            opened = OpenRound(number, leader.invitation(), leader.selected(), leader.model())
            answered = leader.store.headers(number)
        with self._changed:
            attendance.begin(opened, answered, resumed=resumed)
            self._changed.notify_all()
        try:
            while not self._holds(attendance.may_close):
                left, joining = attendance.left, attendance.joining
                LOG.info("round %d collects: %s, at most %.0f s more", number, attendance.progress(), left)
                self._pause(min(left, NEWS, joining if joining > 0 else NEWS), attendance.may_close)
        finally:
            with self._changed:
                silent = attendance.end()
            if silent:
                LOG.warning("round %d: %d clients took their invitations and did not answer", number, silent)

    def _holds(self, question: Callable[[], bool]) -> bool:
        with self._changed:
            return question()

    def _insist(self, step: str, act: Callable[[], T]) -> T:
        """Try a step with B until it succeeds: a service does not give up by itself, and says what it waits for."""
        for attempt in count(1):
            try:
                with self._lock:
                    result = act()
            except Exception as error:
                self._fail(step, attempt, error)
            else:
                self.failing = None
                return result
        raise AssertionError("not reached")

    def _fail(self, step: str, attempt: int, error: Exception) -> None:
        away = isinstance(error, TransportError)
        pause = _growing(attempt) if away or isinstance(error, DiskError | OSError) else LONGEST_PAUSE
        words = str(error) if isinstance(error, ProtocolError | TransportError) else f"{type(error).__name__}: {error}"
        self.failing = words
        LOG.log(
            logging.WARNING if away else logging.ERROR,
            "step %s with server %s, attempt %d: %s; the next attempt is in %.0f s, and so on without end: "
            "`precad abandon` gives the round up, as long as its noisy share has not left",
            step,
            self.task.server_b.name,
            attempt,
            words,
            pause,
        )
        self._pause(pause)

    def _pause(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait, unless somebody stops the thread or gives up the round."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._wish is not None or until(), seconds)
            if self._stopping or self._wish is not None:
                raise _EndError

    def _grant(self) -> None:
        """Give up the round, if somebody wishes it and the protocol allows it."""
        with self._changed:
            wish, self._wish = self._wish, None
        if wish is None:
            return
        answer: int | PrecadError
        try:
            with self._lock:
                answer = self._leader.abandon_round(wish.wanted)
            LOG.warning("round %d is given up, as its operator wishes", answer)
            self._after()
        except PrecadError as error:
            answer = error
        with self._changed:
            wish.answer = answer
            self._changed.notify_all()

    def _after(self) -> None:
        """After a round: its line in the log, and news for those who wait."""
        try:
            self._write_log()
        except Exception as error:
            LOG.error("the file of the audit log was not written, and will be after the next round: %s", error)
        with self._changed:
            self._changed.notify_all()


@dataclass
class _Wish:
    """That the current round be given up."""

    wanted: int | None
    """Which it must be."""
    answer: int | PrecadError | None = None


def given_up(number: int) -> str:
    """What became of a round that was given up."""
    return f"round {number} is given up, and its submissions are destroyed; the model stays as it is"


def _growing(attempt: int) -> float:
    return min(LONGEST_PAUSE, 2.0 ** min(attempt, 10))


def _header(reply: bytes) -> Header | None:
    """The header of a reply, which nobody has checked yet; None if there is none."""
    try:
        return decode(decode(reply, Sealed).header, Header)
    except ProtocolError:
        return None
