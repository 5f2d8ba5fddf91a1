"""The files of one run as an auditor reads them, each by itself, and the list of what is wrong.

A file that cannot be read is one entry of that list, and the others are read on. Nothing is written, no link is
followed, no pickle is loaded, and no code of the run is imported.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from precad.errors import PrecadError
from precad.files import is_file, read_text, words_of
from precad.privacy.epsilon import epsilon, total
from precad.privacy.ledger import Contents, read
from precad.privacy.terms import Adversary, Spent, Terms
from precad.report.manifest import COVERED, LEDGER, MANIFEST, PAGE, file_digest, manifest_text
from precad.report.run import Summary, read_about, read_object, read_rounds, unfinished
from precad.report.weights import read_checkpoint
from precad.settings import Protocol, RunConfig, from_table
from precad.tables import build, finite, read_toml
from precad.text import printable

KEY, LOCK = "root.key", "lock"
SQLITES = (f"{LEDGER}-wal", f"{LEDGER}-shm")
"""What SQLite keeps beside a ledger while it is open, or after a crash."""
_KNOWN = {*COVERED, MANIFEST, PAGE, KEY, LOCK, *SQLITES}
_Read = TypeVar("_Read")


class Books:
    """All files of a run, and what was found. What cannot be read is None, or empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.differences: dict[str, None] = {}
        """One sentence each, on one line, which names the file; in order."""
        self.unchecked: list[str] = []
        """What could not be compared, and why."""
        self.irregular = False
        """Whether something has the name of a file of a run and is none."""
        self.names = self._scan()
        self.text = self.read("config.toml", read_text)
        table = self.read("config.toml", read_toml)
        self.own_data = table is not None and "task" not in table
        """Whether precad.train was called from a program, which alone knows the clients and when it evaluates."""
        self.config = None if table is None else self.attempt("config.toml", lambda: _config(table))
        self.machine = self.read("machine.json", read_object)
        self.about = self.read("about.json", read_about)
        self.rounds = self.read("metrics.jsonl", read_rounds) or ()
        self.checkpoint = self.read("checkpoint.npz", read_checkpoint)
        self.claimed = self.read(LEDGER, read)
        """The ledger, whether or not its chain holds."""
        self.ledger = None if self.claimed is None else self.attempt(LEDGER, partial(_verified, self.claimed))
        self.summary = self.read("summary.json", lambda path: build(Summary, read_object(path), "it"))
        self.manifest = self.read(MANIFEST, _manifest)
        self.entries = [] if self.ledger is None else self.ledger.entries()
        self.finished = "summary.json" in self.names

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of the files as they are."""
        found = {name: self.read(name, file_digest) for name in (*COVERED, PAGE)}
        return {name: digest for name, digest in found.items() if digest is not None}

    @property
    def unfinished(self) -> str | None:
        """Of a round that was cut off after it was counted."""
        return unfinished(len(self.entries), len(self.rounds))

    @property
    def precad(self) -> bool:
        """Whether it is a run of PRECAD, which keeps a ledger."""
        return self.config is not None and self.config.training.protocol is Protocol.PRECAD

    @property
    def marked(self) -> bool:
        """Whether a version played the run that writes links, digests and a manifest."""
        new = self.about is not None and self.about.format > 1
        return new or any(line.model is not None or line.link is not None for line in self.rounds)

    @property
    def dim(self) -> int | None:
        """d."""
        if self.checkpoint is not None:
            return self.checkpoint.theta.size
        if self.ledger is not None:
            return self.ledger.terms.dim
        return None if self.about is None else self.about.parameters

    @cached_property
    def terms(self) -> Terms | None:
        """What a participation costs, by the configuration."""
        config, dim = self.config, self.dim
        return (
            None if config is None or dim is None else self.attempt("config.toml", lambda: config.training.terms(dim))
        )

    @cached_property
    def most_exposed(self) -> dict[int, int]:
        """Round → T_i of the client that took part most often by then, where the files tell."""
        config, point, counts = self.config, self.checkpoint, Counter[str]()
        most, highest = dict[int, int](), 0
        for number, entry in enumerate(self.entries, 1):
            counts.update(entry.participants)
            highest = max(highest, *(counts[name] for name in entry.participants), 0)
            most[number] = highest
        if config is None or self.precad:
            return most
        if config.training.client_rate == 1 and config.training.budget is None:
            return {line.round: line.round for line in self.rounds}
        ended = point is not None and point.participations.size and point.round == len(self.rounds)
        return {point.round: int(point.participations.max())} if ended and point is not None else {}

    def cost(self, adversary: Adversary, participations: int, rounds: int) -> float | None:
        """ε after so many rounds for a client that took part so often; None where there is none.

        A round of ddp has the noise of its honest clients, one at least where one of them took part. It is not recorded
        which rounds a client took part in, so it counts those with the fewest: the figure is a bound, and exact where
        all clients took part in all rounds. Earlier versions did not record the noises.
        """
        config, dim, terms = self.config, self.dim, self.terms
        if config is None or dim is None or terms is None:
            return None
        if config.training.protocol is not Protocol.DDP:
            return finite(epsilon(terms, adversary, participations))
        clients = 1 if self.checkpoint is None else self.checkpoint.participations.size
        counted = [line.noises for line in self.rounds[:rounds]]
        if None in counted:
            return None
        noises = sorted(min(number, config.training.tau(clients)) for number in counted if number)
        spent = [
            Spent(config.training.shared_terms(dim, clients, number), times)
            for number, times in Counter(noises[:participations]).items()
        ]
        return finite(total(spent, adversary, terms.delta))

    def is_there(self, name: str) -> bool:
        """Whether anything has this name."""
        return os.path.lexists(self.folder / name)

    def read(self, name: str, reader: Callable[[Path], _Read]) -> _Read | None:
        """What a file holds; None if it is not there, or cannot be read, which is then a difference."""
        return self.attempt(name, lambda: reader(self.folder / name)) if name in self.names else None

    def attempt(self, name: str, make: Callable[[], _Read]) -> _Read | None:
        """The same of something that is made from a file."""
        try:
            return make()
        except (OSError, ValueError, PrecadError) as error:
            self.differ(name, f"cannot be used: {words_of(error)}")
            return None

    def differ(self, name: str, sentence: str) -> None:
        """Note what is wrong with a file."""
        self.note(f"{name} {sentence}")

    def note(self, sentence: str) -> None:
        """Note a difference, once. What it repeats of a file may have line breaks, and would say more than one."""
        self.differences[printable(sentence)] = None

    def agree(self, what: str, said: Mapping[str, object]) -> None:
        """Compare what several files say; None is a file that says nothing."""
        known = {name: value for name, value in said.items() if value is not None}
        if len(set(map(repr, known.values()))) > 1:
            each = ", ".join(f"{name} says {_shown(value)}" for name, value in known.items())
            self.note(f"{what}: {each}")

    def expect(self, name: str, what: str, said: object, right: object, why: str) -> None:
        """Compare a figure of a file with what was computed again."""
        close = isinstance(said, float) and isinstance(right, float) and math.isclose(said, right, rel_tol=1e-6)
        if said != right and not close:
            self.differ(name, f"says {what} = {_shown(said)}, and {_shown(right)} {why}")

    def _scan(self) -> set[str]:
        names = set()
        for name in sorted(os.listdir(self.folder)):
            if name not in _KNOWN and not _is_draft(name):
                self.differ(repr(name), "is no file of a run")
            elif not is_file(self.folder / name):
                self.irregular = True
                self.differ(repr(name), "is a link, a folder or a device, not a file; it was not opened")
            elif _is_draft(name):
                self.unchecked.append(f"{name!r}, which a process that was killed left, is no part of the run")
            else:
                names.add(name)
        return names


def _is_draft(name: str) -> bool:
    """Of :func:`precad.files.whole_file`."""
    return name.startswith(".") and name.endswith(".draft")


def _config(table: Mapping[str, Any]) -> RunConfig:
    return from_table({"task": {"dataset": ""}, **table})


def _verified(contents: Contents) -> Contents:
    contents.verify()
    return contents


def _manifest(path: Path) -> dict[str, str]:
    table = read_object(path) or {}
    if not all(isinstance(digest, str) for digest in table.values()):
        raise ValueError("it must hold the digest of each file")
    if read_text(path) != manifest_text(table):
        raise ValueError("a run writes it in other letters")
    return table


def _shown(value: object) -> str:
    """A value in a sentence: short, and without control characters."""
    text = "none" if value is None else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}…"
