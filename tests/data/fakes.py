"""Small data sets in every layout that precad reads, all of the same images."""

import gzip
import io
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from precad.data.image_files import CIFAR_BATCHES, IDX_FILES

Bytes = NDArray[np.uint8]
BATCH = 4
SHAPES = {"mnist": (28, 28), "fashion": (28, 28), "cifar10": (32, 32, 3)}


@dataclass(frozen=True)
class Fake:
    """20 training and 4 test images, (N, H, W) or (N, H, W, C)."""

    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes


def fake(name: str) -> Fake:
    rng = np.random.default_rng(len(name))
    x = rng.integers(0, 256, (6 * BATCH, *SHAPES[name]), np.uint8)
    y = rng.integers(0, 10, 6 * BATCH, np.uint8)
    return Fake(x[: 5 * BATCH], y[: 5 * BATCH], x[5 * BATCH :], y[5 * BATCH :])


def write_npz(name: str, path: Path) -> None:
    np.savez_compressed(path, **vars(fake(name)))


def write_idx(name: str, folder: Path, *, compress: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in zip(IDX_FILES, vars(fake(name)).values(), strict=True):
        data = idx(array)
        (folder / (file + ".gz" * compress)).write_bytes(gzip.compress(data, mtime=0) if compress else data)


def write_bin(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for batch, data in batches().items():
        (folder / f"{batch}.bin").write_bytes(data)


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for batch, data in batches().items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{batch}.bin")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_webp(folder: Path) -> None:
    data = fake("cifar10")
    images_of = np.concatenate([data.x_train, data.x_test]).reshape(6, BATCH, 32, 32, 3)
    for batch, images in zip(CIFAR_BATCHES, images_of, strict=True):
        mosaic = images.reshape(2, 2, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(64, 64, 3)
        Image.fromarray(mosaic).save(folder / f"cifar10_{batch}.webp", lossless=True)
    np.savez(folder / "cifar10_labels.npz", y_train=data.y_train, y_test=data.y_test)


def idx(array: Bytes) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def batches() -> dict[str, bytes]:
    data = fake("cifar10")
    planes = np.concatenate([data.x_train, data.x_test]).transpose(0, 3, 1, 2).reshape(6, BATCH, -1)
    labels = np.concatenate([data.y_train, data.y_test]).reshape(6, BATCH, 1)
    return {
        batch: record.tobytes()
        for batch, record in zip(CIFAR_BATCHES, np.concatenate([labels, planes], 2), strict=True)
    }


LAYOUTS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "mnist.npz": ("mnist", lambda d: write_npz("mnist", d / "mnist.npz")),
    "mnist idx": ("mnist", lambda d: write_idx("mnist", d)),
    "mnist idx.gz": ("mnist", lambda d: write_idx("mnist", d / "mnist", compress=True)),
    "mnist torchvision": ("mnist", lambda d: write_idx("mnist", d / "MNIST" / "raw")),
    "fashion_mnist.npz": ("fashion", lambda d: write_npz("fashion", d / "fashion_mnist.npz")),
    "fashion.npz": ("fashion", lambda d: write_npz("fashion", d / "fashion.npz")),
    "fashion idx": ("fashion", lambda d: write_idx("fashion", d / "fashion")),
    "fashion torchvision": ("fashion", lambda d: write_idx("fashion", d / "FashionMNIST" / "raw", compress=True)),
    "cifar10.npz": ("cifar10", lambda d: write_npz("cifar10", d / "cifar10.npz")),
    "cifar10 webp": ("cifar10", write_webp),
    "cifar10 bin": ("cifar10", write_bin),
    "cifar10 bin folder": ("cifar10", lambda d: write_bin(d / "cifar-10-batches-bin")),
    "cifar10 tar.gz": ("cifar10", lambda d: write_tar(d / "cifar-10-binary.tar.gz")),
}
"""What it is called in tests → the data set, and how to write it into a folder."""
