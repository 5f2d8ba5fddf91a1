"""A TCP line that has bad moments: it cuts connections in the middle, stalls, or takes no new ones."""

import asyncio
import threading
from contextlib import suppress
from enum import StrEnum

import numpy as np

CUT = 0.3
"""The probability that a piece is cut off, while a line cuts."""
LOOK = 0.05
"""Seconds between two looks whether a stalled line is good again."""


class Mood(StrEnum):
    """What a line does."""

    GOOD = "good"
    CUTTING = "cut"
    """Connections end in the middle of a message."""
    STALLED = "stall"
    """Nothing passes, and nothing is lost."""
    REFUSING = "refuse"
    """Every connection ends, and no new one is taken."""


class Line:
    """From a port of its own to another one, both on the loopback; a thread carries the bytes."""

    def __init__(self, target: int, seed: int) -> None:
        self._target, self._generator = target, np.random.default_rng(seed)
        self.mood = Mood.GOOD
        self._loop = asyncio.new_event_loop()
        self._ends: set[asyncio.StreamWriter] = set()
        self._listening = self._loop.run_until_complete(asyncio.start_server(self._carry, "127.0.0.1", 0))
        self.port: int = self._listening.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def turn(self, mood: Mood) -> None:
        """Change what the line does."""
        self.mood = mood
        if mood is Mood.REFUSING:
            self._loop.call_soon_threadsafe(self._drop)

    def close(self) -> None:
        """End all connections, and the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._listening.close()
        self._drop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _drop(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        try:
            if self.mood is Mood.REFUSING:
                return
            there, other = await asyncio.open_connection("127.0.0.1", self._target)
            self._ends.add(other)
            try:
                both = asyncio.create_task(self._pump(reader, other)), asyncio.create_task(self._pump(there, writer))
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)
            finally:
                self._ends.discard(other)
                other.transport.abort()
        except OSError:
            return
        finally:
            self._ends.discard(writer)
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(1 << 16):
                while self.mood is Mood.STALLED:
                    await asyncio.sleep(LOOK)
                if self.mood is Mood.CUTTING and self._generator.random() < CUT:
                    sink.write(piece[: len(piece) // 2])
                    return
                sink.write(piece)
                await sink.drain()
