"""Files that are whole at every moment: no reader, and no process after a crash, ever meets half of one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, private: bool = False, new: bool = False, durable: bool = True) -> Iterator[BinaryIO]:
    """A stream to write a file to; at the end of the block the file appears at its place, in one step.

    The content goes to a hidden draft in the same folder, then to the disk, and only then takes the file's name. Until
    that step the old file is untouched; whoever is killed, or meets a full disk, leaves it as it was.

    Args:
        path: The file's place. Its folder must exist.
        private: Whether the owner alone may read and write it, from its first byte on.
        new: Whether an existing file is an error instead of replaced.
        durable: Whether to wait for the disk. Without, the file outlives the process, but may not outlive a power cut.

    Raises:
        FileExistsError: There is such a file, and ``new`` was asked for.
    """
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            if durable:
                out.flush()
                os.fsync(out.fileno())
        if new:
            os.link(draft, path)  # unlike a rename, it fails if the name is taken
        else:
            draft.replace(path)
        if durable:
            flush_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_file(
    path: Path, content: str | bytes, *, private: bool = False, new: bool = False, durable: bool = True
) -> None:
    """Write a file by :func:`whole_file`. Text is written in UTF-8."""
    with whole_file(path, private=private, new=new, durable=durable) as out:
        out.write(content.encode() if isinstance(content, str) else content)


def flush_folder(folder: Path) -> None:
    """Put a folder's list of names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
