"""A connection to one of our doors after its TLS handshake, and the time that its requests may take."""

import asyncio

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from precad.deployment.tls import NOT_OF_THE_TASK
from precad.deployment.visitors import Visitor, Visitors

FAREWELL = 5.0
"""Seconds, after the last answer before a stop."""


class Connection(H11Protocol):
    """A connection after its handshake, with the time that each of its requests may take to arrive.

    A stop of the server cuts it off: at once if it is idle, else some seconds after its answer has begun to leave. TLS
    by itself would wait half a minute for the other side's farewell. If an answer is lost so, A asks for it again.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        visitors: Visitors,
        visitor: Visitor,
        pinned: frozenset[bytes] | None,
    ) -> None:
        super().__init__(config, state, {"certificate": b""})
        self._visitors, self._visitor, self._pinned = visitors, visitor, pinned
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Check who is there."""
        super().connection_made(transport)
        self._visitor.cut, self._visitor.is_busy = transport.abort, self._has_whole_request
        shown = _certificate(transport)
        if self._pinned is not None:
            if shown not in self._pinned:
                self._cut(NOT_OF_THE_TASK)
                return
            self.app_state = {"certificate": shown}
            if not self._visitors.introduce(self._visitor, shown):
                transport.abort()
                return
        self._wait(self._visitors.bounds.head, "no whole request")

    def data_received(self, data: bytes) -> None:
        """A part of a request."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """The next request has its time again."""
        super().on_response_complete()
        if not self._is_answering() and not self.flow.write_paused:
            self._wait_for_next()

    def pause_writing(self) -> None:
        """The other side does not take its answer."""
        super().pause_writing()
        self._wait(self._visitors.bounds.taken, "its answer was not taken")

    def resume_writing(self) -> None:
        """It takes it again."""
        super().resume_writing()
        if self._is_answering():
            self._watch_request()
        else:
            self._wait_for_next()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._visitors.leave(self._visitor)

    def shutdown(self) -> None:
        """The server stops."""
        if self._has_whole_request():
            super().shutdown()
            self._abort_with_answer()
        else:
            self.transport.abort()

    def _watch_request(self) -> None:
        """After its head a request may take its time, but not pause; once it is whole, the time is ours."""
        if self._is_answering() and not self.flow.write_paused:
            self._stop_waiting()
            if self.cycle.more_body:
                self._wait(self._visitors.bounds.head, "a request paused")

    def _wait_for_next(self) -> None:
        """A little longer than uvicorn, which ends a silent connection, but not one that sends a head byte by byte."""
        self._wait(self._visitors.bounds.idle + 1, "no whole request")

    def _wait(self, seconds: float, words: str) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self._end_wait, seconds, words)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end_wait(self, seconds: float, words: str) -> None:
        if self.flow.read_paused and not self.flow.write_paused:  # we are the slow ones
            self._wait(seconds, words)
        else:
            self._cut(f"{words} for {seconds:g} s")

    def _cut(self, words: str) -> None:
        self._visitors.note(self._visitor, words)
        self.transport.abort()

    def _abort_with_answer(self) -> None:
        if self._is_answering() and not self.cycle.response_started:
            self.loop.call_later(0.1, self._abort_with_answer)
        else:
            self.loop.call_later(FAREWELL, self.transport.abort)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _has_whole_request(self) -> bool:
        return self._is_answering() and not self.cycle.more_body and not self.flow.write_paused


def _certificate(transport: asyncio.Transport) -> bytes:
    shown = transport.get_extra_info("ssl_object")
    return b"" if shown is None else shown.getpeercert(binary_form=True) or b""
