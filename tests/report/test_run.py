"""A run's folder as values, and each way in which it can be none."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from precad.errors import PrecadError
from precad.report.run import read_run
from tests.messages import says
from tests.report.fake_runs import FakeRun


def test_every_figure_is_that_of_the_files(tmp_path: Path) -> None:
    run = read_run(FakeRun().write(tmp_path / "mine"))
    assert (run.name, run.done, run.finished) == ("mine", 6, True)
    assert [line.round for line in run.evaluated] == [2, 4, 6]
    assert run.rounds[-1].test_accuracy == 1 - 1 / 7
    assert run.rounds[0].rejected == {"client-3": "invalid"}
    assert run.about.parameters == 100
    assert run.ledger is not None
    assert len(run.ledger.rows) == 6
    assert run.ledger.last_link == run.ledger.verify()
    assert run.config.seed == 1


def test_a_last_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = FakeRun().write(tmp_path / "mine", done=4)
    with (path / "metrics.jsonl").open("a") as out:
        out.write('{"round": 5, "sel')
    run = read_run(path)
    assert (run.done, run.finished) == (4, False)


def test_a_run_from_before_about_json_is_read(tmp_path: Path) -> None:
    path = FakeRun().write(tmp_path / "mine")
    (path / "about.json").unlink()
    run = read_run(path)
    assert (run.about.parameters, run.about.version, run.about.clients) == (100, "0.1", None)
    (path / "summary.json").unlink()
    assert read_run(path).about.parameters == 100  # the ledger knows


def test_reading_writes_nothing(tmp_path: Path) -> None:
    path = FakeRun().write(tmp_path / "mine")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    path.chmod(0o555)
    try:
        read_run(path)
    finally:
        path.chmod(0o755)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def _rounds(path: Path, value: str) -> None:
    config = path / "config.toml"
    config.write_text(re.sub(r"^rounds = .*$", f"rounds = {value}", config.read_text(), flags=re.MULTILINE))


def _line_2(path: Path, text: str) -> None:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join([lines[0], text, *lines[2:]]) + "\n")


DAMAGE: dict[str, tuple[Callable[[Path], object], tuple[object, ...]]] = {
    "no run": (lambda path: (path / "config.toml").unlink(), ("no run",)),
    "no TOML": (lambda path: (path / "config.toml").write_text("= ="), ("config.toml",)),
    "not text": (lambda path: (path / "config.toml").write_bytes(b"\xff\xfe"), ("config.toml",)),
    "no training": (lambda path: (path / "config.toml").write_text("seed = 1"), ("config.toml", "training")),
    "rounds": (lambda path: _rounds(path, "'many'"), ("rounds", "whole number", "'many'")),
    "negative rounds": (lambda path: _rounds(path, "-1"), ("rounds", 1, -1)),
    "another key": (lambda path: _rounds(path, "6\naggregator = 'x'"), ("config.toml", "'aggregator'")),
    "half a setting": (lambda path: (path / "config.toml").write_text("[training]\nrounds = 3"), ("client_rate",)),
    "no JSON": (lambda path: _line_2(path, "{"), ("metrics.jsonl", "line 2")),
    "no object": (lambda path: _line_2(path, "7"), ("metrics.jsonl", "line 2")),
    "another round": (
        lambda path: _line_2(path, json.dumps(FakeRun().line(5))),
        ("metrics.jsonl", "line 2", "round 5"),
    ),
    "not finite": (
        lambda path: _line_2(path, json.dumps(FakeRun().line(2) | {"test_loss": float("inf")})),
        ("inf",),
    ),
    "summary": (lambda path: (path / "summary.json").write_text("[]"), ("summary.json", "damaged")),
    "summary's keys": (lambda path: (path / "summary.json").write_text("{}"), ("mine", "summary.json", "version")),
    "ledger": (
        lambda path: (path / "ledger.sqlite").write_bytes(b"no ledger" * 100),
        ("ledger.sqlite", "not a ledger"),
    ),
    "another version": (
        lambda path: (path / "about.json").write_text('{"format": 3, "version": "9.0"}'),
        ("precad 9.0",),
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_no_run_is_one_sentence(tmp_path: Path, what: str) -> None:
    path = FakeRun().write(tmp_path / "mine")
    damage, words = DAMAGE[what]
    damage(path)
    with pytest.raises(PrecadError, match=says(*words)) as raised:
        read_run(path)
    assert "\n" not in str(raised.value)
