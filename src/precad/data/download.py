"""Image data sets fetched from their public addresses: checked by SHA-256, whole or not at all.

The digests are of the *contents*, so that they hold whoever compressed the file: of an idx file, and of the six
batches of CIFAR-10's binary release one after another. They were taken of files whose MD5 is the published one.
"""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from precad.data.cache import replacing
from precad.data.image_files import IDX_FILES, DataError, read_cifar_archive

TIMEOUT = 30.0
"""Seconds without a byte before an address is given up."""
LARGEST = 1 << 28
"""Bytes of the largest file that is accepted; the largest of :data:`SOURCES` has 170,052,171."""
_CHUNK = 1 << 18


@dataclass(frozen=True)
class RemoteFile:
    """A file at each address of its source."""

    path: str
    """Where it is put, relative to the folder; its last part is its name at the addresses."""
    sha256: str
    """Of its contents, in hexadecimal."""


@dataclass(frozen=True)
class Source:
    """Where a data set is published."""

    addresses: tuple[str, ...]
    """Each ends in a slash; they are tried in this order."""
    files: tuple[RemoteFile, ...]


def download(source: Source, folder: Path) -> None:
    """Put the files of ``source`` that are not yet there into ``folder``, with a progress bar on stderr.

    Raises:
        DataError: no address gives a file with the right digest, or the folder cannot be written.
    """
    missing = [file for file in source.files if not (folder / file.path).is_file()]
    if not missing:
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for file in missing:
            _fetch_from_any(source.addresses, file, folder, progress)


def contents_sha256(path: Path, name: str) -> str:
    """The digest that :class:`RemoteFile` states of the file at ``path`` that is called ``name``.

    Raises:
        DataError: it cannot be decompressed.
    """
    if name.endswith(".tar.gz"):
        return hashlib.sha256(read_cifar_archive(path).data).hexdigest()
    try:
        with gzip.open(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is damaged: {error}") from error


def _fetch_from_any(addresses: tuple[str, ...], file: RemoteFile, folder: Path, progress: Progress) -> None:
    path = folder / file.path
    failures = []
    for address in addresses:
        url = address + path.name
        try:
            with replacing(path) as temporary:
                _fetch(url, temporary, progress)
                if (digest := contents_sha256(temporary, path.name)) != file.sha256:
                    raise DataError(f"the SHA-256 of its contents is {digest}, expected {file.sha256}")
            return
        except DataError as error:
            failures.append(f"{url}: {error}")
        except OSError as error:
            raise DataError(f"cannot write {path}: {error}") from error
    raise DataError(f"cannot fetch {'; '.join(failures)}")


def _fetch(url: str, path: Path, progress: Progress) -> None:
    try:
        with urlopen(url, timeout=TIMEOUT) as answer, path.open("wb") as file:  # noqa: S310 - an address of a Source
            length = answer.headers.get("Content-Length", "")
            task = progress.add_task(url, total=int(length) if length.isdecimal() else None)
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                progress.advance(task, len(chunk))
                if file.tell() > LARGEST:
                    raise DataError(f"it is larger than {LARGEST} bytes")
    except (OSError, HTTPException) as error:
        raise DataError(str(error)) from error


def _idx_files(folder: str, digests: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(f"{folder}/{name}.gz", sha256) for name, sha256 in zip(IDX_FILES, digests, strict=True))


SOURCES = {
    "mnist": Source(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        _idx_files(
            "mnist",
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
    ),
    "fashion": Source(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        _idx_files(
            "fashion",
            (
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/",),
        (RemoteFile("cifar-10-binary.tar.gz", "013ba16d14ecc4829da62bf2af648ca30f600491ecb3e7f329c827db0dd17522"),),
    ),
}
