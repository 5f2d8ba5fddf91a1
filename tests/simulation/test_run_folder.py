"""A run that is cut off at any moment goes on as if nothing had happened."""

import itertools
import json
import os
import random  # noqa: TID251 - as a data set of somebody's
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from precad.errors import PrecadError
from precad.privacy.ledger import read
from precad.simulation import session
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
from precad.simulation.run_folder import RunError, RunFolder, free_name
from precad.simulation.trainer import Outcome, Trainer
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
    book = read(path / "ledger.sqlite")
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


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Records that are never twice the same, by noise from one source."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return torch.full((8,), i / 20 + self._source()), torch.tensor(i % 3)


BOUND: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.randn(())),
    "numpy": lambda: float(np.random.standard_normal()),  # noqa: NPY002
    "python": lambda: random.gauss(0, 1),
}
OF_THE_DATA_SET = np.random.default_rng()
OWN: dict[str, Callable[[], float]] = {
    "system": lambda: os.urandom(1)[0] / 256,
    "generator": lambda: float(OF_THE_DATA_SET.standard_normal()),
}


def cut_off(
    source: Callable[[], float], path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> list[list[Any]]:
    """What two processes show of the same rounds: the first is killed after its third, before any checkpoint."""
    monkeypatch.setattr(session, "SAVE_SECONDS", 1e9)
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    clients = {name: Augmented(source) for name in ("bank", "lab")}
    problem = Problem.of_datasets(model, nn.functional.cross_entropy, clients)
    run = RunFolder.create(path, "", Randomness.private(), MACHINE)
    shown: list[list[Any]] = []
    try:
        for _ in range(2):
            shown.append([])
            trainer = Trainer(
                problem, hyperparameters(client_rate=1.0, **changes), run.randomness(None), progress=run.load()
            )

            def show(outcome: Outcome, _: object) -> None:
                shown[-1].append((outcome.update_norm, outcome.fingerprint))
                if outcome.round == 3:
                    raise Crash

            with pytest.raises((Crash, PrecadError)) as ended:
                session.play(trainer, run, 1, show)
            if isinstance(ended.value, PrecadError):
                shown[-1].append(str(ended.value))
    finally:
        run.close()
    return shown


@pytest.mark.parametrize("source", BOUND)
@pytest.mark.parametrize("unit", ["record", "client"])
def test_augmentation_and_dropout_are_bound_to_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, unit: str
) -> None:
    """Else a resumed round would open a second sum under the same noise."""
    first, again = cut_off(BOUND[source], tmp_path / "run", monkeypatch, unit=unit)
    assert first == again
    assert len({norm for norm, _ in first}) == 3
    other, _ = cut_off(BOUND[source], tmp_path / "other", monkeypatch, unit=unit)
    assert not {fingerprint for _, fingerprint in first} & {fingerprint for _, fingerprint in other}


@pytest.mark.parametrize("source", OWN)
@pytest.mark.parametrize("protocol", ["precad", "ldp", "ddp", "cdp"])
def test_a_round_that_comes_out_otherwise_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, protocol: str
) -> None:
    first, again = cut_off(OWN[source], tmp_path / "run", monkeypatch, protocol=protocol)
    assert len(first) == 3
    (refused,) = again
    assert re.search(says("round 1 was opened before", "same noise", "generator of its own"), refused)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["fingerprint"] for line in lines] == [fingerprint for _, fingerprint in first]


def test_plain_training_goes_on_and_its_lines_are_those_of_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = cut_off(OWN["system"], tmp_path / "run", monkeypatch, protocol="plain")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update_norm"] for line in lines] == [norm for norm, _ in again] != [norm for norm, _ in first]


def test_a_line_of_a_version_without_fingerprints_is_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = session._line
    with monkeypatch.context() as patched:
        patched.setattr(session, "_line", lambda *given: replace(original(*given), fingerprint=None))
        first, again = cut_off(BOUND["torch"], tmp_path / "run", monkeypatch)
    assert len(first) == 3
    assert "round 1 was opened before" in again[0]


def test_generators_of_the_caller_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(1), torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002, TID251
    expected = [BOUND[name]() for name in BOUND]
    random.seed(1), torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002, TID251
    cut_off(lambda: sum(draw() for draw in BOUND.values()), tmp_path / "run", monkeypatch)
    assert [BOUND[name]() for name in BOUND] == expected


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
    book = read(path / "ledger.sqlite")
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


PLANTED = [
    "config.toml",
    "machine.json",
    "about.json",
    "metrics.jsonl",
    "checkpoint.npz",
    "ledger.sqlite",
    "ledger.sqlite-wal",
    "ledger.sqlite-shm",
    "model.pt",
    "manifest.json",
    "summary.json",
    "curves.png",
    "report.html",
    "root.key",
    "lock",
]


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_written_through_a_planted_link(tmp_path: Path, name: str) -> None:
    """In a folder that somebody else made, a link leads to a file of yours: it is refused, or not touched."""
    yours, run = tmp_path / "yours", tmp_path / "run"
    stopped(run)
    before = (run / name).read_bytes() if (run / name).exists() else b"alias ls='mine'\n"
    yours.write_bytes(before)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(yours)
    with suppress(PrecadError, OSError):
        play(run)
    assert yours.read_bytes() == before


def test_a_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(run)

    def state() -> dict[str, tuple[int, bytes]]:
        return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.iterdir()}

    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text + "# changed\n")
    before = state()
    with pytest.raises(RunError, match=says("config.toml", "changed")):
        RunFolder(run)
    (run / "config.toml").write_text(text)
    (run / "checkpoint.npz").write_bytes(b"garbage")
    before = state()
    with pytest.raises(RunError, match=says("checkpoint.npz", "damaged")):
        play(run)
    assert state() == before
