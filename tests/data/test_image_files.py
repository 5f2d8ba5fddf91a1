"""Every layout gives the same arrays; every damage is one sentence that names the file."""

import atexit
import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache as once
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precad.data import image_files
from precad.data.download import DataError
from precad.data.image_files import Arrays, find
from tests.data import fakes
from tests.messages import says

CIFAR_LAYOUTS = ("cifar10.npz", "cifar10 webp", "cifar10 bin", "cifar10 tar.gz")


@pytest.mark.parametrize("layout", fakes.LAYOUTS)
def test_all_layouts_hold_the_same_images(layout: str, tmp_path: Path) -> None:
    name, write = fakes.LAYOUTS[layout]
    assert find(name, tmp_path) is None
    write(tmp_path)
    for _ in range(2):  # decoded, and from the cache
        assert_is_the_fake(name, find(name, tmp_path))


@pytest.mark.parametrize("layout", fakes.LAYOUTS)
def test_other_sets_are_not_found(layout: str, tmp_path: Path) -> None:
    name, write = fakes.LAYOUTS[layout]
    write(tmp_path)
    assert all(find(other, tmp_path) is None for other in image_files.LAYOUTS if other != name)


@pytest.mark.parametrize("layout", [layout for layout in fakes.LAYOUTS if "npz" not in layout and "tar" not in layout])
def test_a_missing_file_is_named(layout: str, tmp_path: Path) -> None:
    name, write = fakes.LAYOUTS[layout]
    write(tmp_path)
    gone = sorted(path for path in tmp_path.rglob("*") if path.is_file())[2]
    gone.unlink()
    with pytest.raises(DataError, match=says(gone.name.removesuffix(".gz"), "missing")):
        find(name, tmp_path)


@pytest.mark.parametrize("layout", ["mnist.npz", "mnist idx", "mnist idx.gz", *CIFAR_LAYOUTS])
@settings(max_examples=25)
@given(st.data())
def test_damage_is_refused_or_harmless(layout: str, data: st.DataObject) -> None:
    """A file cut off or with a byte changed: a DataError that names it, or bytes, never another error."""
    name, original = written(layout)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(original, folder, dirs_exist_ok=True)
        path = data.draw(st.sampled_from(sorted(path for path in Path(folder).rglob("*") if path.is_file())))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            del content[at:]
        else:
            content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        try:
            arrays = find(name, Path(folder))
        except DataError as error:
            message = str(error)
        else:
            assert arrays is not None
            assert all(array.dtype == np.uint8 for array in vars(arrays).values())
            message = folder
        assert folder in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("''", "'00000803'")),
        (b"<html>", ("'3c68746d'", "'00000803'")),
        (fakes.idx(np.zeros(20, np.uint8)), ("'00000801'", "'00000803'")),
        (fakes.idx(np.zeros((20, 28, 28), np.uint8))[:-1], ("15695 bytes", 15696)),
        (fakes.idx(np.zeros((20, 28, 28), np.uint8)) + b"x", ("15697 bytes", 15696)),
    ],
)
def test_idx_files_are_checked(content: bytes, words: tuple[object, ...], tmp_path: Path) -> None:
    fakes.write_idx("mnist", tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says(path, *words)):
        find("mnist", tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"x_train": np.zeros((20, 28, 28))},
            ("x_train", "mnist.npz", "float64", "(20, 28, 28)", "uint8"),
        ),
        ({"x_test": np.zeros(4, np.uint8)}, ("x_test", "mnist.npz", "uint8", "(4,)")),
        ({"y_train": np.zeros(20)}, ("y_train", "mnist.npz", "float64", "(20,)", "(N,)")),
        ({"y_test": np.zeros((4, 1), int)}, ("y_test", "mnist.npz", "int64", "(4, 1)")),
        ({"y_test": np.array([0, -1, 0, 0])}, ("label", "y_test", "mnist.npz", "[0, 255]")),
        ({"x_train": np.array([None])}, ("mnist.npz", "Object arrays")),
    ],
)
def test_npz_files_are_checked(change: dict[str, np.ndarray], words: tuple[object, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", **(vars(fakes.fake("mnist")) | change))
    with pytest.raises(DataError, match=says(*words)):
        find("mnist", tmp_path)


def test_an_npz_without_an_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", x_train=np.zeros((1, 28, 28), np.uint8))
    with pytest.raises(DataError, match=says("mnist.npz", "y_train")):
        find("mnist", tmp_path)


def cut_a_batch(folder: Path) -> None:
    fakes.write_bin(folder)
    (folder / "data_batch_3.bin").write_bytes(b"x" * 3073)


def drop_a_member(folder: Path) -> None:
    fakes.write_tar(folder / "all.tar.gz")
    with tarfile.open(folder / "all.tar.gz") as old, tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as new:
        for member in old:
            if "batch_5" not in member.name:
                new.addfile(member, old.extractfile(member))


def drop_labels(folder: Path) -> None:
    fakes.write_webp(folder)
    np.savez(folder / "cifar10_labels.npz", y_train=np.zeros(20, np.uint8), y_test=np.zeros(3, np.uint8))


def few_labels(folder: Path) -> None:
    fakes.write_webp(folder)
    np.savez(folder / "cifar10_labels.npz", y_train=np.zeros(5, np.uint8), y_test=np.zeros(1, np.uint8))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (cut_a_batch, ("batches", "12292, 12292, 3073", "multiple of 3073")),
        (drop_a_member, ("cifar-10-binary.tar.gz", "data_batch_5.bin")),
        (drop_labels, ("cifar10_labels.npz", "23 labels", "multiple of 6")),
        (few_labels, ("cifar10_data_batch_1.webp", "64 × 64", "1 images")),
    ],
)
def test_cifar_files_are_checked(
    write: Callable[[Path], None], words: tuple[object, ...], tmp_path: Path, cache: Path
) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=says(*words)):
        find("cifar10", tmp_path)
    assert not list(cache.rglob("*.npy"))


def test_decoded_images_are_kept_and_mapped(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write_webp(tmp_path)
    first = find("cifar10", tmp_path)
    (cached,) = (cache / "decoded").iterdir()
    monkeypatch.setattr(image_files, "_read_mosaics", None)
    second = find("cifar10", tmp_path)
    for arrays in (first, second):
        assert arrays is not None
        assert not arrays.x_train.flags.writeable
        assert not arrays.x_train.flags.owndata
    assert cached.stat().st_size < 24 * 3073 + 200


def test_changed_files_are_decoded_anew(tmp_path: Path, cache: Path) -> None:
    fakes.write_webp(tmp_path)
    find("cifar10", tmp_path)
    shutil.copy(tmp_path / "cifar10_data_batch_1.webp", tmp_path / "cifar10_data_batch_2.webp")
    arrays = find("cifar10", tmp_path)
    assert arrays is not None
    assert np.array_equal(arrays.x_train[:4], arrays.x_train[4:8])
    assert len(list((cache / "decoded").iterdir())) == 2


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_a_damaged_cache_is_made_anew(content: bytes | None, tmp_path: Path, cache: Path) -> None:
    fakes.write_webp(tmp_path)
    find("cifar10", tmp_path)
    (cached,) = (cache / "decoded").iterdir()
    good = cached.read_bytes()
    cached.write_bytes(good[:-1] if content is None else content)
    assert_is_the_fake("cifar10", find("cifar10", tmp_path))
    assert cached.read_bytes() == good


@pytest.mark.parametrize("there", ["precad", "precad/decoded"])
def test_it_works_without_a_cache(there: str, tmp_path: Path, cache: Path) -> None:
    (cache.parent / there).parent.mkdir(exist_ok=True)
    (cache.parent / there).write_text("a file where the folder should be")
    fakes.write_webp(tmp_path)
    assert_is_the_fake("cifar10", find("cifar10", tmp_path))


def assert_is_the_fake(name: str, arrays: Arrays | None) -> None:
    assert arrays is not None
    expected = fakes.fake(name)
    for key in ("x_train", "x_test"):
        images = getattr(expected, key)
        channels_first = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        assert np.array_equal(getattr(arrays, key), channels_first)
    assert np.array_equal(arrays.y_train, expected.y_train)
    assert np.array_equal(arrays.y_test, expected.y_test)


@once
def written(layout: str) -> tuple[str, Path]:
    """The data set, and a folder with it, for all cases of a test."""
    name, write = fakes.LAYOUTS[layout]
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    write(folder)
    return name, folder


def test_a_packed_file_that_grows_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "MOST_BYTES", 1000)
    for name in image_files.IDX_FILES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(bytes(5000)))
    with pytest.raises(DataError, match=says("1,000")):
        image_files.find("mnist", tmp_path)
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name in ("a", "b"):
            member = tarfile.TarInfo(name)
            member.size = 800
            archive.addfile(member, io.BytesIO(bytes(800)))
    with pytest.raises(DataError, match=says("cifar-10-binary.tar.gz", "1,000")):
        image_files.find("cifar10", tmp_path)
    np.savez_compressed(tmp_path / "mnist.npz", x_train=np.zeros(5000, np.uint8))
    with pytest.raises(DataError, match=says("mnist.npz", "1,000")):
        image_files.find("mnist", tmp_path)
