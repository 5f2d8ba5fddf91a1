"""Kill any party at any step: the round completes, nothing is sent in two forms, counted twice or lost."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.consortium import Consortium, Crash
from tests.deployment.world import TRAINING, load, make

WORLD = make(replace(TRAINING, epoch_rounds=1), clients=("bank", "lab"))
WRITES = ("INSERT", "UPDATE", "DELETE", "COMMIT", "PRAGMA wal", "CREATE")
ROUNDS = 2


class Steps:
    """Counts every step that changes a disk or a wire, and stops the world at one of them."""

    def __init__(self, at: int = -1, *, for_good: bool = False) -> None:
        self.names: list[str] = []
        self._at, self._for_good = at, for_good
        self.over = False

    def step(self, party: str, what: str) -> None:
        if self.over:
            return
        self.names.append(f"{party}: {what}")
        if len(self.names) - 1 == self._at:
            if self._for_good:
                os._exit(9)
            raise Crash(party)

    def connection(self, path: Any, *, factory: Any = sqlite3.Connection, **options: Any) -> sqlite3.Connection:
        party, step = Path(str(path)).stem, self.step

        class Stepping(factory):  # type: ignore[misc] # whatever a program asks for
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if "synchronous" in sql:
                    sql = "PRAGMA synchronous = OFF"  # a killed process loses nothing that the system has
                if sql.startswith(WRITES):
                    step(party, f"before {sql[:40]}")
                cursor: sqlite3.Cursor = super().execute(sql, *parameters)
                if sql.startswith("COMMIT"):
                    step(party, "after COMMIT")
                return cursor

            def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                step(party, f"before {sql[:40]}")
                done: sqlite3.Cursor = super().executemany(sql, *parameters)
                return done

        found: sqlite3.Connection = real_connect(path, factory=Stepping, **options)
        return found


real_connect = sqlite3.connect


@contextmanager
def stepping(consortium: Consortium, steps: Steps) -> Iterator[None]:
    sqlite3.connect = steps.connection  # type: ignore[assignment]
    consortium.hook = steps.step
    try:
        yield
    finally:
        sqlite3.connect = real_connect
        steps.over = True
        consortium.hook = lambda _party, _what: None
        consortium.close()


def all_steps(folder: Path) -> list[str]:
    steps, consortium = Steps(), Consortium(folder, WORLD)
    play(consortium, steps)
    return steps.names


def play(consortium: Consortium, steps: Steps) -> None:
    with stepping(consortium, steps):
        consortium.rounds_until(ROUNDS)
    consortium.check()
    consortium.close()


STRIDE = 7
"""`make test` kills at every seventh step, `make test-long` at the others."""


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(1, STRIDE))])
def test_every_step(tmp_path: Path, first: int) -> None:
    """Each step of two rounds, and of opening the files: the party that takes it dies there."""
    names = all_steps(tmp_path / "count")
    assert len(names) > 150
    pinning = "alpha: before INSERT OR IGNORE INTO pins"
    for what in (pinning, "beta: before INSERT", "bank: before INSERT", "alpha: got share"):
        assert any(name.startswith(what) for name in names)
    for at in range(first, len(names), STRIDE):
        try:
            play(Consortium(tmp_path / str(at), WORLD), Steps(at))
        except BaseException as error:
            raise AssertionError(f"after a crash at step {at}, {names[at]}") from error


def test_two_crashes(tmp_path: Path) -> None:
    """A second crash, of whoever is next, a few steps after the first."""
    total = len(all_steps(tmp_path / "count"))
    for at in range(0, total, 23):
        consortium = Consortium(tmp_path / str(at), WORLD)
        first, second = Steps(at), Steps(7)
        with stepping(consortium, first):
            try:
                consortium.round()
            except Crash as crash:
                consortium.kill(crash.party)
            except Exception as error:
                assert "connection broke" in str(error)  # noqa: PT017 - others go up
        play(consortium, second)


SCRIPT = """
import sys
from pathlib import Path
from tests.deployment import test_crashes
test_crashes.run_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
"""


def run_until_killed(folder: Path, at: int) -> None:
    """In a process of its own, which ends without a word at step ``at``; all parties die at once."""
    play(Consortium(folder, load(folder)), Steps(at, for_good=True))


@pytest.mark.parametrize("at", [90, *(pytest.param(at, marks=pytest.mark.long) for at in (20, 60, 120, 150))])
def test_a_process_that_is_really_killed(tmp_path: Path, at: int) -> None:
    WORLD.save(tmp_path)
    codes = []
    for step in (at, -1):
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), str(step)], capture_output=True, text=True, check=False
        )
        codes.append(ended.returncode)
    assert codes == [9, 0], ended.stderr
