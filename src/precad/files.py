"""How every file is read and written. Whoever made a folder, and whatever lies in it, nothing outside it is harmed.

A file that is written is whole at every moment: no reader, and no process after a crash, ever meets half of one. No
link is followed to write: a file in a folder that somebody else made may be one that leads to a file of yours. A folder
itself may be a link, as the person names it. A file that is read is a regular one, of a bounded length: a pipe or a
device would never end.
"""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 1 << 28
"""Of a file that is read as a whole: 256 MiB."""
_LONG, _HOLLOW = 1 << 30, 64
"""A file beyond this length that takes less than one part in this many of it on the disk is made to waste time."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileError(OSError):
    """A file that is not what it must be: a pipe, a link, too long, no text. The words do not repeat its name."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(errno.EINVAL, words, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path, on Linux."""


def words_of(error: Exception) -> str:
    """What an error says, without the number and the file's name that the operating system's have."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def open_to_read(path: Path) -> BufferedReader:
    """A regular file, open to be read. A pipe, a device or terabytes of nothing are a :class:`FileError`, at once."""
    _check_kind(path, os.stat(path))
    descriptor = os.open(path, _READ)
    try:
        found = os.fstat(descriptor)
        _check_kind(path, found)
        if found.st_size > _LONG and found.st_size > _HOLLOW * 512 * found.st_blocks:
            raise FileError(path, f"it says that it has {found.st_size:,} bytes, and holds {512 * found.st_blocks:,}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """All of a regular file of at most ``most`` bytes; a longer one is a :class:`FileError`."""
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise FileError(path, f"it has {max(size, len(content)):,} bytes, and at most {most:,} are read")
    return content


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """All of a regular file, which is text in UTF-8."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise FileError(path, f"it is not text in UTF-8, from byte {error.start:,} on") from None


@contextmanager
def whole_file(path: Path, *, private: bool = False, new: bool = False, durable: bool = True) -> Iterator[BinaryIO]:
    """A stream to write a file to; at the end of the block the file appears at its place, in one step.

    The content goes to a hidden draft in the same folder, whose name nobody can foresee, then to the disk, and only
    then takes the file's name. Until that step the old file is untouched; whoever is killed, or meets a full disk,
    leaves it as it was. A file that had the same content under a second name keeps it there.

    Args:
        path: The file's place. Its folder must exist.
        private: Whether the owner alone may read and write it, from its first byte on.
        new: Whether an existing file is an error instead of replaced.
        durable: Whether to wait for the disk. Without, the file outlives the process, but may not outlive a power cut.

    Raises:
        FileExistsError: There is such a file, and ``new`` was asked for.
        FileError: There is something else in its place, such as a link, which is not followed.
    """
    folder, name = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path.name
    try:
        if not new:
            check_own(path)
        draft = f".{name}.{secrets.token_hex(8)}.draft"
        try:
            descriptor = os.open(draft, _DRAFT, 0o600 if private else 0o666, dir_fd=folder)
        except OSError as error:
            error.filename = str(path)
            raise
        try:
            with os.fdopen(descriptor, "wb") as out:
                yield out
                if durable:
                    out.flush()
                    os.fsync(out.fileno())
            if new:  # unlike a rename, it fails if the name is taken
                os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            else:
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            if durable:
                os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
    finally:
        os.close(folder)


def write_file(
    path: Path, content: str | bytes, *, private: bool = False, new: bool = False, durable: bool = True
) -> None:
    """Write a file by :func:`whole_file`. Text is written in UTF-8."""
    with whole_file(path, private=private, new=new, durable=durable) as out:
        out.write(content.encode() if isinstance(content, str) else content)


def open_to_append(path: Path, *, private: bool = False) -> BinaryIO:
    """A file that grows, made if there is none: to be read anywhere, and written at its end.

    What is written goes to this file itself, so one with a second name (a hard link) is a :class:`FileError` too. One
    that is to be ``private``, and was made when it was not, is from now on.
    """
    check_own(path, single=True)
    descriptor = os.open(path, _APPEND, 0o600 if private else 0o666)
    try:
        found = os.fstat(descriptor)
        _check_kind(path, found, single=True)
        if private and is_open_to_others(found):
            os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, "ab+")
    except BaseException:
        os.close(descriptor)
        raise


def make_file(path: Path, *, private: bool = False) -> None:
    """Make an empty file, if there is none. One that is there is not opened, but must be what a writer may write to.

    One that is to be ``private``, and was made when it was not, is from now on.
    """
    check_own(path, single=True)
    try:
        os.close(os.open(path, _APPEND | os.O_EXCL, 0o600 if private else 0o666))
    except FileExistsError:
        if private and is_open_to_others(path.lstat()):
            path.chmod(0o600)


def is_open_to_others(found: os.stat_result) -> bool:
    """Whether anybody but its owner may read, write or run a file."""
    return bool(stat.S_IMODE(found.st_mode) & 0o077)


def lock_file(path: Path, *, private: bool = False) -> BinaryIO:
    """A file that this process alone holds until it closes it; ``BlockingIOError`` if another one does."""
    file = open_to_append(path, private=private)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def is_held(path: Path) -> bool:
    """Whether a process holds a file by :func:`lock_file` now. Nothing is written."""
    with open_to_read(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_file(path: Path) -> bool:
    """Whether there is a file itself: no link, folder, pipe or device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def check_own(path: Path, *, single: bool = False) -> None:
    """Refuse to write where there is anything but a regular file, or nothing.

    Args:
        path: Where something is to be written. A link is not followed.
        single: Whether a file with a second name (a hard link) is refused too, as it must be if it is written in place.
    """
    with suppress(FileNotFoundError):
        _check_kind(path, os.lstat(path), single=single)


def make_folder(path: Path, *, private: bool = False, new: bool = False, inner: bool = False) -> None:
    """Make a folder, and those that it is in.

    Args:
        path: The folder.
        private: Whether its owner alone may look into it.
        new: Whether there must be none yet.
        inner: Whether it is in a folder that a person named, and not named itself: then it is no link.
    """
    if inner and path.is_symlink():
        raise FileError(path, "it is a link, not a folder")
    path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=not new)


def flush_folder(folder: Path) -> None:
    """Put a folder's list of names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_kind(path: Path, found: os.stat_result, *, single: bool = False) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise FileError(path, f"it is {_KINDS.get(kind, 'something else')}, not a file")
    if single and found.st_nlink > 1:
        raise FileError(path, f"it has {found.st_nlink} names (hard links), and is not written under all of them")


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name by which the system takes a Unix socket's path, however long that is."""
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        yield os.fspath(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
