"""A run that is cut off at any moment goes on as if nothing had happened."""

import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.privacy.ledger import Ledger
from precad.simulation import session
from precad.simulation.randomness import Randomness
from precad.simulation.run_folder import RunError, RunFolder, free_name
from precad.simulation.trainer import Trainer
from tests.messages import says
from tests.simulation.small import hyperparameters, task

MACHINE = {"data": None, "device": "cpu"}


def nothing(*_: object) -> None:
    """Look away."""


def play(path: Path, seed: int | None = 3, rounds: int = 6) -> Trainer:
    """Begin the run, or go on with it, to its end."""
    if path.exists():
        run = RunFolder(path)
        randomness = Randomness.repeatable(seed) if seed is not None else run.randomness(None)
    else:
        randomness = Randomness.private() if seed is None else Randomness.repeatable(seed)
        run = RunFolder.create(path, "rounds = 6\n", randomness, MACHINE)
    try:
        run.check_config()
        trainer = Trainer(task(), hyperparameters(rounds=rounds), randomness, progress=run.load())
        trainer.keep_ledger(run.open_ledger)
        figures = session.play(trainer, run, max(2, rounds // 4), nothing)
        session.finish(trainer, run, figures)
    finally:
        run.close()
    return trainer


def without_times(path: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


class Crash(BaseException):
    """As sudden as a kill: nobody catches it."""


CRASHES = ["append", "save", "finish", "open_ledger"]


@pytest.mark.parametrize("seed", [3, None], ids=["seeded", "private"])
@pytest.mark.parametrize("method", CRASHES)
def test_a_run_cut_off_anywhere_equals_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, seed: int | None
) -> None:
    """Cut off before and after every write, again and again until it gets through."""
    monkeypatch.setattr(session, "SAVE_SECONDS", 0.0)
    original = getattr(RunFolder, method)
    path, cuts = tmp_path / "cut", 0

    def dying_at(fatal: int, before: bool) -> Callable[..., object]:
        calls = itertools.count(1)

        def dying(self: RunFolder, *arguments: object) -> object:
            call = next(calls)
            if call == fatal and before:
                raise Crash
            result: object = original(self, *arguments)
            if call == fatal:
                raise Crash
            return result

        return dying

    for fatal, before in itertools.product(range(1, 4), (True, False)):
        if (path / "summary.json").exists():
            break
        with monkeypatch.context() as patched:
            patched.setattr(RunFolder, method, dying_at(fatal, before))
            try:
                play(path, seed)
            except Crash:
                cuts += 1
    assert cuts
    if not (path / "summary.json").exists():
        play(path, seed)
    rounds = [line["round"] for line in without_times(path)]
    assert rounds == [1, 2, 3, 4, 5, 6]
    book = Ledger.load(path / "ledger.sqlite")
    book.verify()
    assert [entry.round for entry in book.entries()] == [0, 1, 2, 3, 4, 5]
    if seed is not None:
        whole = play(tmp_path / "whole", seed)
        assert without_times(path) == without_times(tmp_path / "whole")
        with np.load(path / "checkpoint.npz") as stored:
            assert np.array_equal(stored["theta"], whole.progress.model.theta)


def test_a_private_run_that_goes_on_plays_its_last_rounds_again_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same round would be opened with two noises, and the difference would tell the sum."""
    monkeypatch.setattr(session, "SAVE_SECONDS", 1e9)
    run = RunFolder.create(tmp_path / "run", "", Randomness.private(), MACHINE)
    ends: list[NDArray[np.float64]] = []
    for _ in range(2):
        trainer = Trainer(task(), hyperparameters(rounds=4), run.randomness(None), progress=run.load())
        for _ in range(3):
            trainer.play()
        ends.append(trainer.progress.model.theta)
    assert np.array_equal(ends[0], ends[1])
    run.close()


def test_the_key_is_for_the_owner_only_and_goes_when_the_run_ends(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "", Randomness.private(), MACHINE)
    assert stat.S_IMODE((tmp_path / "run" / "root.key").stat().st_mode) == 0o600
    run.close()
    play(tmp_path / "whole", None)
    assert not (tmp_path / "whole" / "root.key").exists()


def test_ctrl_c_leaves_a_checkpoint_of_the_last_round(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "", Randomness.repeatable(3), MACHINE)
    trainer = Trainer(task(), hyperparameters(rounds=6), Randomness.repeatable(3))
    trainer.keep_ledger(run.open_ledger)

    def interrupt(outcome: object, figures: object) -> None:  # noqa: ARG001
        if trainer.progress.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.play(trainer, run, 2, interrupt)
    progress = run.load()
    assert progress is not None
    assert progress.round == 4
    run.close()
    assert np.array_equal(play(tmp_path / "run").progress.model.theta, play(tmp_path / "w").progress.model.theta)


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "", Randomness.private(), MACHINE)
    with pytest.raises(RunError, match="another process"):
        RunFolder(tmp_path / "run")
    run.close()
    RunFolder(tmp_path / "run").close()


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run"):
        RunFolder(tmp_path)
    RunFolder.create(tmp_path / "run", "", Randomness.private(), MACHINE).close()
    with pytest.raises(RunError, match=says("exists", "precad resume")):
        RunFolder.create(tmp_path / "run", "", Randomness.private(), MACHINE)
    run = RunFolder(tmp_path / "run")
    for name in ("checkpoint.npz", "machine.json", "root.key"):
        (tmp_path / "run" / name).write_bytes(b"{garbage")
    with pytest.raises(RunError, match=says("checkpoint.npz", "damaged")):
        run.load()
    with pytest.raises(RunError, match=says("machine.json", "damaged")):
        run.machine  # noqa: B018
    with pytest.raises(RunError, match=says("root.key", "damaged")):
        run.randomness(None)
    run.close()


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        RunFolder.create(tmp_path / "run", "", Randomness.private(), MACHINE)
    assert list(tmp_path.iterdir()) == []


def test_free_names_count_up(tmp_path: Path) -> None:
    assert free_name(tmp_path, "digits").name == "digits-1"
    (tmp_path / "digits-1").mkdir()
    assert free_name(tmp_path, "digits").name == "digits-2"


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from precad.errors import PrecadError
from precad.simulation import session
from tests.simulation.test_run_folder import play

session.SAVE_SECONDS = 0.0
threading.Timer(float(sys.argv[2]), os.kill, [os.getpid(), signal.SIGKILL]).start()
play(Path(sys.argv[1]), 3, 150)
os._exit(0)
"""


@pytest.mark.long
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    """Real processes, killed at moments that nobody chose, until the run is through."""
    path, kills = tmp_path / "run", 0
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    root = Path(__file__).parent.parent.parent
    for wait in (3.0, 3.5, 4.0, 600.0):
        command = [sys.executable, "-c", KILLED, str(path), str(wait)]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False)
        kills += done.returncode == -9
        if done.returncode == 0:
            break
    assert (path / "summary.json").exists(), done.stderr
    book = Ledger.load(path / "ledger.sqlite")
    book.verify()
    assert [entry.round for entry in book.entries()] == list(range(150))
    assert [line["round"] for line in without_times(path)] == list(range(1, 151))
    play(tmp_path / "whole", 3, 150)
    assert without_times(path) == without_times(tmp_path / "whole")


def stopped(path: Path) -> None:
    """A run that was stopped while it looked at the test set after its second round."""

    def interrupt(outcome: object, figures: object) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    run = RunFolder.create(path, "rounds = 6\n", Randomness.repeatable(3), MACHINE)
    trainer = Trainer(task(), hyperparameters(rounds=6), Randomness.repeatable(3))
    trainer.keep_ledger(run.open_ledger)
    with pytest.raises(KeyboardInterrupt):
        session.play(trainer, run, 2, interrupt)
    run.close()


def test_ctrl_c_before_a_round_is_written_down_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(trainer: Trainer) -> session.Figures:  # noqa: ARG001
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(session, "measure", interrupted)
        run = RunFolder.create(tmp_path / "cut", "rounds = 6\n", Randomness.repeatable(3), MACHINE)
        trainer = Trainer(task(), hyperparameters(rounds=6), Randomness.repeatable(3))
        trainer.keep_ledger(run.open_ledger)
        with pytest.raises(KeyboardInterrupt):
            session.play(trainer, run, 2, nothing)
        run.close()
    play(tmp_path / "cut")
    assert [line["round"] for line in without_times(tmp_path / "cut")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("garbage", [b"", b"[1]\n", b"{}\n", b"\xff\xfe\n", b"null\n", b'{"round": 1}\n'])
@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoint.npz", "machine.json", "ledger.sqlite"])
def test_damage_is_one_sentence(tmp_path: Path, name: str, garbage: bytes) -> None:
    stopped(tmp_path / "run")
    for side in ("-wal", "-shm"):
        (tmp_path / "run" / f"{name}{side}").unlink(missing_ok=True)
    (tmp_path / "run" / name).write_bytes(garbage)
    with pytest.raises(PrecadError):
        play(tmp_path / "run")


def test_an_edited_configuration_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    run.check_config()
    (tmp_path / "run" / "config.toml").write_text("rounds = 7\n")
    with pytest.raises(RunError, match=says("config.toml", "changed")):
        run.check_config()
    run.close()


@pytest.mark.parametrize(
    "change", [{"round": 7}, {"round": -1}, {"participations": np.full(6, 9)}, {"theta": np.full(75, np.nan)}]
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    stopped(tmp_path / "run")
    with np.load(tmp_path / "run" / "checkpoint.npz") as stored:
        values = {**stored, **change}
    np.savez(tmp_path / "run" / "checkpoint.npz", **values)
    with pytest.raises((ValueError, PrecadError)):
        play(tmp_path / "run")


def test_a_loss_without_bound_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = session.Figures(1, 0.5, float("inf"), 1.0, 1.0)
    monkeypatch.setattr(session, "measure", lambda trainer: endless)  # noqa: ARG005
    play(tmp_path / "run")
    assert all("test_loss" not in line for line in without_times(tmp_path / "run"))
