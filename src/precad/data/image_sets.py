"""The image data sets of the experiments: MNIST, Fashion-MNIST, CIFAR-10, and scikit-learn's small digits.

Pixels stay unsigned bytes, CIFAR-10's memory-mapped where possible, and become normalised floats batch by batch: in
float32 all of CIFAR-10 would take 737 MB, as bytes it takes 184 MB.
"""

import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import fft

from precad.data.download import SOURCES, DataError, cache_folder, download
from precad.data.image_files import LAYOUTS, Arrays, find

Name = Literal["digits", "mnist", "fashion", "cifar10"]
Bytes = NDArray[np.uint8]

CLASSES = 10


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set. Images are bytes (N, C, H, W), 0 black and 255 white; labels are in [0, classes). All read-only."""

    name: Name
    x_train: Bytes = field(repr=False)
    y_train: NDArray[np.int64] = field(repr=False)
    x_test: Bytes = field(repr=False)
    y_test: NDArray[np.int64] = field(repr=False)
    classes: int = CLASSES

    def normalise(self, images: Bytes) -> torch.Tensor:
        """Images (N, C, H, W) of this set, also changed ones, as the model takes them: (x/255 − mean)/std, float32.

        Mean and standard deviation of each channel are the public constants of :data:`MEAN_AND_STD`: taken from a
        client's own data they would leak it.
        """
        shape = self.x_train.shape[1:]
        if images.dtype != np.uint8 or images.shape[1:] != shape:
            raise ValueError(f"images are {images.dtype} of shape {images.shape}, expected uint8 of (N, *{shape})")
        mean, std = (torch.tensor(values).reshape(1, -1, 1, 1) for values in MEAN_AND_STD[self.name])
        return torch.from_numpy(images.astype(np.float32)).div_(255).sub_(mean).div_(std)


MEAN_AND_STD: dict[Name, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "digits": ((0.3053,), (0.3759,)),
    "mnist": ((0.1307,), (0.3081,)),
    "fashion": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
"""Of the training set's pixels in [0, 1], each channel; of all images for digits."""

SHAPES: dict[Name, tuple[int, ...]] = {"mnist": (1, 28, 28), "fashion": (1, 28, 28), "cifar10": (3, 32, 32)}


def load(name: Name, folder: Path | None = None) -> ImageData:
    """The data set from ``folder``, else from ``$PRECAD_DATA``, else from the cache, into which it is downloaded.

    A folder may hold any of :data:`precad.data.image_files.LAYOUTS`. digits needs no folder: it comes with
    scikit-learn; of its 1,797 images, sorted by label, every fifth is for the test (1,437 and 360).

    Raises:
        ValueError: no such data set.
        DataError: it is not there, is damaged, or cannot be downloaded; the message says what to put where.
    """
    if name not in get_args(Name):
        raise ValueError(f"the data set is {name!r}, expected one of {', '.join(get_args(Name))}")
    if name == "digits":
        return _digits()
    try:
        place = _place(name, folder)
        arrays = find(name, place)
        if arrays is None:
            raise DataError(f"{name} is not in {place}")
        return _checked(name, place, arrays)
    except (DataError, OSError) as error:
        raise DataError(
            f"{error}. A folder given by --data or PRECAD_DATA may hold {name} as {LAYOUTS[name]}."
        ) from error


def lowest_frequencies(images: NDArray[np.uint8], size: int) -> torch.Tensor:
    """Of grey images (N, 1, H, W): size × size of the cosine transform but the constant one, scaled to norm 1.

    High frequencies are raised a little, by (1 + u² + v²)^¼. Nothing here depends on anybody's data but the image's.
    """
    if images.ndim != 4 or images.shape[1] != 1 or not 2 <= size <= min(images.shape[2:]):
        raise ValueError(f"expected grey images of at least {size} × {size} pixels, got shape {images.shape[1:]}")
    waves = fft.dctn(images[:, 0] / 255, axes=(1, 2), norm="ortho")[:, :size, :size]
    steps = np.arange(size)
    weights = (1 + steps[:, None] ** 2 + steps[None] ** 2) ** 0.25
    rows = (waves * weights).reshape(len(images), -1)[:, 1:]
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return torch.from_numpy((rows / norms).astype(np.float32))


def _place(name: Name, folder: Path | None) -> Path:
    """The folder that was named; else the cache, with the data set."""
    named = folder or os.environ.get("PRECAD_DATA")
    if named:
        if not Path(named).is_dir():
            raise DataError(f"there is no folder {named}{'' if folder else ' (from PRECAD_DATA)'}")
        return Path(named)
    try:
        place = cache_folder()
    except OSError as error:
        raise DataError(f"{name} cannot be downloaded: {error}") from error
    download(SOURCES[name], place)
    return place


def _checked(name: Name, place: Path, arrays: Arrays) -> ImageData:
    """Shapes, lengths and labels are those of the data set; how many images there are is free."""
    for part, x, y in (("training", arrays.x_train, arrays.y_train), ("test", arrays.x_test, arrays.y_test)):
        what = f"the {part} set of {name} in {place} is damaged"
        if x.shape[1:] != SHAPES[name]:
            raise DataError(f"{what}: images (C, H, W) of {x.shape[1:]}, expected {SHAPES[name]}")
        if len(x) != len(y) or len(x) == 0:
            raise DataError(f"{what}: {len(x)} images and {len(y)} labels, expected the same number, at least 1")
        if int(y.max()) >= CLASSES:
            raise DataError(f"{what}: a label is {y.max()}, expected less than {CLASSES}")
    return _image_data(name, arrays)


def _digits() -> ImageData:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib warns where it could not start processes; none is started here
        from sklearn.datasets import load_digits
    digits = load_digits()
    order = np.argsort(digits.target, kind="stable")
    images = np.round(digits.images[order] * (255 / 16)).astype(np.uint8)[:, None]
    labels = digits.target[order]
    test = np.arange(len(labels)) % 5 == 0
    return _image_data("digits", Arrays(images[~test], labels[~test], images[test], labels[test]))


def _image_data(name: Name, found: Arrays) -> ImageData:
    arrays = found.x_train, found.y_train.astype(np.int64), found.x_test, found.y_test.astype(np.int64)
    for array in arrays:
        array.flags.writeable = False
    return ImageData(name, *arrays)
