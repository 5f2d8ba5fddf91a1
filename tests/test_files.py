"""Whole files: whatever step a process dies at, the old file is there or the new one, and no other."""

import errno
import os
import secrets
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from precad import files
from tests.messages import says

OLD, NEW = b"old" * 100, b"new" * 50_000


class Killed(BaseException):
    pass


def steps(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> list[str]:
    """Call ``before`` with its number before every call by which a file is written; the calls that were made."""
    made: list[str] = []

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*arguments: Any, **options: Any) -> Any:
            before(len(made))
            made.append(name)
            return call(*arguments, **options)

        return replaced

    for name in ("open", "fdopen", "fsync", "link", "replace", "unlink", "close"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    return made


@pytest.mark.parametrize("new", [False, True])
def test_whoever_is_stopped_between_two_steps_leaves_the_old_file_or_the_new(tmp_path: Path, *, new: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made = steps(patch, lambda _: None)
        files.write_file(tmp_path / "first", NEW, new=new)
    assert {"open", "fsync", "link" if new else "replace"} <= set(made)
    seen = set()
    for stop in range(len(made)):
        path = tmp_path / f"file-{stop}"
        if not new:
            path.write_bytes(OLD)

        def kill(number: int, stop: int = stop) -> None:
            if number == stop:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            steps(patch, kill)
            with pytest.raises(Killed):
                files.write_file(path, NEW, new=new)
        found = path.read_bytes() if path.exists() else None
        assert found in (None if new else OLD, NEW)
        seen.add(found)
    assert len(seen) == 2


@pytest.mark.parametrize("stop", ["fsync", "replace"])
def test_a_process_that_is_killed_leaves_the_old_file(tmp_path: Path, stop: str) -> None:
    """By kill -9, after the draft is written and before it has the file's name: a draft is left, and nothing else."""
    path = tmp_path / "file"
    path.write_bytes(OLD)
    code = f"""
import os, pathlib, signal
from precad import files
from tests.messages import says
os.{stop} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
files.write_file(pathlib.Path({str(path)!r}), b"new")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert path.read_bytes() == OLD
    files.write_file(path, NEW)
    assert path.read_bytes() == NEW


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_file(path, NEW)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_file(path, "first, in UTF-8: ε")
    with pytest.raises(TypeError), files.whole_file(path) as out:  # noqa: PT012 - the block is what fails
        out.write(b"half")
        out.write("text")  # type: ignore[call-overload]
    assert path.read_text(encoding="utf-8") == "first, in UTF-8: ε"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_secret_is_its_owners_from_its_first_byte(tmp_path: Path) -> None:
    with files.whole_file(tmp_path / "key", private=True) as out:
        (draft,) = tmp_path.iterdir()
        assert stat.S_IMODE(draft.stat().st_mode) == 0o600
        out.write(b"secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    files.write_file(tmp_path / "public", b"")
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o644


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    files.write_file(tmp_path / "file", OLD, new=True)
    with pytest.raises(FileExistsError):
        files.write_file(tmp_path / "file", NEW, new=True)
    assert (tmp_path / "file").read_bytes() == OLD
    assert len(list(tmp_path.iterdir())) == 1


def planted(folder: Path, how: str) -> tuple[Path, Path]:
    """Somebody put something in the place of a file to write; and the file of yours that it leads to."""
    yours, place = folder / "yours", folder / "place"
    yours.write_bytes(OLD)
    if how == "link":
        place.symlink_to(yours)
    elif how == "link to nothing":
        place.symlink_to(folder / "not yet")
    elif how == "hard link":
        place.hardlink_to(yours)
    elif how == "pipe":
        os.mkfifo(place)
    elif how == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place))
    else:
        place.mkdir()
    return place, yours


PLANTED = ["link", "link to nothing", "hard link", "pipe", "socket", "folder"]


@pytest.mark.parametrize("how", PLANTED)
@pytest.mark.parametrize("write", [files.write_file, lambda path, _: files.open_to_append(path).close()])
def test_nothing_is_written_through_what_somebody_planted(tmp_path: Path, how: str, write: Callable[..., None]) -> None:
    place, yours = planted(tmp_path, how)
    before = set(tmp_path.iterdir())
    if how == "hard link" and write is files.write_file:
        write(place, NEW)
        assert place.read_bytes() == NEW
    else:
        with pytest.raises(files.FileError, match=f"{place}.*{how.split(' to ')[0].split()[-1]}"):
            write(place, NEW)
    assert yours.read_bytes() == OLD
    assert set(tmp_path.iterdir()) == before


def test_a_draft_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that was is not written through."""
    (tmp_path / "yours").write_bytes(OLD)
    (tmp_path / ".file.ab.draft").symlink_to("yours")
    monkeypatch.setattr(secrets, "token_hex", lambda _: "ab")
    with pytest.raises(FileExistsError):
        files.write_file(tmp_path / "file", NEW)
    assert (tmp_path / "yours").read_bytes() == OLD


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files.write_file(tmp_path / "link" / "file", NEW)
    assert (tmp_path / "real" / "file").read_bytes() == NEW


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(OLD)
    held = files.lock_file(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        files.lock_file(tmp_path / "lock")
    held.close()
    files.lock_file(tmp_path / "lock").close()
    assert (tmp_path / "lock").read_bytes() == OLD


@pytest.mark.parametrize("how", ["pipe", "socket", "folder"])
def test_only_a_regular_file_is_read(tmp_path: Path, how: str) -> None:
    place, _ = planted(tmp_path, how)
    with pytest.raises(files.FileError, match=f"{place}.*{how}"):
        files.read_bytes(place)


def test_a_device_that_never_ends_is_not_read() -> None:
    with pytest.raises(files.FileError, match=says("/dev/zero", "device")):
        files.read_text(Path("/dev/zero"))


def test_a_link_is_read(tmp_path: Path) -> None:
    place, yours = planted(tmp_path, "link")
    assert files.read_bytes(place) == yours.read_bytes()


def test_a_file_that_is_too_long_or_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as out:
        out.truncate(8 << 40)
    with pytest.raises(files.FileError, match=says(path, f"{8 << 40:,}")):
        files.open_to_read(path)
    path.write_bytes(b"abc\xff")
    with pytest.raises(files.FileError, match=says(path, "UTF-8", 3)):
        files.read_text(path)
    assert files.read_bytes(path, most=4) == b"abc\xff"
    with pytest.raises(files.FileError, match=says(path, 4, 3)):
        files.read_bytes(path, most=3)


def test_a_file_that_says_it_is_empty_and_is_not_is_read_no_further_than_its_bound() -> None:
    """As those of the system are."""
    with pytest.raises(files.FileError, match=says("/proc/self/maps", 100)):
        files.read_bytes(Path("/proc/self/maps"), most=100)


def test_a_folder_in_a_folder_that_a_person_named_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "quick").symlink_to("real")
    files.make_folder(tmp_path / "quick")
    with pytest.raises(files.FileError, match=says(tmp_path / "quick", "link")):
        files.make_folder(tmp_path / "quick", inner=True)


def test_what_cannot_be_written_is_named_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def denied(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_EXCL:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(PermissionError) as raised:
        files.write_file(tmp_path / "file", NEW)
    assert raised.value.filename == str(tmp_path / "file")
