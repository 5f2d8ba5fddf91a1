"""Whole files: whatever step a process dies at, the old file is there or the new one, and no other."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from precad import files

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

    for name in ("open", "fdopen", "fsync", "link", "close"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, watched(name, getattr(Path, name)))
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
    place = "os" if stop == "fsync" else "pathlib.Path"
    code = f"""
import os, pathlib, signal
from precad import files
{place}.{stop} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
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


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(OLD)
    (tmp_path / "link").symlink_to("target")
    files.write_file(tmp_path / "link", NEW)
    assert (tmp_path / "target").read_bytes() == NEW
    assert (tmp_path / "link").is_symlink()
