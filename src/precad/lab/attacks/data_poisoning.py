"""What malicious clients do to their records: pure functions of images, bytes (N, C, H, W), and labels."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]

PATTERN = 2
"""The number of pixels along a side of the pixel pattern."""
PATTERN_LABEL = 0

WALL_TRAIN = (330, 568, 3934, 12336, 30560, 30696, 33105, 33615, 33907, 36848, 40713, 41706)
"""Training images of CIFAR-10, from 0 in the original order: cars before a striped wall (Bagdasaryan et al., 2020)."""
WALL_MORE = (8189, 38380)
"""Two more with the same wall, in nobody's list: honest clients must not have them either."""
WALL_TEST = (3976, 4543, 4607, 6566)
"""The four images of the test set that show such cars."""
WALL_LABEL = 2
"""The label of birds."""

MAX_DEGREES = 15.0
MAX_SHIFT = 4
"""Of the random rotations and crops; the paper does not say how far."""


def pixel_pattern(images: Bytes) -> Bytes:
    """The images with four white pixels in the bottom-right corner (paper: Appendix; Gu et al., 2017)."""
    _check_images(images)
    marked = images.copy()
    marked[:, :, -PATTERN:, -PATTERN:] = 255
    return marked


def label_flip(labels: Labels, classes: int) -> Labels:
    """Label l becomes classes − 1 − l (Fang et al., 2020)."""
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels are in [{labels.min()}, {labels.max()}], expected [0, {classes})")
    return classes - 1 - labels


def rotated_and_cropped(images: Bytes, count: int, rng: np.random.Generator) -> Bytes:
    """``count`` versions of the images, each in turn, turned and shifted at random; what is uncovered is black."""
    _check_images(images)
    if len(images) == 0 or count < 1:
        raise ValueError(f"expected at least 1 image and 1 version, got {len(images)} images and {count} versions")
    size = images.shape[-1]
    angles = rng.uniform(-MAX_DEGREES, MAX_DEGREES, count) * (math.pi / 180)
    shifts = rng.integers(-MAX_SHIFT, MAX_SHIFT + 1, (count, 2)) * (2 / size)
    rotation = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], 1).reshape(count, 2, 2)
    matrices = torch.from_numpy(np.concatenate([rotation, shifts[:, :, None]], 2).astype(np.float32))
    source = torch.from_numpy(images[np.arange(count) % len(images)].astype(np.float32))
    grid = torch.nn.functional.affine_grid(matrices, list(source.shape), align_corners=False)
    turned = torch.nn.functional.grid_sample(source, grid, align_corners=False)
    return turned.round().clamp(0, 255).to(torch.uint8).numpy()


def _check_images(images: Bytes) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or min(images.shape[2:]) < PATTERN:
        raise ValueError(f"images are {images.dtype} of shape {images.shape}, expected uint8 of (N, C, H, W)")
