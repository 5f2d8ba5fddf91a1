"""Where the cache is, and that files appear in it whole or not at all."""

from pathlib import Path

import pytest

from precad.data.cache import cache_folder, replacing
from precad.data.image_files import DataError
from precad.data.image_sets import load


@pytest.mark.parametrize("base", ["", "relative/path"])
def test_without_an_absolute_xdg_folder_it_is_in_the_home(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/precad")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert cache_folder() == Path("/var/cache/someone/precad")


def test_without_a_home_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("PRECAD_DATA", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(DataError, match=r"^mnist cannot be downloaded: no home folder; set XDG_CACHE_HOME"):
        load("mnist")


def test_a_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with replacing(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(IsADirectoryError), replacing(path) as temporary:
        tmp_path.write_text(temporary.name)
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]
