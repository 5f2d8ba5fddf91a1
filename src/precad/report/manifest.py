"""The digests of a run's files, and one digest that stands for the whole run.

``manifest.json`` names the file that somebody changed later. Whoever can write the folder can write that file anew, so
it proves nothing by itself: the digest of the run, kept where nobody who can write the folder reaches it, does.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from precad.databases import DatabaseError, open_whole
from precad.files import is_file, open_to_read

MANIFEST, LEDGER, PAGE = "manifest.json", "ledger.sqlite", "report.html"
COVERED = (
    "config.toml",
    "machine.json",
    "about.json",
    "metrics.jsonl",
    "checkpoint.npz",
    LEDGER,
    "curves.png",
    "model.pt",
    "summary.json",
)
"""What the digest of a run stands for. The page is not in it: it follows from these, and may be written again."""


def file_digest(path: Path) -> str:
    """H of one file's bytes. What SQLite still holds beside a ledger, after a crash, counts as part of it."""
    try:
        with open_whole(path) if path.name == LEDGER else open_to_read(path) as stream:
            return hashlib.file_digest(stream, _new_hash).hexdigest()
    except DatabaseError as error:
        raise ValueError(f"{path} has no digest: {error}") from None


def text_digest(text: str) -> str:
    """Of a file that holds this text."""
    state = _new_hash()
    state.update(text.encode())
    return state.hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """Of every covered file that a run has by now. A link is no file of a run."""
    return {name: file_digest(folder / name) for name in COVERED if is_file(folder / name)}


def run_digest(digests: Mapping[str, str]) -> str:
    """One digest for these files, in hexadecimal. It changes with every round that is played."""
    return text_digest(manifest_text({name: digests[name] for name in COVERED if name in digests}))


def manifest_text(digests: Mapping[str, str]) -> str:
    """``manifest.json``."""
    return json.dumps(digests, indent=2) + "\n"


def _new_hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32, person=b"precad file")
