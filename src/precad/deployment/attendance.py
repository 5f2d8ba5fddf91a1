"""Who is there, who is waited for, and whether a round may close (PROTOCOL §2).

Nothing here need survive a crash, and nothing is locked: the conductor calls it inside its own lock.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precad.deployment.task import Participants, Task

LONGEST_REST = 10
"""2^10 rounds are the most in which a silent client is not waited for."""
LATELY = 90.0
"""Seconds for which a client that was seen counts as being there."""


@dataclass(frozen=True)
class Patience:
    """How long A waits, in seconds."""

    round: float = 3600.0
    """For the replies of a round."""
    join: float = 30.0
    """Until clients have taken their invitations."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < threading.TIMEOUT_MAX:
                raise ValueError(f"{name}_seconds must be above 0 and finite, got {value}")


@dataclass(frozen=True)
class OpenRound:
    """A round that collects."""

    number: int
    invitation: bytes
    """The same for all."""
    selected: frozenset[str]
    """For A's eyes only."""
    model: NDArray[np.float64]


class Attendance:
    """The clients and the app of server A's rounds."""

    def __init__(self, task: Task, patience: Patience) -> None:
        reply_seconds = task.training.reply_seconds
        if not patience.round > reply_seconds:
            raise ValueError(f"round_seconds is {patience.round:g}: clients reply after {reply_seconds:g} seconds")
        self._task, self._patience = task, patience
        self.open: OpenRound | None = None
        """The round that collects."""
        self.app = App()
        self._is_hidden = task.training.participants is Participants.HIDDEN
        self._begun, self._earliest = 0.0, 0.0
        self._seen: dict[str, float] = {}
        self._awaited: set[str] = set()
        self._answered: set[str] = set()
        self._in_vain: dict[str, int] = {}
        """In how many rounds in a row a client was waited for in vain."""
        self._not_awaited: dict[str, int] = {}
        """The last round in which it is not waited for therefore."""

    @property
    def needed(self) -> int:
        """How many clients must be there before a round begins."""
        return max(1, self._task.training.minimum)

    @property
    def pause(self) -> float:
        """The seconds until the next round may begin: where participants are hidden, rounds begin by the clock."""
        return self._earliest - time.monotonic()

    @property
    def left(self) -> float:
        """The seconds for which the round may still collect."""
        return self._patience.round - self._elapsed

    @property
    def joining(self) -> float:
        """The seconds for which clients may still take their invitations."""
        return self._patience.join - self._elapsed

    def begin(self, opened: OpenRound, answered: Iterable[str], *, resumed: bool) -> None:
        """A round collects. After a crash nobody knows who has joined: all are waited for that can have."""
        members = self._task.members
        native = {name for name in opened.selected if members[name].identity.certificate}
        self._awaited, self._answered = native if resumed else set(), set(answered)
        self.open, self._begun = opened, time.monotonic()
        if self._is_hidden:
            self._earliest = self._begun + self._patience.round + self._patience.join

    def end(self) -> int:
        """The round collects no more; how many were waited for in vain, as long as a round may take.

        The next rounds do not wait for them: one after the first time, two after the second in a row, then four, and so
        on. Their replies count all the same if they come. So a client that never answers holds up few rounds.
        """
        opened, self.open = self.open, None
        if opened is None or self.left > 0:
            return 0
        silent = self._awaited - self._answered
        for client in silent:
            times = self._in_vain.get(client, 0)
            self._in_vain[client] = times + 1
            self._not_awaited[client] = opened.number + 2 ** min(times, LONGEST_REST)
        return len(silent)

    def see(self, client: str) -> None:
        """A client of the roster is there."""
        if client in self._task.members:
            self._seen[client] = time.monotonic()

    def join(self, client: str, number: int) -> None:
        """A client took its invitation: the round waits for it, unless it has made others wait in vain."""
        if self.open is None or self.open.number != number or client not in self.open.selected:
            return
        if self._not_awaited.get(client, -1) < number:
            self._awaited.add(client)

    def answer(self, client: str, number: int) -> None:
        """A client's reply was kept; its round may be over by now."""
        if self.open is not None and self.open.number == number:
            self._answered.add(client)
            self._in_vain.pop(client, None)
            self._not_awaited.pop(client, None)

    def there(self, clients: Iterable[str]) -> int:
        """How many of these clients were seen lately."""
        now = time.monotonic()
        return sum(now - self._seen.get(client, -LATELY) < LATELY for client in clients)

    def may_begin(self) -> bool:
        """Whether enough clients were seen lately, or the app is ready."""
        return self.app.waits or self.there(self._task.members) >= self.needed

    def may_close(self) -> bool:
        """Whether all have answered who will; how long that takes may not depend on a selection that is hidden."""
        if self.open is None or self.left <= 0 or self._is_hidden:
            return self.left <= 0
        minimum, missing = self._task.training.minimum, self.open.selected - self._answered
        if not missing or len(self.open.selected) < minimum:
            return True
        if self._awaited & missing or len(self._answered) < minimum:
            return False
        if self.app.attached and self.app.ended < self.open.number:
            return False
        return self.joining <= 0 or (self.app.attached and not self.there(missing))

    def progress(self) -> str:
        """How far the round has come, for the log."""
        if self._is_hidden or self.open is None:
            return "who takes part is hidden"
        return f"{len(self._answered)} of {len(self.open.selected)} selected clients have answered"

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begun


@dataclass
class App:
    """The app that plays through the socket."""

    attached: bool = False
    waits: bool = False
    ended: int = -1
    """The last round in which it has no more replies."""
