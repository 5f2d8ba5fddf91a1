"""A run on disk. Whenever it is cut off, its files suffice to go on.

::

    config.toml     what the run is
    machine.json    where its data are, and on what it computes
    about.json      which versions made it, its parameters and its clients
    root.key        its private randomness, until it ends; none with a seed
    checkpoint.npz  the model and the counts after some round
    metrics.jsonl   one line for each round
    ledger.sqlite   who took part, for ever
    model.pt, summary.json, curves.png, report.html   at the end
    manifest.json   the digests of all of these, at the end

A round that came after the last checkpoint is played again with the same randomness: it is the same round. Its line
is on the disk before anything of it is shown, and has a fingerprint of its updates: with others now, it is refused.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from precad.errors import PrecadError
from precad.files import (
    check_own,
    flush_folder,
    lock_file,
    make_folder,
    open_to_append,
    read_bytes,
    read_text,
    whole_file,
    words_of,
    write_file,
)
from precad.mpc.secret import Secret
from precad.privacy.ledger import Ledger, Origin
from precad.privacy.terms import Terms
from precad.protocol.update import Model
from precad.report.manifest import COVERED, MANIFEST, PAGE, file_digest, file_digests, manifest_text, text_digest
from precad.report.run import About, ReportError, RoundFigures, Summary, read_rounds
from precad.report.weights import read_checkpoint
from precad.settings import config_digest
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Progress
from precad.tables import build, read_json, to_table


class RunError(PrecadError):
    """A run's folder that cannot be used."""


@dataclass(frozen=True)
class Machine:
    """``machine.json``: what only this machine needs to know."""

    data: str | None
    """Where the data sets are."""
    device: str
    config: str
    """The digest of the configuration that the run began with."""
    randomness: str | None = None
    """A digest of the run's randomness, by which its copies are known. Earlier versions wrote none."""


class RunFolder:
    """An existing run's folder, locked against a second process until :meth:`close`."""

    def __init__(self, path: Path) -> None:
        """Nothing is written yet: a folder that somebody else made is refused before."""
        if not (path / _CONFIG).is_file():
            raise RunError(f"there is no run in {path}: {_CONFIG} is missing")
        self.path = path
        for name in _FILES:
            check_own(path / name)
        self.check_config()
        try:
            self._lock = lock_file(path / _CONFIG)
        except BlockingIOError:
            raise RunError(f"{path} is in use by another process") from None
        self._metrics: BinaryIO | None = None
        if self.finished:
            (path / _KEY).unlink(missing_ok=True)

    @classmethod
    def create(cls, path: Path, config: str, randomness: Randomness, machine: Mapping[str, str | None]) -> "RunFolder":
        """A new run: the folder appears whole or not at all. ``machine``: what only this machine needs to know."""
        if path.exists():
            raise RunError(f"{path} exists: choose another name, or continue it with `precad resume {path}`")
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        make_folder(draft, new=True)
        try:
            write_file(draft / _CONFIG, config)
            known = {"config": config_digest(config), "randomness": randomness.name}
            write_file(draft / _MACHINE, json.dumps({**machine, **known}))
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
        return read_text(self.path / _CONFIG)

    @property
    def machine(self) -> Machine:
        """What :meth:`create` was told of the machine."""
        try:
            return build(Machine, read_json(self.path / _MACHINE), _MACHINE)
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / _MACHINE} is missing or damaged: {words_of(error)}") from None

    def describe(self, about: About) -> None:
        """Write down, once, what the run knows of itself when it begins."""
        if not (self.path / _ABOUT).exists():
            write_file(self.path / _ABOUT, json.dumps(to_table(about)) + "\n")

    def check_config(self) -> None:
        """Refuse a configuration that is not what the run began with: the same noise must not hide another sum."""
        if self.machine.config != config_digest(self.config):
            raise RunError(f"{self.path / _CONFIG} was changed since the run began: a change is a new run")

    def randomness(self, seed: int | None) -> Randomness:
        """What the run was begun with."""
        if seed is not None:
            return Randomness.repeatable(seed)
        try:
            return Randomness(Secret(read_bytes(self.path / _KEY)), None)
        except (OSError, ValueError):
            raise RunError(f"{self.path / _KEY} is missing or damaged: the run cannot go on") from None

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "summary.json").is_file()

    def open_ledger(self, task: str, terms: Terms, origin: Origin) -> Ledger:
        """The run's ledger, made at the first call."""
        return Ledger(self.path / "ledger.sqlite", task, terms, origin)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; the old one stays until the new one is whole."""
        model = progress.model
        for left in self.path.glob(f".{_CHECKPOINT}.*.draft"):  # of a process that was killed, and large
            left.unlink()
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
        """The last checkpoint, if there is one. Later lines of the metrics stay until their round is played again."""
        progress = self._read_checkpoint()
        done = 0 if progress is None else progress.round
        if len(self._lines) < done:
            raise RunError(f"{self.path / _METRICS} has {len(self._lines)} of the {done} rounds that were played")
        return progress

    def append(self, figures: RoundFigures) -> None:
        """Write down one round, for good, before anybody sees it; one that was played again takes its old place."""
        again = figures.round <= len(self._lines)
        self._lines[figures.round - 1 : figures.round] = [_line(figures)]
        if again:
            write_file(self.path / _METRICS, "".join(self._lines))
            return
        if self._metrics is None:
            write_file(self.path / _METRICS, "".join(self._lines[:-1]))  # without half a line
            self._metrics = open_to_append(self.path / _METRICS)
        self._metrics.write(self._lines[-1].encode())
        self._metrics.flush()
        os.fsync(self._metrics.fileno())

    def rounds(self) -> tuple[RoundFigures, ...]:
        """What was written down so far."""
        return read_rounds(self.path / _METRICS)

    @cached_property
    def _lines(self) -> list[str]:
        return [_line(figures) for figures in self.rounds()]

    def finish(self, summary: Summary) -> None:
        """Write the manifest and the summary, which makes the run finished, and erase its private randomness."""
        text = json.dumps(to_table(summary), indent=2, allow_nan=False) + "\n"
        digests = file_digests(self.path) | {"summary.json": text_digest(text)}
        if (self.path / PAGE).is_file():
            digests[PAGE] = file_digest(self.path / PAGE)
        write_file(self.path / MANIFEST, manifest_text(digests))
        write_file(self.path / "summary.json", text)
        (self.path / _KEY).unlink(missing_ok=True)

    def close(self) -> None:
        """Let other processes in."""
        if self._metrics is not None:
            with suppress(OSError):  # of a full disk, which was reported when the line was written
                self._metrics.close()
        self._lock.close()

    def _read_checkpoint(self) -> Progress | None:
        try:
            stored = read_checkpoint(self.path / _CHECKPOINT)
        except FileNotFoundError:
            return None
        except ReportError as error:
            raise RunError(str(error)) from None
        return Progress(
            Model(stored.theta, stored.first, stored.second, stored.steps), stored.round, stored.participations
        )


_CONFIG, _MACHINE, _KEY = "config.toml", "machine.json", "root.key"
_CHECKPOINT, _METRICS, _ABOUT = "checkpoint.npz", "metrics.jsonl", "about.json"
_FILES = (*COVERED, MANIFEST, PAGE, _KEY)


def free_name(parent: Path, stem: str) -> Path:
    """stem-1, stem-2, …: the first that is not taken."""
    number = 1
    while (parent / f"{stem}-{number}").exists():
        number += 1
    return parent / f"{stem}-{number}"


def _line(figures: RoundFigures) -> str:
    present = {name: value for name, value in to_table(figures).items() if value is not None}
    return json.dumps(present, allow_nan=False) + "\n"
