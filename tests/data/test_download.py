"""Downloads from a server on 127.0.0.1: checked, whole or not at all, and only what is missing; where the cache is."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from precad.data import download
from precad.data.download import DataError, Source, cache_folder
from precad.data.image_files import IDX_FILES
from precad.data.image_sets import load
from tests.data import fakes
from tests.messages import says


class Site:
    """A folder that is served, what was asked for, and how many answers are to fail first."""

    failing = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        site = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if site.failing:
                    site.failing -= 1
                    return self.send_error(503)
                return super().do_GET()

            def log_message(self, *_: object) -> None:
                site.asked.append(self.path.removeprefix("/"))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
        self.address = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("PRECAD_DATA", raising=False)
    site = Site(tmp_path)
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fakes.write_idx("mnist", tmp_path, compress=True)
    fakes.write_tar(tmp_path / "cifar-10-binary.tar.gz")
    for name, files in (("mnist", [f"mnist/{name}.gz" for name in IDX_FILES]), ("cifar10", ["cifar-10-binary.tar.gz"])):
        digests = {file: hashlib.sha256((tmp_path / Path(file).name).read_bytes()).hexdigest() for file in files}
        monkeypatch.setitem(download.SOURCES, name, Source((site.address,), digests))
    monkeypatch.setattr(download, "RETRIES", 0)
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


def test_a_set_is_downloaded_once(site: Site, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert np.array_equal(load("mnist").x_train[:, 0], fakes.fake("mnist").x_train)
    assert site.asked == [f"{name}.gz" for name in IDX_FILES]
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == sorted(site.asked)
    assert capsys.readouterr() == ("", "")


def test_cifar_is_downloaded_and_kept_decoded(site: Site, cache: Path) -> None:
    for _ in range(2):
        assert np.array_equal(load("cifar10").y_train, fakes.fake("cifar10").y_train)
    assert site.asked == ["cifar-10-binary.tar.gz"]
    assert len(list((cache / "decoded").iterdir())) == 1


def test_only_missing_files_are_fetched(site: Site, cache: Path) -> None:
    load("mnist")
    (cache / "mnist" / f"{IDX_FILES[2]}.gz").unlink()
    site.asked.clear()
    load("mnist")
    assert site.asked == [f"{IDX_FILES[2]}.gz"]


def test_the_next_address_is_tried(site: Site, cache: Path) -> None:
    source = download.SOURCES["mnist"]
    download.download(Source((f"{site.address}nowhere/", site.address), source.files), cache)
    assert len(files(cache)) == 4


def test_no_test_can_reach_the_public_addresses() -> None:
    addresses = [address for source in download.SOURCES.values() for address in source.addresses]
    assert all(address.startswith("http://127.0.0.1:") for address in addresses)


def test_an_address_is_asked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "RETRIES", 1)
    site.failing = 1
    load("mnist")
    assert sum("train-images" in file for file in site.asked) > 1


def test_a_file_with_another_digest_in_the_cache_is_fetched_again(site: Site, cache: Path) -> None:
    load("mnist")
    swap(cache / "mnist")
    site.asked.clear()
    assert np.array_equal(load("mnist").x_train[:, 0], fakes.fake("mnist").x_train)
    assert site.asked == [f"{IDX_FILES[0]}.gz"]


def swap(folder: Path) -> None:
    """A file that can be read, but is another."""
    (folder / f"{IDX_FILES[0]}.gz").write_bytes((folder / f"{IDX_FILES[2]}.gz").read_bytes())


def cut(folder: Path) -> None:
    path = folder / f"{IDX_FILES[0]}.gz"
    path.write_bytes(path.read_bytes()[:-100])


def replace(folder: Path) -> None:
    (folder / f"{IDX_FILES[0]}.gz").write_text("<html>please log in</html>")


def remove(folder: Path) -> None:
    (folder / f"{IDX_FILES[0]}.gz").unlink()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (swap, "SHA256 .* expected [0-9a-f]{64} but got [0-9a-f]{64}"),
        (cut, "SHA256 .* expected [0-9a-f]{64} but got [0-9a-f]{64}"),
        (replace, "SHA256 .* expected [0-9a-f]{64} but got [0-9a-f]{64}"),
        (remove, "404 .*File not found"),
    ],
)
def test_wrong_files_are_refused_and_not_kept(harm: object, message: str, site: Site, cache: Path) -> None:
    assert callable(harm)
    harm(site.folder)
    with pytest.raises(DataError, match=f"{site.address}train-images-idx3-ubyte.gz.*{message}") as caught:
        load("mnist")
    assert "PRECAD_DATA may hold mnist as mnist.npz" in str(caught.value)
    assert files(cache) == []


def test_a_damaged_archive_is_refused(site: Site, cache: Path) -> None:
    path = site.folder / "cifar-10-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=says(f"{site.address}cifar-10-binary.tar.gz", "SHA256")):
        load("cifar10")
    assert files(cache) == []


def test_a_file_without_end_is_refused(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "LARGEST", 100)
    with pytest.raises(DataError, match=f"{site.address}.* 100 bytes"):
        load("mnist")
    assert files(cache) == []


def test_a_server_that_is_silent_or_absent(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(DataError, match=f"{address}.*timed out"):
            download.download(Source((address,), download.SOURCES["mnist"].files), cache)
    with pytest.raises(DataError, match=f"{address}.*Connection refused"):
        download.download(Source((address,), download.SOURCES["mnist"].files), cache)
    assert files(cache) == []
    assert site.asked == []


@pytest.mark.usefixtures("site")
def test_a_stopped_download_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        (temporary,) = files(cache)
        assert temporary.stat().st_size > 0
        raise KeyboardInterrupt

    monkeypatch.setattr(download._Bar, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        load("mnist")
    assert files(cache) == []


@pytest.mark.usefixtures("site")
def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=says(cache / "mnist/train-images-idx3-ubyte.gz", "Not a directory")):
        load("mnist")


@pytest.mark.parametrize("base", ["", "relative/path"])
def test_without_an_absolute_xdg_folder_it_is_in_the_home(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/precad")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert cache_folder() == Path("/var/cache/someone/precad")


def test_without_a_home_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_: str) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PRECAD_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", no_home)
    with pytest.raises(DataError, match=says("mnist", "XDG_CACHE_HOME")):
        load("mnist")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
