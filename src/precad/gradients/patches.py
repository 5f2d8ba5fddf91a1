"""The sliding windows of convolutions and pooling: patches of images, and back."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from precad.gradients import image_kernels
from precad.gradients.image_kernels import Places


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


class Windows:
    """The windows of a layer on images (records, channels, height, width), which include their padding."""

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
        image_kernels.gather(images, tables.flat, patches.numpy())
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
        image_kernels.scatter(stored.reshape(len(images), -1).numpy(), tables.flat, images)
        return x

    def tables(self, shape: torch.Size) -> Tables:
        """By position: one table for all channels of a record, its rows the positions. Else one for each channel."""
        if shape[1:] not in self._tables:
            channels, height, width = shape[1:]
            window = image_kernels.window_table((height, width), self.size, self.stride, self.dilation)
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
