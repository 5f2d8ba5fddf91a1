"""Real runs of a few rounds on the small digits, in processes of their own."""

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from precad.errors import PrecadError
from precad.lab.paper import runner
from precad.lab.paper.heatmap import Board
from precad.lab.paper.plan import Experiment
from precad.lab.paper.rows import Row, RowFile
from precad.lab.paper.runner import Worker, play
from tests.messages import says

BOARD = Board("digits", 2, 2, (1,), ("none", "backdoor"), ("precad", "median"))


def test_a_grid_is_made_once_and_in_any_number_of_processes(tmp_path: Path) -> None:
    rows, seen = RowFile(tmp_path), list[Row]()
    todo = runner.missing([*BOARD.experiments(), *BOARD.experiments()], rows)
    assert len(todo) == 4
    runner.run_all(todo, rows, None, 2, lambda _, row: seen.append(row))
    assert {row.key for row in seen} == {experiment.key for experiment in todo}
    assert runner.missing(BOARD.experiments(), RowFile(tmp_path)) == []
    again = play(todo[1], None)
    stored = rows.get(todo[1])
    assert stored is not None
    assert (again.accuracy, again.backdoor, again.rejected) == (stored.accuracy, stored.backdoor, stored.rejected)


def test_a_timed_run_gives_the_same_model_by_the_whole_protocol() -> None:
    experiment = BOARD.experiment("backdoor", "precad", 1)
    timed, quick = play(replace(experiment, timed=True), None), play(experiment, None)
    assert timed.accuracy == quick.accuracy
    assert timed.rejected == quick.rejected == 4
    assert timed.round_seconds > 0


def test_timed_runs_come_last(tmp_path: Path) -> None:
    first, *others = BOARD.experiments()
    todo = runner.missing([replace(first, timed=True), *others], RowFile(tmp_path))
    assert [experiment.timed for experiment in todo] == [False, False, False, True]


def test_a_model_that_diverges_is_a_row_too() -> None:
    experiment = BOARD.experiment("ipm", "plain", 1)
    config = experiment.config
    wild = replace(config, training=replace(config.training, learning_rate=1e45))
    row = play(Experiment(wild), None)
    assert row.diverged is not None
    assert row.final_accuracy == 0.1


def test_an_error_of_a_run_ends_the_grid(tmp_path: Path) -> None:
    config = BOARD.experiment("none", "median", 1).config
    bad = Experiment(replace(config, task=replace(config.task, dataset="mnist")))
    with pytest.raises(PrecadError, match=says(f"no folder {tmp_path}/nothing")):
        runner.run_all([bad], RowFile(tmp_path), tmp_path / "nothing", 1, lambda *_: None)


def test_a_person_s_own_code_may_print_and_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud.py").write_text(
        "def mean(updates, setting):\n    print(3)\n    return list(updates.mean(axis=0))\n"
        "def fails(updates, setting):\n    return {}['x']\n"
    )
    monkeypatch.chdir(tmp_path)
    board = Board("digits", 2, 2, (1,), ("none",), ("loud:mean", "loud:fails"))
    rows = RowFile(tmp_path)
    with pytest.raises(PrecadError, match=says("defence", "loud:fails", "KeyError: 'x'")):
        runner.run_all(board.experiments(), rows, None, 1, lambda *_: None)
    (found,) = rows.all()
    (plain,) = Board("digits", 2, 2, (1,), ("none",), ("plain",)).experiments()
    assert found.accuracy == play(plain, None).accuracy


def test_a_process_that_dies_is_one_sentence() -> None:
    worker = Worker(None)
    threading.Timer(0.1, worker.end).start()
    try:
        with pytest.raises(PrecadError, match=says("process", "ended")):
            worker.make(BOARD.experiment("none", "precad", 1))
    finally:
        worker.end()
        worker.close()


def test_a_run_needs_a_seed() -> None:
    config = BOARD.experiment("none", "median", 1).config
    with pytest.raises(ValueError, match="seed"):
        play(Experiment(replace(config, seed=None)), None)


_PARENT = """
from precad.lab.paper.heatmap import Board
from precad.lab.paper.runner import Worker
worker = Worker(None)
print(worker._process.pid, flush=True)
worker.make(Board("digits", 10**6, 2, (1,), ("none",), ("precad",)).experiments()[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_run_ends_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    assert worker.exists()
    parent.kill()
    parent.communicate()
    for _ in range(600):
        if not worker.exists() or ") Z " in worker.read_text():  # nobody may be there to bury it
            return
        time.sleep(0.1)
    pytest.fail("the worker goes on without its parent")
