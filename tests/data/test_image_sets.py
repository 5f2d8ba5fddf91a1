"""The data sets: where they are looked for, what is refused, how pixels are normalised, and the real ones."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from precad.data.download import DataError
from precad.data.image_sets import ImageData, Name, load
from tests.data import fakes
from tests.messages import says

REAL = Path(os.environ.get("PRECAD_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(not REAL.is_dir(), reason="no folder with the real data sets: set PRECAD_DATA")

MD5 = {
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    "fashion": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    "cifar10": (
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ),
}
"""As published, of the raw idx files, and of the batches of CIFAR-10's binary release."""


@pytest.fixture(autouse=True)
def _no_folder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRECAD_DATA", raising=False)


def test_the_folder_comes_first_then_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write_npz("mnist", tmp_path / "mnist.npz")
    monkeypatch.setenv("PRECAD_DATA", str(tmp_path / "nowhere"))
    assert load("mnist", tmp_path).name == "mnist"
    with pytest.raises(DataError, match=says(f"no folder {tmp_path}/nowhere", "PRECAD_DATA")):
        load("mnist")
    monkeypatch.setenv("PRECAD_DATA", str(tmp_path))
    assert load("mnist").name == "mnist"


@pytest.mark.parametrize("name", ["mnist", "fashion", "cifar10"])
def test_an_empty_folder_gets_the_list_of_layouts(name: Name, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says(name, tmp_path, "--data", f"{name}.npz")):
        load(name, tmp_path)
    with pytest.raises(DataError, match=says(f"no folder {tmp_path}/x")):
        load(name, tmp_path / "x")
    with pytest.raises(DataError, match="File name too long"):
        load(name, tmp_path / ("x" * 300))


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(ValueError, match=says("data set", "'imagenet'", "digits", "mnist", "fashion", "cifar10")):
        load("imagenet")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"x_test": np.zeros((4, 27, 28), np.uint8)},
            ("test set", "(1, 27, 28)", "(1, 28, 28)"),
        ),
        ({"x_train": np.zeros((20, 28, 28, 3), np.uint8)}, ("training set", "(3, 28, 28)", "(1, 28, 28)")),
        ({"y_train": np.zeros(19, np.uint8)}, ("training set", "20 images", "19 labels")),
        ({"y_test": np.array([0, 9, 10, 1], np.uint8)}, ("test set", "label is 10")),
        ({"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, np.uint8)}, ("0 images", "0 labels")),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    change: dict[str, np.ndarray], words: tuple[object, ...], tmp_path: Path
) -> None:
    np.savez(tmp_path / "mnist.npz", **(vars(fakes.fake("mnist")) | change))
    with pytest.raises(DataError, match=says(*words)):
        load("mnist", tmp_path)


def test_images_are_normalised_by_the_public_constants(tmp_path: Path) -> None:
    fakes.write_webp(tmp_path)
    data = load("cifar10", tmp_path)
    for x in (data.x_train, data.x_test):
        images = data.normalise(x[[2, 0, 2]])
        assert images.dtype == torch.float32
        assert images.shape == (3, 3, 32, 32)
        assert images[1, 2, 5, 7].item() == pytest.approx((x[0, 2, 5, 7] / 255 - 0.4465) / 0.2616, abs=1e-6)
        assert torch.equal(images[0], images[2])
        assert torch.equal(data.normalise(x)[[2, 0, 2]], images)


def test_changed_images_can_be_normalised_and_others_not(tmp_path: Path) -> None:
    fakes.write_npz("mnist", tmp_path / "mnist.npz")
    data = load("mnist", tmp_path)
    white = np.full((2, 1, 28, 28), 255, np.uint8)
    assert data.normalise(white).numpy() == pytest.approx((1 - 0.1307) / 0.3081)
    with pytest.raises(ValueError, match=says("images", "uint8", "(2, 28, 28)", "(1, 28, 28)")):
        data.normalise(white[:, 0])
    with pytest.raises(ValueError, match=says("images", "float64")):
        data.normalise(white / 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", fakes.LAYOUTS)
def test_arrays_are_read_only(layout: str, tmp_path: Path) -> None:
    name, write = fakes.LAYOUTS[layout]
    write(tmp_path)
    data = load(name, tmp_path)  # type: ignore[arg-type]
    assert not any(a.flags.writeable for a in (data.x_train, data.y_train, data.x_test, data.y_test))
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert repr(data) == f"ImageData(name='{name}', classes=10)"


def test_digits_are_always_split_alike() -> None:
    data = load("digits")
    assert data.x_train.shape == (1437, 1, 8, 8)
    assert data.x_test.shape == (360, 1, 8, 8)
    assert np.bincount(data.y_test).tolist() == [36, 36, 36, 36, 37, 36, 36, 36, 35, 36]
    digest = hashlib.sha256(data.x_train.tobytes() + data.y_train.astype(np.uint8).tobytes()).hexdigest()
    assert digest == "2a4fcae674719d2f086d77fc22202a1697dbbec6ae88f790fcdeba5678c32e2b"
    everything = data.normalise(np.concatenate([data.x_train, data.x_test]))
    assert everything.mean().item() == pytest.approx(0, abs=1e-3)
    assert everything.std().item() == pytest.approx(1, abs=1e-3)


@needs_data
@pytest.mark.parametrize("name", ["mnist", "fashion"])
def test_the_real_idx_sets(name: Name) -> None:
    data = load(name, REAL)
    arrays = [data.x_train[:, 0], data.y_train.astype(np.uint8), data.x_test[:, 0], data.y_test.astype(np.uint8)]
    contents = [fakes.idx(array) for array in arrays]
    assert tuple(hashlib.md5(content, usedforsecurity=False).hexdigest() for content in contents) == MD5[name]
    assert_normalised(data)


@needs_data
@pytest.mark.long
def test_the_real_cifar() -> None:
    """Also the images of the semantic backdoor are where their indices say: all are cars."""
    data = load("cifar10", REAL)
    images = np.concatenate([data.x_train, data.x_test]).reshape(6, 10_000, 3072)
    labels = np.concatenate([data.y_train, data.y_test]).astype(np.uint8).reshape(6, 10_000, 1)
    for pixels, label, md5 in zip(images, labels, MD5["cifar10"], strict=True):
        records = np.concatenate([label, pixels], 1).tobytes()
        assert hashlib.md5(records, usedforsecurity=False).hexdigest() == md5
    assert_normalised(data)
    backdoor = [30696, 33105, 33615, 33907, 36848, 40713, 41706, 330, 568, 3934, 12336, 30560]
    assert set(data.y_train[backdoor]) == {1}


def assert_normalised(data: ImageData) -> None:
    channels = data.normalise(data.x_train[:10_000]).transpose(0, 1).flatten(1)
    assert channels.mean(1).numpy() == pytest.approx(0, abs=0.02)
    assert channels.std(1).numpy() == pytest.approx(1, abs=0.02)
