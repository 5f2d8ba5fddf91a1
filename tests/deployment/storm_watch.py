"""What the logs of servers and native clients say while a storm lasts, and whether they ever fall silent."""

import re
import time
from pathlib import Path

QUIET = 45.0
"""Seconds without a line, after which somebody must have said how long the wait is."""
SLACK = 15.0
"""Seconds by which a wait may be longer than its line says, on a busy machine."""
OPENED = re.compile(r"round (\d+) is opened")
ANNOUNCED = re.compile(r"(?:in|at most) ([\d.]+) s(?:econds)?\b")
"""How long a line says that nothing will happen."""
STARTED = re.compile(r'"started"|waits for rounds of')
"""The first words of a process, which does not know what the one before it waited for."""
FULL = re.compile(r"disk is full|No space left")


class Watch:
    """Reads the logs as they grow."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._paths = {name: folder / f"{name}.log" for name in names}
        self._read = dict.fromkeys(names, 0)
        self._until = dict.fromkeys(names, 0.0)
        self._last, self._words = time.time(), ""
        self._longest = 0.0
        self.opened: list[int] = []
        """The rounds that A says are opened."""
        self.plays = False
        """Whether an app plays at A."""
        self.full = 0
        """Lines about a full disk."""
        self.silences: list[str] = []
        """Where the logs fell silent."""

    def look(self) -> None:
        """Read what is new. A silence is written down once, when it is too long."""
        for name, path in self._paths.items():
            if path.exists() and path.stat().st_size > self._read[name]:
                self._take(name, path)
        quiet = time.time() - self._last
        self._longest = max(self._longest, quiet)
        if quiet > QUIET and time.time() > max(self._until.values()) + SLACK and not self._words.startswith("silent"):
            self._words = f"silent for {quiet:.0f} s after: {self._words}"
            self.silences.append(self._words)

    @property
    def longest(self) -> float:
        """Of all times without a line, announced or not, in seconds."""
        return self._longest

    def _take(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read[name])
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read[name] += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            self._last, self._words = max(self._last, path.stat().st_mtime), f"{name}: {line}"
            self.full += bool(FULL.search(line))
            if STARTED.search(line):
                self._until[name] = 0.0
            if said := ANNOUNCED.search(line):
                self._until[name] = max(self._until[name], self._last + float(said[1]))
            if name == "server-a":
                self._of_a(line)

    def _of_a(self, line: str) -> None:
        if found := OPENED.search(line):
            self.opened.append(int(found[1]))
        if '"an app plays"' in line:
            self.plays = True
        elif '"the app has gone"' in line or '"started"' in line:
            self.plays = False
