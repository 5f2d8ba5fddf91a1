"""A client that runs its own operator's code alone: it asks A for rounds, trains, and answers (PROTOCOL §9, §13).

It goes on from its file, whatever was killed and whenever: what was answered is sent again, byte for byte. Whatever A
sends is checked by :class:`precad.deployment.client.Client`, and what is not in order is a line of the log. No wait is
silent: each names the peer, the step and the time left.
"""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.deployment import receipts
from precad.deployment.client import Client, ForGoodError, RefusedError, SpentOutError
from precad.deployment.client_config import ClientConfig
from precad.deployment.disk import DiskError, exclusive
from precad.deployment.replies import look_seconds, reply_to
from precad.deployment.task import Task
from precad.deployment.transport import TransportError
from precad.deployment.way_to_a import POLL, TaskOverError, WayToA
from precad.errors import ProtocolError
from precad.protocol.messages import Invitation, Invited, Told, decode

LOG = logging.getLogger("precad.client")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between attempts: each is twice as long as the one before."""
_MOST_ROUND = 10**18 - 1
"""That a question can name."""
_REMIND = 600.0
"""Seconds after which the log says again that nothing is new."""

Update = Callable[[NDArray[np.float64], int, float], NDArray[np.floating]]
"""From the model, the round's number, and the seconds in which to look for records that do not count, to an update."""
T = TypeVar("T")


def run(config: ClientConfig, task: Task, train: Update) -> str:
    """Take part until the task is over for this client.

    Args:
        config: The client's settings.
        task: Its own copy of the task.
        train: Its training.

    Returns:
        Why it ended: the task is over, or the client has taken part as often as it may.

    Raises:
        RefusedError: A refuses this client for good, or the budget of its data is spent.
        StoreError: Its state, or the ledger of its data, is not what it was; or another process runs this client.
        ValueError: The settings, the keys and the task do not go together.
    """
    if not task.members[config.name].identity.certificate:
        raise ValueError(f"the roster has no certificate of {config.name}, which can take part through Flower alone")
    with (
        exclusive(config.store),
        closing(config.open_client(task)) as client,
        closing(WayToA(task, config)) as way,
    ):
        return NativeClient(config, client, way, train).run()


class NativeClient:
    """The loop.

    Args:
        config: The client's settings.
        client: The client, on its state.
        way: To server A.
        train: Its training.
        sleep: Waits between two attempts.
    """

    def __init__(
        self,
        config: ClientConfig,
        client: Client,
        way: WayToA,
        train: Update,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config, self._client, self._way, self._train, self._sleep = config, client, way, train, sleep
        self._done, self._heard = -1, client.last_heard()
        self._pause, self._said = FIRST_PAUSE, time.monotonic()

    def run(self) -> str:
        """Round after round; why it ended."""
        LOG.info("client %s waits for rounds of %s", self._client.name, self._way.peer)
        try:
            while not self._has_finished():
                self._step()
        except (TaskOverError, SpentOutError) as over:
            return str(over)
        return f"this client has taken part {self._client.participations()} times, which is its budget"

    def _has_finished(self) -> bool:
        """Whether this client has taken part as often as it may, and knows what became of its last submission."""
        spent = self._client.participations() >= self._client.task.training.participations
        return spent and self._heard >= self._client.last_sent()

    def _step(self) -> None:
        """One question. What is not in order is a line, and a longer pause each time: A does not keep us busy."""
        asked = time.monotonic()
        try:
            news = self._until_answered(
                "asking for the next round", lambda: self._way.next_round(self._done, self._heard)
            )
            if news is not None:
                self._take(news)
            elif time.monotonic() - asked < FIRST_PAUSE:
                raise ProtocolError("it says at once that nothing is new, where it should wait")
        except ForGoodError:
            raise
        except (RefusedError, ProtocolError) as error:
            self._pause = self._wait("not in order", error, self._pause)
        except (DiskError, OSError) as error:
            self._pause = self._wait("a file of this client cannot be written", error, self._pause)
        else:
            self._pause = FIRST_PAUSE
            self._remind()

    def _remind(self) -> None:
        if time.monotonic() - self._said > _REMIND:
            self._said = time.monotonic()
            LOG.info("%s has no new round; the question goes on, %g seconds at a time", self._way.peer, POLL)

    def _take(self, news: Invited) -> None:
        """A verdict, a round, or both. A verdict that is not in order does not keep a round away."""
        self._said = time.monotonic()
        refused = self._hear(news.told) if news.told else None
        if news.invitation:
            self._answer(news.invitation)
        receipts.write(self._config.audit_log, self._client.log())
        if refused is not None:
            raise refused
        if not (news.told or news.invitation):
            raise ProtocolError("news of nothing")

    def _hear(self, told: bytes) -> RefusedError | None:
        """Log a verdict; what is wrong with it, if something is. Either way A need not tell it again."""
        round_ = decode(told, Told).round
        if round_ <= self._heard:
            return RefusedError(f"a verdict on round {round_}, and that on round {self._heard} is known")
        self._heard = min(round_, _MOST_ROUND)
        try:
            LOG.info("round %d: the submission was found %s", round_, self._client.hear(told))
        except RefusedError as refused:
            return refused
        return None

    def _answer(self, invitation: bytes) -> None:
        invited = decode(invitation, Invitation)
        if invited.round <= self._done:
            raise RefusedError(f"an invitation to round {invited.round}, and round {self._done} was answered")
        number, client = invited.round, self._client
        step = f"fetching the model of round {number}"
        model = self._until_answered(step, lambda: self._way.model(invited.model))
        arrived = time.monotonic()
        look = look_seconds(client, rehearsal=False)
        LOG.info("round %d: invited; %s", number, _when(client.task.training.reply_seconds))
        reply = reply_to(
            client,
            invitation,
            model,
            lambda: self._train(model.copy(), number, look),
            rehearse=lambda: self._train(model.copy(), number, look_seconds(client, rehearsal=True)),
            arrived=arrived,
        )
        refused = self._until_answered(f"submitting in round {number}", lambda: self._way.submit(number, reply))
        self._done = number
        if refused:
            LOG.warning("round %d: %s does not count the submission: %s", number, self._way.peer, refused)
        else:
            LOG.info("round %d: %s has the submission", number, self._way.peer)

    def _until_answered(self, step: str, ask: Callable[[], T]) -> T:
        """Ask until A answers: the same bytes each time, so that a repetition does no harm."""
        pause = FIRST_PAUSE
        while True:
            try:
                return ask()
            except TransportError as error:
                pause = self._wait(step, error, pause)

    def _wait(self, step: str, error: Exception, pause: float) -> float:
        """Say why, and wait; how long to wait the next time."""
        LOG.warning(
            "%s, %s: %s; another attempt in %.3g seconds, and so on without an end", self._way.peer, step, error, pause
        )
        self._sleep(pause)
        return min(LONGEST_PAUSE, 2 * pause)


def _when(seconds: float) -> str:
    return f"the reply leaves in {seconds:g} seconds" if seconds else "the reply leaves when it is done"
