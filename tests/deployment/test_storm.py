"""A minute and a half of mishaps of every kind; ``tests.deployment.storm`` plays for longer. And what a silence is."""

import sys
import time
from pathlib import Path

import pytest

from tests.deployment import storm
from tests.deployment.storm_watch import QUIET, SLACK, Watch


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_storm_over_both_kinds_of_clients(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    counts = storm.run(tmp_path, 90, seed=4)
    assert counts["opened"] >= 4
    assert counts["submissions of native clients opened"] >= 1
    assert counts["submissions of clients on Flower opened"] >= 1
    assert counts["second apps refused"] >= 1
    for kind in ("kills", "freezes", "line", "full disks"):
        assert any(what.startswith(kind) for what in counts), counts


@pytest.mark.parametrize(
    ("lines", "seconds", "is_silent"),
    [
        (["round 3 is opened"], QUIET - 1, False),
        (["round 3 is opened"], QUIET + 1, True),
        (["step finish, attempt 1: B is away; the next attempt is in 60 s, and so on"], 59, False),
        (["step finish, attempt 1: B is away; the next attempt is in 60 s, and so on"], 60 + SLACK + 1, True),
        (["the next attempt is in 60 s", '{"event": "started"}'], QUIET + 1, True),
        (["round 3 collects: 0 of 4 selected clients have answered, at most 25 s more", "an app plays"], 24, False),
    ],
)
def test_a_log_without_a_line_is_silent_unless_it_said_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], seconds: float, is_silent: bool
) -> None:
    watch, now = Watch(tmp_path, ["server-a", "client-lab"]), time.time()
    (tmp_path / "server-a.log").write_text("".join(f"{line}\n" for line in lines))
    watch.look()
    monkeypatch.setattr("tests.deployment.storm_watch.time.time", lambda: now + seconds)
    for _ in range(2):
        watch.look()
    assert len(watch.silences) == is_silent
    assert watch.opened == [3] * lines.count("round 3 is opened")
