"""How an app waits for its nodes: each reply goes to server A as it comes, and the wait ends when A's round does.

Flower's own wait hands over all replies together, at the end: a node that is lost in the middle would keep those of
the others from A until the app's timeout, without a word.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from precad.flower.wire import LOG

POLL_SECONDS = 0.5
NEWS_SECONDS = 15.0
"""Between two lines of the log about the same wait."""


class CollectingGrid(Grid):
    """A grid whose replies are handed over one by one.

    Args:
        grid: Flower's own.
        take: Gets each reply as it comes.
        is_over: Whether nobody waits for replies any more.
    """

    def __init__(self, grid: Grid, take: Callable[[Message], None], is_over: Callable[[], bool]) -> None:
        self._grid, self._take, self._is_over = grid, take, is_over

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send, and wait until all have replied, the round is over, or the time is."""
        waiting = set(self._grid.push_messages(messages))
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        replies, said = list[Message](), time.monotonic()
        while waiting:
            for reply in self._grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                self._take(reply)
                replies.append(reply)
            left = end - time.monotonic()
            if not waiting or left <= 0:
                break
            if self._is_over():
                LOG.warning("server A waits no longer: %d replies did not come", len(waiting))
                break
            if time.monotonic() - said > NEWS_SECONDS:
                said = time.monotonic()
                LOG.info("waiting for %d replies, %.0f s at most, or until server A's round ends", len(waiting), left)
            time.sleep(min(left, POLL_SECONDS))
        return replies

    def set_run(self, run: Any) -> None:
        """As Flower's own."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """As Flower's own."""
        return self._grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """As Flower's own."""
        return self._grid.create_message(*arguments, **named)

    def get_node_ids(self) -> Iterable[int]:
        """As Flower's own."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """As Flower's own."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As Flower's own."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As Flower's own."""
        return self._grid.pull_messages(message_ids)
