"""Patches and pooling of images on the CPU, in compiled loops over tables of places.

A *place* is an index into a flat image: one channel, or all channels of a record. A window table has one row per
entry of the sliding window and one column per position of the window: the place that this entry sees there.
"""

import numpy as np
from numpy.typing import NDArray

from precad.mpc.kernels import kernel, select

Floats = NDArray[np.float32]
Places = NDArray[np.uint64]


def window_table(
    plane: tuple[int, int], size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Places:
    """The table of a window of ``size`` on one channel, which includes its padding."""
    down, across = (
        np.arange(k)[:, None] * d + np.arange(0, length - d * (k - 1), s)
        for length, k, s, d in zip(plane, size, stride, dilation, strict=True)
    )
    places = down[:, None, :, None] * plane[1] + across[None, :, None, :]
    return places.reshape(size[0] * size[1], -1).astype(np.uint64)


@kernel
def gather(images: Floats, table: Places, out: Floats) -> None:
    """out[image, k] = images[image, table[k]]."""
    for image in range(images.shape[0]):
        for k in range(table.size):
            out[image, k] = images[image, table[k]]


@kernel
def scatter(values: Floats, table: Places, images: Floats) -> None:
    """images[image, place] = the sum of the values[image, k] with table[k] = place: the transpose of :func:`gather`."""
    for image in range(images.shape[0]):
        for place in range(images.shape[1]):
            images[image, place] = 0.0
        for k in range(table.size):
            images[image, table[k]] += values[image, k]


@kernel
def max_pool(planes: Floats, table: Places, largest: Floats, places: Places) -> None:
    """The largest entry of each window and its place: the first of equals; NaN counts as largest."""
    for plane in range(planes.shape[0]):
        for position in range(table.shape[1]):
            place = table[0, position]
            best = planes[plane, place]
            for entry in range(1, table.shape[0]):
                candidate = table[entry, position]
                value = planes[plane, candidate]
                better = (value > best) | (value != value)
                best = select(better, value, best)
                place = select(better, candidate, place)
            largest[plane, position] = best
            places[plane, position] = place


@kernel
def max_unpool(gradients: Floats, places: Places, planes: Floats) -> None:
    """Add each window's gradient to the place of its largest entry; ``planes`` is overwritten."""
    for plane in range(planes.shape[0]):
        for place in range(planes.shape[1]):
            planes[plane, place] = 0.0
        for position in range(places.shape[1]):
            planes[plane, places[plane, position]] += gradients[plane, position]
