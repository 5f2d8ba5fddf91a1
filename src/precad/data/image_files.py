"""Image data sets as files in a folder: which layouts are read, and how (:data:`LAYOUTS` lists them for people).

Every reader gives unsigned bytes, images as (N, C, H, W), and refuses a damaged file by its name. Nothing is
unpickled. CIFAR-10 that has to be decompressed is decoded once and then read from the cache, memory-mapped.
"""

import gzip
import hashlib
import math
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.arrays import open_archive, parse_array, read_member
from precad.data.download import DataError, cache_folder
from precad.files import make_folder, open_to_read, read_bytes, whole_file

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")

_ARRAYS = "(arrays x_train, y_train, x_test, y_test)"
_IDX = f"the four idx files {', '.join(IDX_FILES)}, each with or without .gz"
LAYOUTS = {
    "mnist": f"mnist.npz {_ARRAYS}, or {_IDX}, in the folder, in mnist or in MNIST/raw",
    "fashion": f"fashion_mnist.npz or fashion.npz {_ARRAYS}, or {_IDX}, in fashion or in FashionMNIST/raw",
    "cifar10": f"cifar10.npz {_ARRAYS}, or cifar10_data_batch_1.webp to _5.webp with cifar10_test_batch.webp and "
    "cifar10_labels.npz, or the binary (not the pickled) release: data_batch_1.bin to data_batch_5.bin and "
    "test_batch.bin, in the folder or in cifar-10-batches-bin, or cifar-10-binary.tar.gz",
}
_NPZ_FILES = {"mnist": ("mnist",), "fashion": ("fashion_mnist", "fashion"), "cifar10": ("cifar10",)}
_IDX_FOLDERS = {"mnist": (".", "mnist", "MNIST/raw"), "fashion": ("fashion", "FashionMNIST/raw"), "cifar10": ()}
_CIFAR_RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes

MOST_BYTES = 1 << 29
"""Of a file, or of one array or batch in it once it is unpacked: 512 MiB."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Arrays:
    """What the files hold: images (N, C, H, W), labels (N,)."""

    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes


def find(name: str, folder: Path) -> Arrays | None:
    """The data set in the first layout of :data:`LAYOUTS` that is in ``folder``; None if none is.

    Raises:
        DataError: files of a layout are there, but one is missing or damaged.
    """
    for stem in _NPZ_FILES[name]:
        if (path := folder / f"{stem}.npz").is_file():
            return _read_npz(path)
    for place in _IDX_FOLDERS[name]:
        if paths := _all_or_none(folder / place, IDX_FILES, ("", ".gz")):
            x_train, y_train, x_test, y_test = map(_read_idx, paths, (3, 1, 3, 1))
            return Arrays(x_train[:, None], y_train, x_test[:, None], y_test)
    return _find_cifar(folder) if name == "cifar10" else None


def _find_cifar(folder: Path) -> Arrays | None:
    if paths := _all_or_none(folder, (*(f"cifar10_{batch}.webp" for batch in CIFAR_BATCHES), "cifar10_labels.npz")):
        return _split(_decoded_once(paths, lambda: _read_mosaics(paths)))
    for place in (".", "cifar-10-batches-bin"):
        if paths := _all_or_none(folder / place, [f"{batch}.bin" for batch in CIFAR_BATCHES]):
            return _split(_stack(folder / place, [np.frombuffer(_read(path), np.uint8) for path in paths]))
    if (path := folder / "cifar-10-binary.tar.gz").is_file():
        return _split(_decoded_once([path], lambda: _read_cifar_archive(path)))
    return None


def _all_or_none(folder: Path, names: Sequence[str], endings: Sequence[str] = ("",)) -> list[Path]:
    found = [next((path for ending in endings if (path := folder / (name + ending)).is_file()), None) for name in names]
    paths = [path for path in found if path is not None]
    if paths and len(paths) < len(names):
        raise DataError(f"{folder / names[found.index(None)]} is missing, though {paths[0].name} is there")
    return paths


def _read(path: Path) -> bytes:
    with _reading(path):
        return _unpacked(path) if path.suffix == ".gz" else read_bytes(path, MOST_BYTES)


def _unpacked(path: Path) -> bytes:
    with open_to_read(path) as file, gzip.open(file) as unpacked:
        content = unpacked.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise DataError(f"it has more than {MOST_BYTES:,} bytes")
    return content


def _read_idx(path: Path, dimensions: int) -> Bytes:
    """An idx file of unsigned bytes: two zero bytes, 8, the dimensions, their sizes as big-endian words, the data."""
    data = _read(path)
    header = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)) or len(data) < header:
        raise DataError(f"{path} is damaged: it begins with {data[:4].hex()!r}, expected '0000080{dimensions}'")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    if len(data) != header + math.prod(shape):
        raise DataError(f"{path} is damaged: {len(data)} bytes, its header says {header + math.prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _read_npz(path: Path) -> Arrays:
    arrays = _npz_arrays(path, "x_train", "y_train", "x_test", "y_test")
    return Arrays(*((_images if key.startswith("x") else _labels)(path, key, array) for key, array in arrays))


def _npz_arrays(path: Path, *keys: str) -> list[tuple[str, NDArray[Any]]]:
    with _reading(path), open_archive(path) as archive:
        return [(key, parse_array(read_member(archive, f"{key}.npy", MOST_BYTES))) for key in keys]


def _images(path: Path, key: str, x: NDArray[Any]) -> Bytes:
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise DataError(f"{key} of {path} is {x.dtype} of shape {x.shape}, expected uint8 (N, H, W) or (N, H, W, C)")
    return x[:, None] if x.ndim == 3 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def _labels(path: Path, key: str, y: NDArray[Any]) -> Bytes:
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{key} of {path} is {y.dtype} of shape {y.shape}, expected integers (N,)")
    labels = y.astype(np.int64)
    if np.any((labels < 0) | (labels > 255)):
        raise DataError(f"a label in {key} of {path} is not in [0, 255]")
    return labels.astype(np.uint8)


def _read_cifar_archive(path: Path) -> Bytes:
    """The six batches of ``cifar-10-binary.tar.gz``: (6, N, 3073), each record a label and its planes."""
    batches: dict[str, Bytes] = {}
    left = MOST_BYTES
    with _reading(path), open_to_read(path) as packed, tarfile.open(fileobj=packed, mode="r:gz") as archive:
        for member in archive:
            batch = Path(member.name).name.removesuffix(".bin")
            left -= member.size
            if left < 0:
                raise DataError(f"it has more than {MOST_BYTES:,} bytes")
            if batch in CIFAR_BATCHES and (file := archive.extractfile(member)):
                batches[batch] = np.frombuffer(file.read(), np.uint8)
    if missing := [batch for batch in CIFAR_BATCHES if batch not in batches]:
        raise DataError(f"{path} is damaged: {missing[0]}.bin is not in it")
    return _stack(path, [batches[batch] for batch in CIFAR_BATCHES])


def _read_mosaics(paths: Sequence[Path]) -> Bytes:
    """Lossless WebP mosaics of 32 × 32 images, row by row, and last their labels: as :func:`_read_cifar_archive`."""
    from PIL import Image

    *mosaics, labels_path = paths
    labels = np.concatenate([_labels(labels_path, key, y) for key, y in _npz_arrays(labels_path, "y_train", "y_test")])
    size = labels.size // len(mosaics)
    if labels.size != size * len(mosaics) or size == 0:
        raise DataError(f"{labels_path} is damaged: {labels.size} labels, expected a multiple of {len(mosaics)}")
    batches = np.empty((len(mosaics), size, _CIFAR_RECORD), np.uint8)
    batches[:, :, 0] = labels.reshape(len(mosaics), size)
    for batch, path in zip(batches, mosaics, strict=True):
        with _reading(path), open_to_read(path) as file, Image.open(file, formats=["WEBP"]) as mosaic:
            pixels = np.asarray(mosaic.convert("RGB"))
        rows, columns = pixels.shape[0] // 32, pixels.shape[1] // 32
        if pixels.shape != (32 * rows, 32 * columns, 3) or rows * columns != size:
            raise DataError(f"{path} is damaged: {pixels.shape[1]} × {pixels.shape[0]} pixels are not {size} images")
        batch[:, 1:] = pixels.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3).reshape(size, -1)
    return batches


def _stack(path: Path, batches: Sequence[Bytes]) -> Bytes:
    sizes = [batch.size for batch in batches]
    if len(set(sizes)) > 1 or sizes[0] == 0 or sizes[0] % _CIFAR_RECORD:
        raise DataError(
            f"the batches in {path} are damaged: {sizes} bytes, expected six times the same multiple of {_CIFAR_RECORD}"
        )
    return np.stack([batch.reshape(-1, _CIFAR_RECORD) for batch in batches])


def _split(batches: Bytes) -> Arrays:
    train, test = batches[:-1].reshape(-1, _CIFAR_RECORD), batches[-1]
    return Arrays(train[:, 1:].reshape(-1, 3, 32, 32), train[:, 0], test[:, 1:].reshape(-1, 3, 32, 32), test[:, 0])


def _decoded_once(paths: Sequence[Path], decode: Callable[[], Bytes]) -> Bytes:
    """``decode()``, memory-mapped from the cache if files with these digests were decoded before.

    The cache is a convenience: where it cannot be written or read, the result stays in memory.
    """
    key = hashlib.sha256()
    for path in paths:
        with _reading(path), open_to_read(path) as file:
            key.update(hashlib.file_digest(file, "sha256").digest())
    try:
        cached = cache_folder() / "decoded" / f"cifar10-{key.hexdigest()[:32]}.npy"
        if (batches := _mapped(cached)) is not None:
            return batches
    except OSError:
        return decode()
    batches = decode()
    try:
        make_folder(cached.parent)
        with whole_file(cached) as file:
            np.save(file, batches, allow_pickle=False)
        mapped = _mapped(cached)
    except OSError:
        return batches
    return batches if mapped is None else mapped


def _mapped(path: Path) -> Bytes | None:
    try:
        batches = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, EOFError, ValueError):
        return None
    shape_is_right = batches.ndim == 3 and batches.shape[::2] == (len(CIFAR_BATCHES), _CIFAR_RECORD)
    return np.asarray(batches) if shape_is_right and batches.dtype == np.uint8 else None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What a library raises at a damaged file depends on where the damage is: here it is always a DataError."""
    try:
        yield
    except Exception as error:
        raise DataError(f"{path} cannot be read or is damaged: {error}") from error
