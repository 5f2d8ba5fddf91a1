"""One JSON line for each run that was made, in a file that only grows; numbers over seeds, and the tables of them."""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.files import lock_file, open_to_append, read_bytes, write_file
from precad.lab.paper.plan import Experiment
from precad.tables import build, parse_json


@dataclass(frozen=True)
class Row:
    """The figures that a run came to."""

    key: str
    config: Mapping[str, Any]
    rounds: list[int]
    """When the test sets were looked at."""
    accuracy: list[float]
    """On the main test set, then."""
    backdoor: list[float]
    """On the attackers' test set; empty if there is none."""
    participations: int
    """Of the client that took part most often."""
    rejected: int
    """Submissions that were rejected, in all rounds."""
    round_seconds: float
    """The mean time of a round, without the first two."""
    stage_seconds: Mapping[str, float]
    """The same of its stages."""
    seconds: float
    """Of a core, for the whole run with its evaluation."""
    diverged: int | None
    """The round in which the model was no longer finite; the accuracy from there on is that of guessing."""
    version: str

    @property
    def final_accuracy(self) -> float:
        """The main accuracy at the end of the run."""
        return self.accuracy[-1]

    @property
    def final_backdoor(self) -> float:
        """The backdoor accuracy at the end of the run."""
        if not self.backdoor:
            raise ValueError(f"the run {self.key} has no backdoor")
        return self.backdoor[-1]


class RowFile:
    """The file rows.jsonl of a folder: every run that was made there."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows.jsonl"
        self._rows: dict[str, Row] = {}
        self._read_all()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While one process makes runs, no other does so here; what was written since is read."""
        try:
            lock = lock_file(self.path)
        except BlockingIOError:
            where = f"another process makes runs in {self.path.parent}"
            raise PrecadError(f"{where}: use --no-runs to see what there is, or another --out") from None
        with lock:
            self._read_all()
            yield

    def add(self, row: Row) -> None:
        """Write down one more run, in place of what was cut off when the last one was written."""
        line = json.dumps(asdict(row), allow_nan=False) + "\n"
        with open_to_append(self.path) as out:
            out.truncate(self._size)
            out.write(line.encode())
        self._size += len(line.encode())
        self._rows[row.key] = row

    def get(self, experiment: Experiment) -> Row | None:
        """The row of a run, if it was made."""
        return self._rows.get(experiment.key)

    def all(self) -> list[Row]:
        """All rows, in the order in which they were made."""
        return list(self._rows.values())

    def found(self, experiments: Iterable[Experiment]) -> list[Row]:
        """The rows of those runs that were made."""
        return [row for row in map(self.get, experiments) if row is not None]

    def _read_all(self) -> None:
        self._size = 0
        if not self.path.exists():
            return
        for number, line in enumerate(read_bytes(self.path).splitlines(keepends=True), 1):
            if line.endswith(b"\n"):  # else it was cut off, and its run is made again
                row = self._read(line, number)
                self._rows[row.key] = row
                self._size += len(line)

    def _read(self, line: bytes, number: int) -> Row:
        try:
            row = build(Row, parse_json(line), "the row")
            if not all(0 <= accuracy <= 1 for accuracy in (row.accuracy[-1], *row.accuracy, *row.backdoor)):
                raise ValueError("an accuracy is not in [0, 1]")
        except (ValueError, IndexError) as error:
            raise PrecadError(
                f"line {number} of {self.path} is damaged, delete it and its run is made again: {error}"
            ) from None
        return row


@dataclass(frozen=True)
class Spread:
    """The mean over some seeds, and how far they scatter."""

    mean: float
    std: float
    """The standard deviation of one seed; 0 if there is but one."""
    lowest: float
    highest: float
    count: int

    def percent(self) -> str:
        """The mean and the scatter for a table, as percentage points."""
        if self.count == 1:
            return f"{100 * self.mean:.1f} % (1 seed)"
        return f"{100 * self.mean:.1f} ± {100 * self.std:.1f} % ({self.count} seeds)"


def spread(values: Sequence[float]) -> Spread | None:
    """The mean and the scatter of a number over seeds; None without any."""
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), std, min(values), max(values), len(values))


def write_table(path: Path, text: Sequence[str], head: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    """Write a file of Markdown: the lines of a text, and a table below them."""
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in (head, *cells)]
    lines.insert(1, "|" + "---|" * len(head))
    write_file(path, "\n".join([*text, "", *lines]) + "\n")
