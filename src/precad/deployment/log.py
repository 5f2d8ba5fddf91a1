"""The log of a process that serves: one JSON object on each line. It holds no name of a client and no secret."""

import asyncio
import json
import logging
import sys

LOG = logging.getLogger("precad.server")
CLIENT = "precad.client"
"""Of a client, whose log is its own: it says what went wrong in the operator's code. A server's holds no value."""
MOST_LINES = 10
"""A second, about those that are turned away."""


def log(event: str, level: int = logging.INFO, **values: object) -> None:
    """One line of the log."""
    LOG.log(level, event, extra={"values": values})


class FewLines:
    """At most :data:`MOST_LINES` lines a second of one kind, then one that counts the others. For one event loop."""

    def __init__(self, event: str) -> None:
        self._event, self._count = event, 0

    def add(self, **values: object) -> None:
        """A warning, or one more in the count."""
        if not self._count:
            asyncio.get_running_loop().call_later(1.0, self.flush)
        self._count += 1
        if self._count <= MOST_LINES:
            log(self._event, logging.WARNING, **values)

    def flush(self) -> None:
        """Say how many were left out."""
        more, self._count = self._count - MOST_LINES, 0
        if more > 0:
            log(self._event, logging.WARNING, words=f"{more} more")


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        head = {"time": self.formatTime(record), "level": record.levelname.lower(), "event": record.getMessage()}
        values = getattr(record, "values", {})
        if record.exc_info and record.name == CLIENT:
            values = {**values, "why": self.formatException(record.exc_info)}
        return json.dumps({**head, **values})


def log_as_json() -> None:
    """Write all lines of this program to stderr as JSON, and the warnings of its libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("precad", logging.INFO), ("uvicorn.error", logging.WARNING), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
