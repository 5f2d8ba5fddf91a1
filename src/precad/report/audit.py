"""The audit of a run's folder: whatever can be computed again is, and every file is compared with the others.

It shows that the files agree. Whoever can write the folder can write all of them anew, so that only a digest that
somebody kept elsewhere shows that nobody did.
"""

import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from precad.files import is_file, is_held
from precad.privacy.terms import Adversary
from precad.report import checks
from precad.report.books import Books
from precad.report.formatting import counted
from precad.report.manifest import run_digest
from precad.report.run import ReportError
from precad.report.statement import Statement

CHECKS = (
    checks.check_files,
    checks.check_manifest,
    checks.check_facts,
    checks.check_ledger,
    checks.check_lines,
    checks.check_costs,
    checks.check_weights,
    checks.check_page,
)
ONLY_AGREEMENT = (
    "This is about agreement alone: whoever can write the folder can write all of its files anew. Only a digest that "
    "was kept elsewhere shows that nobody did (--digest)."
)


@dataclass(frozen=True)
class Audited:
    """What the audit of a run's folder found."""

    differences: tuple[str, ...]
    """One sentence each, which names the file, what it says, and what is right where that is known."""
    unchecked: tuple[str, ...]
    """What could not be compared, and why."""
    digest: str
    """Of the run as it is, to be kept elsewhere."""
    kept: str | None
    """What the digest that was kept elsewhere shows, or that it is another; None where none was given."""
    statement: Statement | None
    """None where the files do not say what was run."""

    @property
    def agree(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def as_text(self) -> str:
        """For people."""
        lines = [f"DIFFERS: {sentence}" for sentence in self.differences]
        lines += [f"not checked: {sentence}" for sentence in self.unchecked]
        lines += [f"{counted(len(self.differences), 'difference')} found" if self.differences else "all files agree"]
        lines += [f"the digest of the run is {self.digest}", self.kept or ONLY_AGREEMENT]
        return "\n".join(lines if self.statement is None else [*lines, "", self.statement.as_text()])

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        statement = None if self.statement is None else self.statement.as_json()
        return {"agree": self.agree} | asdict(self) | {"statement": statement}


def audit_run(folder: Path, kept: str | None = None) -> Audited:
    """Compare all files of a run with each other, and with a digest that was ``kept`` elsewhere. Only reads.

    Args:
        folder: The run's folder.
        kept: The digest that was printed when the run ended or was audited; or a link of its ledger.

    Raises:
        ReportError: There is no run in the folder, or it is being played.
        ValueError: What was kept is no digest.
    """
    if not folder.is_dir():
        raise ReportError(f"there is no run in {folder}: it is no folder")
    config = folder / "config.toml"
    if not os.path.lexists(config):
        raise ReportError(f"there is no run in {folder}: config.toml is missing")
    if is_file(config) and is_held(config):
        raise ReportError(f"{folder} is in use by another process: a run is audited while nobody plays it")
    books = Books(folder)
    for check in CHECKS:
        books.attempt("config.toml", partial(check, books))
    digest = run_digest(books.digests)
    shown = None if kept is None else _compare(books, digest, kept)
    differences, unchecked = tuple(books.differences), tuple(books.unchecked)
    return Audited(differences, unchecked, digest, shown, _statement(books, digest))


def _compare(books: Books, digest: str, kept: str) -> str:
    """What a digest that was kept elsewhere shows; if it is another, that is a difference."""
    wanted = kept.lower()
    if len(wanted) != len(digest) or set(wanted) - set("0123456789abcdef"):
        raise ValueError(f"a digest has {len(digest)} hexadecimal digits, got {kept!r}")
    if wanted == digest:
        return "It is the digest that was kept: nothing of the run was changed since, but perhaps its page."
    for entry in books.entries:
        if wanted == entry.link:
            return (
                f"What was kept is the ledger's link of round {entry.round + 1}: up to there it was not written anew."
            )
    books.note(f"the digest of the run is {digest}, and {wanted} was kept: files were changed, or the run went on")
    return (
        "It is not the digest that was kept. If the run went on since (precad resume), it cannot be: compare a link of "
        "the ledger that was kept (--digest), which stays true for the rounds up to it. Else somebody changed a file."
    )


def _statement(books: Books, digest: str) -> Statement | None:
    config, terms = books.config, books.terms
    if config is None or terms is None:
        return None
    rounds = max(len(books.rounds), len(books.entries))
    most = books.most_exposed.get(rounds, rounds)
    name = books.folder.resolve().name
    said = {config.seed is None, *(line.private for line in books.rounds if line.private is not None)}
    costs = books.attempt("config.toml", lambda: {each: books.cost(each, most, rounds) for each in Adversary})
    if costs is None:
        return None
    return Statement(
        name=name if name.isprintable() else repr(name),
        digest=digest,
        training=config.training,
        terms=terms,
        rounds=rounds,
        unfinished=books.unfinished,
        participations=most,
        costs=costs,
        private=said == {True},
        differences=len(books.differences),
        unchecked=tuple(books.unchecked),
    )
