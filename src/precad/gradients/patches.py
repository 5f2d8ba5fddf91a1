"""Patches of images: what the sliding windows of convolutions and pooling see, and back.

On the CPU these are compiled loops over tables. A *place* is an index into a flat image: one channel, or all channels
of a record. A table of a window has one row per entry of the window and one column per position of the window: the
place that this entry sees there.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor

from precad.mpc.kernels import kernel, select

Floats = NDArray[np.float32]
Places = NDArray[np.uint64]


@dataclass
class Memory:
    """Tensors that a layer keeps from one chunk to the next, so that no time goes into fresh pages."""

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """An uninitialised tensor, valid until the same name is taken again."""
        size = math.prod(shape)
        kept = self.tensors.get(name)
        if kept is None or kept.numel() < size:
            kept = self.tensors[name] = torch.empty(size, dtype=dtype or like.dtype, device=like.device)
        return kept[:size].view(shape)


class Tables(NamedTuple):
    """For images of one size: which place each entry of each window sees."""

    window: Places
    flat: Places
    by_position: bool


class Patches:
    """The patches that a layer's sliding window sees of images (records, channels, height, width), with padding."""

    def __init__(self, module: Any) -> None:
        self.size, self.stride, self.dilation = (
            pair(value) for value in (module.kernel_size, module.stride, module.dilation)
        )
        self._tables: dict[torch.Size, Tables] = {}

    def output(self, shape: torch.Size) -> tuple[int, int]:
        """How many windows fit, down and across."""
        down, across = (
            (shape[2 + i] - self.dilation[i] * (self.size[i] - 1) - 1) // self.stride[i] + 1 for i in range(2)
        )
        return down, across

    def unfold(self, x: Tensor, memory: Memory) -> Tensor:
        """The patches: (records, channels × entries of the window, positions), as ``F.unfold``."""
        if x.device.type != "cpu":
            return F.unfold(x, self.size, self.dilation, 0, self.stride)
        tables = self.tables(x.shape)
        entries, positions = x.shape[1] * tables.window.shape[0], tables.window.shape[1]
        images = records(x) if tables.by_position else planes(x)
        patches = memory.take("patches", (len(images), tables.flat.size), x)
        _gather(images, tables.flat, patches.numpy())
        if tables.by_position:
            return patches.view(len(x), positions, entries).transpose(1, 2)
        return patches.view(len(x), entries, positions)

    def fold(self, patches: Tensor, shape: torch.Size, memory: Memory) -> Tensor:
        """The sums of all patches that see each place of images of ``shape``: the transpose of :meth:`unfold`."""
        if patches.device.type != "cpu":
            return F.fold(patches, shape[2:], self.size, self.dilation, 0, self.stride)
        tables = self.tables(shape)
        x = memory.take("dx", shape, patches)
        images = records(x) if tables.by_position else planes(x)
        stored = patches.transpose(1, 2) if tables.by_position else patches
        _scatter(stored.reshape(len(images), -1).numpy(), tables.flat, images)
        return x

    def tables(self, shape: torch.Size) -> Tables:
        """By position: one table for all channels of a record, its rows the positions. Else one for each channel."""
        if shape[1:] not in self._tables:
            channels, height, width = shape[1:]
            window = _window_table((height, width), self.size, self.stride, self.dilation)
            by_position = window.shape[1] > channels * window.shape[0]
            flat = window
            if by_position:
                starts = np.arange(channels, dtype=np.uint64) * np.uint64(height * width)
                flat = (starts[:, None, None] + window).reshape(-1, window.shape[1]).T
            self._tables[shape[1:]] = Tables(window, flat.ravel(), by_position)
        return self._tables[shape[1:]]


def laid_out_as(model: Tensor, fresh: Tensor) -> Tensor:
    """Contiguous memory in the shape of ``model``, transposed if ``model`` is."""
    if model.is_contiguous():
        return fresh
    return fresh.view(model.shape[0], model.shape[2], model.shape[1]).transpose(1, 2)


def planes(x: Tensor) -> Any:
    """One row per record and channel."""
    return x.reshape(x.shape[0] * x.shape[1], -1).numpy()


def records(x: Tensor) -> Any:
    """One row per record."""
    return x.reshape(len(x), -1).numpy()


def pair(value: Any) -> tuple[int, int]:
    """An option of torch's layers, given once or for each direction."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _window_table(
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
def _gather(images: Floats, table: Places, out: Floats) -> None:
    """out[image, k] = images[image, table[k]]."""
    for image in range(images.shape[0]):
        for k in range(table.size):
            out[image, k] = images[image, table[k]]


@kernel
def _scatter(values: Floats, table: Places, images: Floats) -> None:
    """images[image, place] = the sum of the values[image, k] with table[k] = place: the transpose of ``_gather``."""
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
