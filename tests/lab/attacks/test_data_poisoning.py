import numpy as np
import pytest

from precad.lab.attacks import data_poisoning
from precad.lab.attacks.data_poisoning import Bytes
from tests.messages import says

IMAGES = np.random.default_rng(1).integers(0, 200, (5, 3, 32, 32), np.uint8)


def test_the_pattern_is_four_white_pixels_in_the_corner() -> None:
    marked = data_poisoning.pixel_pattern(IMAGES)
    assert (marked[:, :, 30:, 30:] == 255).all()
    marked[:, :, 30:, 30:] = IMAGES[:, :, 30:, 30:]
    assert np.array_equal(marked, IMAGES)


def test_labels_are_mirrored() -> None:
    assert data_poisoning.label_flip(np.array([0, 3, 9]), 10).tolist() == [9, 6, 0]
    with pytest.raises(ValueError, match=says("labels", "[0, 9]", "[0, 5)")):
        data_poisoning.label_flip(np.array([0, 9]), 5)


def test_versions_are_turned_and_shifted_and_come_from_each_image_in_turn() -> None:
    flat = np.stack([np.full((3, 32, 32), value, np.uint8) for value in (50, 100)])
    versions = data_poisoning.rotated_and_cropped(flat, 1000, np.random.default_rng(2))
    assert versions.shape == (1000, 3, 32, 32)
    assert versions.dtype == np.uint8
    assert (versions[:, :, 16, 16] == np.tile([50, 100], 500)[:, None]).all()
    assert len(np.unique(versions.reshape(1000, -1), axis=0)) > 990
    again = data_poisoning.rotated_and_cropped(flat, 1000, np.random.default_rng(2))
    assert np.array_equal(versions, again)


def test_shifts_and_turns_stay_within_their_limits() -> None:
    """A white dot in the middle lands within 4 pixels of shift, and the turn's half pixel, of the middle."""
    dot = np.zeros((1, 1, 33, 33), np.uint8)
    dot[0, 0, 16, 16] = 255
    for version in data_poisoning.rotated_and_cropped(dot, 200, np.random.default_rng(3)):
        at = np.argwhere(version[0] == version.max())[0]
        assert np.abs(at - 16).max() <= data_poisoning.MAX_SHIFT + 1


def test_the_wall_images_are_those_of_the_list() -> None:
    assert len(set(data_poisoning.WALL_TRAIN)) == 12
    assert len(set(data_poisoning.WALL_TEST)) == 4
    assert not set(data_poisoning.WALL_TRAIN) & set(data_poisoning.WALL_MORE)


@pytest.mark.parametrize("images", [IMAGES.astype(np.float32), IMAGES[0], IMAGES[:, :, :1]])
def test_other_arrays_are_refused(images: Bytes) -> None:
    with pytest.raises(ValueError, match=says("uint8", "(N, C, H, W)")):
        data_poisoning.pixel_pattern(images)


def test_no_image_has_no_versions() -> None:
    with pytest.raises(ValueError, match=says("1 image", "1 version", "0 images")):
        data_poisoning.rotated_and_cropped(IMAGES[:0], 5, np.random.default_rng(1))
