"""The folder where precad keeps what it can make again, and files that appear there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/precad``, else ``~/.cache/precad``; it need not exist yet.

    Raises:
        OSError: there is neither that variable nor a home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():  # the XDG specification ignores a relative one
        return Path(base) / "precad"
    try:
        return Path.home() / ".cache" / "precad"
    except RuntimeError as error:
        raise OSError("no home folder; set XDG_CACHE_HOME") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its place at the end; on any error it is removed instead."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
