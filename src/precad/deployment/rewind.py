"""How a server notices that its store was set back, by a backup or a snapshot (docs/security.md, "A rewound server").

A store that is set back has forgotten what it revealed. Three things remember: the heads that clients show
(:func:`has_forgotten`), the marks on a second volume (:class:`Anchor`), and the file of the audit log
(:func:`check_log`). A server that finds one of them ahead of its store stops, and says so.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from precad.deployment import receipts
from precad.deployment.disk import SetBackError, StoreError
from precad.deployment.keys import Identity
from precad.deployment.store import Store
from precad.deployment.task import Task
from precad.files import is_file, read_text, words_of, write_file
from precad.mpc.prg import Digest
from precad.protocol.messages import Head

LOG = logging.getLogger("precad.server")
_MOST = 1 << 10
"""Bytes of a mark."""


class Anchor:
    """Marks on a second volume: what this server was about to open in each round, written once before it left."""

    def __init__(self, folder: Path, task: Task, server: Identity) -> None:
        self._folder, self._name = folder, f"{server.name}-{task.digest.hex()[:16]}"

    def begin(self) -> None:
        """Say that the marks of this server in this task are here. A folder that does not say so is not the anchor."""
        if not self._folder.is_dir():
            raise StoreError(f"there is no folder {self._folder} for the anchor: mount the volume, make the folder")
        with self._in_words("write", self._begun):
            marked = self._marked()
            if marked:
                raise StoreError(
                    f"{self._folder} has a mark of round {max(marked)}: this server has begun the task before"
                )
            with suppress(FileExistsError):  # written as marks are: a volume that cannot hold them is found now
                write_file(self._begun, "begun\n", private=True, new=True)

    def check(self, store: Store, path: Path) -> None:
        """:meth:`compare` at the start, with a warning if one snapshot sets both volumes back."""
        self.compare(store)
        self.warn_if_beside(path)

    def compare(self, store: Store) -> None:
        """Refuse a folder that is not the anchor, and a store that has not closed a round of which there is a mark."""
        with self._in_words("read", self._folder):
            self._check_mounted()
            forgotten = self._marked() - store.closed_rounds()
        if forgotten:
            raise SetBackError(f"the anchor has a mark of round {max(forgotten)}, which the store has not closed")

    def warn_if_beside(self, path: Path) -> None:
        """Warn if the anchor is on the device of the store at ``path``."""
        if self._folder.stat().st_dev == path.parent.stat().st_dev:
            LOG.warning("the anchor %s is on the same device as the store: one snapshot sets both back", self._folder)

    def mark(self, round_: int, outcome: Digest) -> None:
        """Write what is about to be opened, before it leaves. What was written for a round stays."""
        path = self._mark(round_)
        with self._in_words("write", path):
            self._check_mounted()
            try:
                write_file(path, outcome.hex(), private=True, new=True)
            except FileExistsError:
                if read_text(path, _MOST) != outcome.hex():
                    raise SetBackError(f"the anchor has another outcome of round {round_} than the store") from None

    def has(self, round_: int) -> bool:
        """Whether a round was marked."""
        with self._in_words("read", self._folder):
            self._check_mounted()
            return is_file(self._mark(round_))

    def _check_mounted(self) -> None:
        if not is_file(self._begun):
            raise StoreError(
                f"{self._folder} is not this server's anchor: {self._begun.name} is not there. Is the volume mounted? "
                "Was the anchor named before `precad server --init`?"
            )

    @contextmanager
    def _in_words(self, what: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot {what} the anchor {path}: {words_of(error)}") from None

    @property
    def _begun(self) -> Path:
        return self._folder / f"{self._name}-begun"

    def _mark(self, round_: int) -> Path:
        return self._folder / f"{self._name}-{round_}"

    def _marked(self) -> set[int]:
        pattern = re.compile(rf"{re.escape(self._name)}-(\d+)")
        found = (pattern.fullmatch(path.name) for path in self._folder.iterdir())
        return {int(match[1]) for match in found if match}


def has_forgotten(store: Store, head: Head) -> bool:
    """Whether a store does not hold the round of a head that its own server has signed."""
    line = store.line_of(head.round)
    return line is None or receipts.parse(line).events.next_model != head.model.hex()


def check_log(path: Path, store: Store) -> None:
    """Refuse a store that does not hold the last line of the audit log's file."""
    try:
        last = receipts.last_line(path)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read the audit log {path}: {words_of(error)}") from None
    if last is not None and store.line_of(last.events.round) != last.as_text():
        raise SetBackError(f"the audit log {path} ends with round {last.events.round}, which the store does not hold")
