"""The test vectors of docs/vectors.md: ``python -m tests.reference.vectors`` writes them.

All secrets come from H of a name, so that the file is the same each time, but for seals: HPKE draws by itself, so
those that are in the file stay.
"""

import json
from pathlib import Path

import precad.protocol
from tests.reference.book import Book
from tests.reference.computed import challenges, checks, numbers, receiving, rounds, submissions
from tests.reference.encoded import example_messages
from tests.reference.models import models
from tests.reference.signed import logs, seals, signatures, tasks
from tests.reference.transcripts import Table

FILE = Path(precad.protocol.__file__).parent / "vectors" / "version-2.json"


def made() -> list[Table]:
    """All vectors but the seals."""
    book = Book()
    for part in (
        numbers,
        models,
        example_messages,
        submissions,
        receiving,
        challenges,
        checks,
        rounds,
        signatures,
        logs,
        tasks,
    ):
        part(book)
    return book.vectors


def stored() -> list[Table]:
    """The vectors of the file."""
    vectors: list[Table] = json.loads(FILE.read_text())["vectors"]
    return vectors


def write() -> None:
    book = Book()
    seals(book)
    kept = [each for each in stored() if each["kind"] == "seal"] if FILE.exists() else book.vectors
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in [*made(), *kept])
    FILE.write_text(f'{{"version": 2, "vectors": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    write()
