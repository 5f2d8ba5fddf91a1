"""One JSON line for each run that was made, in a file that only grows."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.experiments.plan import Experiment


@dataclass(frozen=True)
class Row:
    """What a run came to."""

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
        """At the end of the run."""
        return self.accuracy[-1]

    @property
    def final_backdoor(self) -> float:
        """At the end of the run."""
        if not self.backdoor:
            raise ValueError(f"the run {self.key} has no backdoor")
        return self.backdoor[-1]


class RowFile:
    """rows.jsonl of a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows.jsonl"
        self._rows: dict[str, Row] = {}
        if self.path.exists():
            text = self.path.read_text()
            for number, line in enumerate(text.splitlines(keepends=True), 1):
                if line.endswith("\n"):  # else it was cut off, and its run is made again
                    row = self._read(line, number)
                    self._rows[row.key] = row
            if text and not text.endswith("\n"):
                self.path.write_text(text[: text.rfind("\n") + 1])

    def add(self, row: Row) -> None:
        """Write down one more run."""
        with self.path.open("a") as out:
            out.write(json.dumps(asdict(row), allow_nan=False) + "\n")
        self._rows[row.key] = row

    def get(self, experiment: Experiment) -> Row | None:
        """The row of a run, if it was made."""
        return self._rows.get(experiment.key)

    def all(self) -> list[Row]:
        """All rows, in the order in which they were made."""
        return list(self._rows.values())

    def found(self, experiments: Iterable[Experiment]) -> list[Row]:
        """The rows that there are."""
        return [row for row in map(self.get, experiments) if row is not None]

    def _read(self, line: str, number: int) -> Row:
        try:
            return Row(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise PrecadError(f"line {number} of {self.path} is damaged: {error}") from None
