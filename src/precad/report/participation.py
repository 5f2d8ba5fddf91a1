"""Who took part: of every client, in which rounds, and in which of them it was rejected; and the grid that shows it."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from precad.report.run import Run

MOST_COLUMNS = 200
"""Of the grid of clients × rounds."""
MOST_ROWS = 100
"""The grid shows so many clients, the rejected ones first; the table shows all."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Participation:
    """Of every client in every column of rounds; where there are many rounds, each column stands for several."""

    clients: tuple[str, ...]
    width: int
    """Rounds in a column; the last may have fewer."""
    rounds: int
    took_part: Counts
    """clients × columns."""
    rejected: Counts
    """Of those, how many were rejected."""

    def span(self, column: int) -> tuple[int, int]:
        """The first and the last round of a column, counted from 1."""
        return column * self.width + 1, min(self.rounds, (column + 1) * self.width)

    @property
    def totals(self) -> list[tuple[str, int, int]]:
        """Of every client: its name, how many updates it sent, how many of them were rejected."""
        sent, rejected = self.took_part.sum(axis=1).tolist(), self.rejected.sum(axis=1).tolist()
        return list(zip(self.clients, sent, rejected, strict=True))


def participation(run: Run) -> Participation | None:
    """Who took part in the rounds that were played; None if that is not recorded, or must not be shown.

    Only PRECAD's rounds have a ledger. A task that hides its participants counts on nobody seeing this
    (PROTOCOL §7a).
    """
    if run.ledger is None or run.hidden or not run.rounds:
        return None
    index = {name: row for row, name in enumerate(run.about.clients or ())}
    width = -(-run.done // MOST_COLUMNS)

    @lru_cache(64)  # with q = 1 all rounds are alike; with q < 1 hardly two are
    def rows_of(participants: tuple[str, ...]) -> Counts:
        """Clients that were not known yet get the next rows."""
        return np.array([index.setdefault(name, len(index)) for name in participants], np.int64)

    entries = (entry for entry in run.ledger.entries() if entry.round < run.done)
    rows = [(entry.round // width, rows_of(entry.participants)) for entry in entries]
    names = list(index)
    shape = len(names), -(-run.done // width)
    took_part, rejected = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for column, members in rows:
        took_part[members, column] += 1
    for line in run.rounds:
        members = np.array([index[name] for name in line.rejected if name in index], np.int64)
        rejected[members, (line.round - 1) // width] += 1
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    return Participation(tuple(sorted(names)), width, run.done, took_part[order], rejected[order])


@dataclass(frozen=True)
class Grid:
    """Clients × rounds: accepted in shades by how many of a column's rounds, any rejection in its own colour."""

    width: ClassVar[int] = 1040
    left: ClassVar[int] = 150
    shades: ClassVar[int] = 4

    taken: Participation

    @cached_property
    def rows(self) -> list[int]:
        """The clients that are shown, in the order of their names."""
        worst = np.argsort(-self.taken.rejected.sum(axis=1), kind="stable")[:MOST_ROWS]
        return sorted(worst.tolist())

    @property
    def height(self) -> int:
        """Of a row."""
        return 16 if len(self.rows) <= 30 else 9 if len(self.rows) <= 60 else 6

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.taken.took_part.shape[1])

    @property
    def cell(self) -> float:
        """The width of a column."""
        return (self.width - self.left) / self.columns

    @property
    def paths(self) -> list[tuple[str, str]]:
        """(classes, path) of all cells of one shade; cells side by side are one rectangle."""
        shades, found = self._shades(), []
        for shade in (*range(1, self.shades + 1), -1):
            rectangles = [
                f"M{self.left + start * self.cell:.2f} {row * self.height}"
                f"h{(end - start) * self.cell:.2f}v{self.height - 1}h{(start - end) * self.cell:.2f}z"
                for row, line in enumerate(shades)
                for start, end in _stretches(line == shade)
            ]
            if rectangles:
                found.append(("rejected" if shade < 0 else f"accepted a{shade}", "".join(rectangles)))
        return found

    def _shades(self) -> Counts:
        """0 absent, 1 to 4 by the share of the rounds, −1 where anything was rejected."""
        taken = self.taken
        sizes = np.array([last - first + 1 for first, last in map(taken.span, range(self.columns))])
        shares = taken.took_part / sizes
        if taken.width > 1 and shares.size:  # against the fullest cell: with q = 0.1 all would be pale
            shares = shares / max(1e-9, float(shares.max()))
        return np.where(taken.rejected > 0, -1, np.ceil(self.shades * shares).astype(np.int64))[self.rows]

    @property
    def names(self) -> list[tuple[int, str]]:
        """(place, name) of the rows, of every third where they are narrow."""
        every = 1 if self.height >= 12 else -(-16 // self.height)
        return [(place, self.taken.clients[row]) for place, row in enumerate(self.rows)][::every]

    @property
    def ticks(self) -> list[tuple[float, int]]:
        """(place, first round) of five columns."""
        marks = sorted({0, *(i * self.columns // 4 for i in (1, 2, 3)), self.columns - 1})
        return [(self.left + (column + 0.5) * self.cell, self.taken.span(column)[0]) for column in marks]

    @property
    def rejected_elsewhere(self) -> int:
        """How many of the clients that are not shown were ever rejected."""
        ever = self.taken.rejected.sum(axis=1) > 0
        return int(ever.sum() - ever[self.rows].sum())

    @property
    def data(self) -> dict[str, object]:
        """What ``report.js`` needs."""
        taken, rows = self.taken, self.rows
        return {
            "left": self.left,
            "cell": self.cell,
            "height": self.height,
            "width": taken.width,
            "rounds": taken.rounds,
            "names": [taken.clients[row] for row in rows],
            "sent": taken.took_part[rows].tolist(),
            "bad": taken.rejected[rows].tolist(),
        }


def _stretches(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Where a row of cells is true: from, and up to but without."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
