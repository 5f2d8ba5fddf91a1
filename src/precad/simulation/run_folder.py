"""A run on disk: what is there at any moment suffices to go on.

::

    config.toml     what the run is
    machine.json    where its data are, and on what it computes
    about.json      which versions made it, its parameters and its clients
    root.key        its private randomness, until it ends; none with a seed
    checkpoint.npz  the model and the counts after some round
    metrics.jsonl   a line a round
    ledger.sqlite   who took part, for ever
    model.pt, summary.json, curves.png, report.html   at the end

A round that came after the last checkpoint is played again with the same randomness: it is the same round.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from precad.errors import PrecadError
from precad.files import flush_folder, whole_file, write_file
from precad.mpc.prg import digest
from precad.mpc.secret import Secret
from precad.privacy.ledger import Ledger
from precad.privacy.terms import Terms
from precad.protocol.update import Model
from precad.report.run import About, RoundFigures, Summary, read_rounds
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Progress
from precad.tables import to_table


class RunError(PrecadError):
    """A run's folder that cannot be used."""


class RunFolder:
    """An existing run's folder, locked against a second process until :meth:`close`."""

    def __init__(self, path: Path) -> None:
        if not (path / _CONFIG).is_file():
            raise RunError(f"there is no run in {path}: {_CONFIG} is missing")
        self.path = path
        self._lock = (path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RunError(f"{path} is in use by another process") from None
        self._metrics: IO[str] | None = None
        for left in path.glob(f".{_CHECKPOINT}.*.draft"):  # of a process that was killed, and large
            left.unlink()
        if self.finished:
            (path / _KEY).unlink(missing_ok=True)

    @classmethod
    def create(cls, path: Path, config: str, randomness: Randomness, machine: Mapping[str, str | None]) -> "RunFolder":
        """A new run: the folder appears whole or not at all. ``machine``: what only this machine needs to know."""
        if path.exists():
            raise RunError(f"{path} exists: choose another name, or continue it with `precad resume {path}`")
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        try:
            write_file(draft / _CONFIG, config)
            write_file(draft / _MACHINE, json.dumps({**machine, "config": _digest(config)}))
            if randomness.seed is None:
                write_file(draft / _KEY, randomness.root.value, private=True)
            draft.rename(path)
            flush_folder(path.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return cls(path)

    @property
    def config(self) -> str:
        """The text of the configuration."""
        return (self.path / _CONFIG).read_text()

    @property
    def machine(self) -> dict[str, str]:
        """What :meth:`create` was told of the machine."""
        try:
            machine: dict[str, str] = json.loads((self.path / _MACHINE).read_text())
            whole = machine.keys() >= {"data", "device", "config"}
        except (OSError, ValueError, AttributeError):
            whole = False
        if not whole:
            raise RunError(f"{self.path / _MACHINE} is missing or damaged")
        return machine

    def describe(self, about: About) -> None:
        """Write down, once, what the run knows of itself when it begins."""
        if not (self.path / _ABOUT).exists():
            write_file(self.path / _ABOUT, json.dumps(to_table(about)) + "\n")

    def check_config(self) -> None:
        """Refuse a configuration that is not what the run began with: the same noise must not hide another sum."""
        if self.machine["config"] != _digest(self.config):
            raise RunError(f"{self.path / _CONFIG} was changed since the run began: a change is a new run")

    def randomness(self, seed: int | None) -> Randomness:
        """What the run was begun with."""
        if seed is not None:
            return Randomness.repeatable(seed)
        try:
            return Randomness(Secret((self.path / _KEY).read_bytes()), None)
        except (OSError, ValueError):
            raise RunError(f"{self.path / _KEY} is missing or damaged: the run cannot go on") from None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "summary.json").is_file()

    def open_ledger(self, task: str, terms: Terms) -> Ledger:
        """The run's ledger, made at the first call."""
        return Ledger(self.path / "ledger.sqlite", task, terms)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; the old one stays until the new one is whole."""
        model = progress.model
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())
        with whole_file(self.path / _CHECKPOINT) as out:
            np.savez(
                out,
                theta=model.theta,
                first=model.first,
                second=model.second,
                steps=model.steps,
                round=progress.round,
                participations=progress.participations,
            )

    def load(self) -> Progress | None:
        """The last checkpoint, if there is one; later lines of the metrics are dropped, to be written again."""
        progress = self._read_checkpoint()
        done = 0 if progress is None else progress.round
        kept = [_line(figures) for figures in self.rounds()[:done]]
        if len(kept) != done:
            raise RunError(f"{self.path / _METRICS} has {len(kept)} of the {done} rounds that were played")
        if kept or (self.path / _METRICS).exists():
            write_file(self.path / _METRICS, "".join(kept))
        return progress

    def append(self, figures: RoundFigures) -> None:
        """Write down one round."""
        if self._metrics is None:
            self._metrics = (self.path / _METRICS).open("a")
        self._metrics.write(_line(figures))
        self._metrics.flush()

    def rounds(self) -> tuple[RoundFigures, ...]:
        """What was written down so far."""
        return read_rounds(self.path / _METRICS)

    def finish(self, summary: Summary) -> None:
        """Write the summary, which makes the run finished, and erase its private randomness."""
        write_file(self.path / "summary.json", json.dumps(to_table(summary), indent=2, allow_nan=False) + "\n")
        (self.path / _KEY).unlink(missing_ok=True)

    def close(self) -> None:
        """Let other processes in."""
        if self._metrics is not None:
            with suppress(OSError):  # of a full disk, which was reported when the line was written
                self._metrics.close()
        self._lock.close()

    def _read_checkpoint(self) -> Progress | None:
        try:
            with np.load(self.path / _CHECKPOINT, allow_pickle=False) as stored:
                model = Model(stored["theta"], stored["first"], stored["second"], int(stored["steps"]))
                return Progress(model, int(stored["round"]), stored["participations"])
        except FileNotFoundError:
            return None
        except Exception as error:  # zipfile and numpy raise nearly anything on damaged files
            raise RunError(f"{self.path / _CHECKPOINT} is damaged: {error}") from None


_CONFIG, _MACHINE, _KEY = "config.toml", "machine.json", "root.key"
_CHECKPOINT, _METRICS, _ABOUT = "checkpoint.npz", "metrics.jsonl", "about.json"


def free_name(parent: Path, stem: str) -> Path:
    """stem-1, stem-2, …: the first that is not taken."""
    number = 1
    while (parent / f"{stem}-{number}").exists():
        number += 1
    return parent / f"{stem}-{number}"


def _digest(config: str) -> str:
    return digest(b"precad config", config.encode()).hex()


def _line(figures: RoundFigures) -> str:
    present = {name: value for name, value in to_table(figures).items() if value is not None}
    return json.dumps(present, allow_nan=False) + "\n"
