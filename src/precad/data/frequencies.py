"""The lowest frequencies of an image: a few public features with which a linear model learns from very noisy sums."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import fft


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
