"""How good a model is on the test set."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.data.records import Records
from precad.gradients.chain import chain

_BATCH = 100


@dataclass(frozen=True)
class Score:
    """Of one model, on one set of records."""

    loss: float
    accuracy: float | None
    """The fraction of records whose largest output is their label; None if targets are not labels."""


def load_parameters(model: nn.Module, theta: NDArray[np.float64]) -> None:
    """Write θ into the trainable parameters, in their order."""
    start = 0
    with torch.no_grad():
        for parameter in trainable(model):
            size = parameter.numel()
            parameter.copy_(torch.from_numpy(theta[start : start + size]).reshape(parameter.shape))
            start += size


def read_parameters(model: nn.Module) -> NDArray[np.float64]:
    """θ: the trainable parameters as one vector."""
    parts = [parameter.detach().cpu().double().reshape(-1).numpy() for parameter in trainable(model)]
    return np.concatenate(parts)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that the clients train."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def evaluate(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], records: Records, *, limit: int | None = None
) -> Score:
    """The mean loss and the accuracy of the model as it is, without dropout; of the first ``limit`` records only."""
    number = len(records) if limit is None else min(limit, len(records))
    first = next(model.parameters())
    known = chain(model) is not None  # a forward pass of somebody's own may rely on how images lie in memory
    was_training, total, hits, labelled = model.training, 0.0, 0, True
    model.eval()
    try:
        with torch.inference_mode():
            for start in range(0, number, _BATCH):
                indices = np.arange(start, min(start + _BATCH, number))
                inputs, targets = (_like(first, part) for part in records.batch(indices))
                if known and inputs.ndim == 4:
                    inputs = _channels_last(inputs)
                outputs = model(inputs)
                total += float(loss(outputs, targets)) * len(indices)
                labelled = labelled and outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()
                if labelled:
                    hits += int((outputs.argmax(1) == targets).sum())
    finally:
        model.train(was_training)
    return Score(total / number, hits / number if labelled else None)


def _channels_last(images: Tensor) -> Tensor:
    """The same images as torch computes on them two to three times as fast.

    With one channel both orders are the same in memory, and only the strides tell torch which of them is meant.
    """
    _, channels, height, width = images.shape
    strides = (channels * height * width, 1, width * channels, channels)
    return images.contiguous(memory_format=torch.channels_last).as_strided(images.shape, strides)


def _like(parameter: Tensor, part: Tensor) -> Tensor:
    """On the model's device; numbers with a fraction in its precision."""
    return part.to(parameter.device, parameter.dtype if part.is_floating_point() else None)
