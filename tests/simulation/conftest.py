"""No test of this folder reads or writes the user's cache, or downloads anything from outside."""

from pathlib import Path

import pytest

from precad.data.download import SOURCES, Source


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    for name, source in SOURCES.items():
        monkeypatch.setitem(SOURCES, name, Source(("http://127.0.0.1:9/",), source.files))
    return base / "precad"
