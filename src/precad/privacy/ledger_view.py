"""A ledger that is only looked at: nothing is written, and whoever counts goes on counting."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from precad.privacy.ledger import LedgerError, read_terms
from precad.privacy.terms import Terms


@dataclass(frozen=True)
class LedgerView:
    """A ledger at one moment. Its links are shown, not recomputed: ``precad ledger verify`` does that."""

    terms: Terms
    rounds: tuple[tuple[int, str], ...]
    """(round counted from 0, its participants as a JSON list), in the order in which they were counted."""
    last_link: str
    """Empty before the first round."""


def view(path: Path) -> LedgerView:
    """The ledger at ``path`` as it is now; a :class:`LedgerError` if there is none or it is damaged."""
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path}")
    try:
        with closing(connect_to_read(path)) as connection:
            connection.execute("BEGIN")
            (stored,) = connection.execute("SELECT json FROM terms").fetchone()
            rows = connection.execute("SELECT round, participants FROM entries ORDER BY number").fetchall()
            last = connection.execute("SELECT link FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        return LedgerView(read_terms(stored)[1], tuple(rows), last[0] if last else "")
    except (sqlite3.Error, TypeError, LedgerError) as error:
        raise LedgerError(f"{path} is not a ledger that can be read: {error}") from None


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A file that nobody has open, so without a write-ahead log, is read as the file it is: no other file appears."""
    at_rest = not path.with_name(f"{path.name}-wal").exists()
    way = "mode=ro&immutable=1" if at_rest else "mode=ro"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, isolation_level=None)
