"""Who took part and who was rejected: clients × rounds, rounds in columns of equal width where there are many."""

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precad.report.run import Run
from precad.report.settings import ReportError

MOST_COLUMNS = 200

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Participation:
    """Of every client in every column of rounds."""

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


def participation(run: Run) -> Participation | None:
    """Who took part in the rounds that were played; None if that is not recorded, or must not be shown.

    Only PRECAD's rounds have a ledger. A task that hides its participants counts on nobody seeing this (PROTOCOL §7a).
    """
    if run.ledger is None or run.settings.hidden or not run.rounds:
        return None
    played, done = [entry for entry in run.ledger.rounds if entry[0] < run.done], run.done
    names: list[str] = list(run.about.clients or ())
    index = {name: row for row, name in enumerate(names)}
    width = -(-done // MOST_COLUMNS)
    parsed: dict[str, Counts] = {}
    rows: list[tuple[int, Counts]] = []
    for number, text in played:
        if text not in parsed:
            if len(parsed) > 64:
                parsed.clear()  # with q = 1 all rounds are alike; with q < 1 hardly two are
            parsed[text] = _rows(text, number, index, names)
        rows.append((number // width, parsed[text]))
    shape = len(names), -(-done // width)
    took_part, rejected = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for column, members in rows:
        took_part[members, column] += 1
    for line in run.rounds:
        members = np.array([index[name] for name in line.rejected if name in index], np.int64)
        rejected[members, (line.round - 1) // width] += 1
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    return Participation(tuple(sorted(names)), width, done, took_part[order], rejected[order])


def rejections(run: Run) -> Counter[str]:
    """How often each client was rejected; nobody is named where participants are hidden."""
    counts = Counter[str]()
    if not run.settings.hidden:
        for line in run.rounds:
            counts.update(line.rejected.keys())
    return counts


def _rows(text: str, number: int, index: dict[str, int], names: list[str]) -> Counts:
    try:
        members = json.loads(text)
        for name in members:
            if name not in index:
                index[name] = len(names)
                names.append(name)
        return np.array([index[name] for name in members], np.int64)
    except (ValueError, TypeError) as error:
        raise ReportError(f"the ledger is damaged in round {number}: {error}") from None
