"""Image data sets fetched by pooch from their public addresses into the user's cache: checked, whole or not at all.

The digests are those of the published files. Many projects list the same ones beside the authors' own MD5.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pooch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from precad.errors import PrecadError
from precad.files import make_folder

TIMEOUT = 30.0
"""Seconds without a byte before an address is given up."""
RETRIES = 2
"""How often an address is asked again, after one second and then after two."""
LARGEST = 1 << 28
"""Bytes of the largest file that is accepted; the largest of :data:`SOURCES` has 170,052,171."""


class DataError(PrecadError):
    """Image files that are missing, damaged or out of reach."""


@dataclass(frozen=True)
class Source:
    """Where a data set is published."""

    addresses: tuple[str, ...]
    """Each ends in a slash; they are tried in this order."""
    files: dict[str, str]
    """Where each file is put, relative to the folder, and its SHA-256. The last part of the path is its name."""


def cache_folder() -> Path:
    """The folder of precad in the user's cache, ``~/.cache/precad`` on Linux; it need not exist yet.

    Raises:
        OSError: the operating system names no home folder.
    """
    try:
        return Path(pooch.os_cache("precad"))
    except RuntimeError as error:
        raise OSError("no home folder; set XDG_CACHE_HOME") from error


def download(source: Source, folder: Path) -> None:
    """Put the files of ``source`` that ``folder`` lacks, or has with another digest, there; with a bar on a terminal.

    A file takes its place only after its SHA-256 was found right; any other is removed.

    Raises:
        DataError: no address gives a file with the right digest, or the folder cannot be written.
    """
    pooch.get_logger().setLevel("WARNING")  # the bar, or the error, says all that it would
    for path, sha256 in source.files.items():
        try:
            make_folder((folder / path).parent)
        except OSError as error:
            raise DataError(f"cannot write {folder / path}: {error}") from error
        _fetch_from_any(source.addresses, path, sha256, folder)


def _fetch_from_any(addresses: tuple[str, ...], path: str, sha256: str, folder: Path) -> None:
    failures = []
    for address in addresses:
        url = address + PurePosixPath(path).name
        files = pooch.create(folder, address, registry={path: sha256}, urls={path: url}, retry_if_failed=RETRIES)
        try:
            files.fetch(path, downloader=_fetch)
            return
        except (OSError, ValueError, DataError) as error:
            failures.append(f"{url}: {_first_cause(error)}")
    raise DataError(f"cannot fetch {'; '.join(failures)}")


def _fetch(url: str, path: str, files: pooch.Pooch) -> None:
    console = Console(stderr=True)
    console.quiet = not console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        pooch.HTTPDownloader(_Bar(progress, url), chunk_size=1 << 18, timeout=TIMEOUT)(url, path, files)


class _Bar:
    """How far a download is, as pooch tells it. It ends one that is larger than any file of ours."""

    total = 0

    def __init__(self, progress: Progress, url: str) -> None:
        self._progress, self._task, self._done = progress, progress.add_task(url, total=None), 0

    def update(self, size: int) -> None:
        self._done += size
        self._progress.update(self._task, completed=self._done, total=self.total or None)
        if self._done > LARGEST:
            raise DataError(f"it is larger than {LARGEST} bytes")

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None: ...


def _first_cause(error: BaseException) -> BaseException:
    """What the operating system said, such as "Connection refused", without what libraries wrapped around it."""
    while error.__context__ is not None:
        error = error.__context__
    return error


SOURCES = {
    "mnist": Source(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "mnist/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "mnist/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "mnist/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "mnist/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion": Source(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "fashion/train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "fashion/train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "fashion/t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "fashion/t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/",),
        {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    ),
}
