"""How good a model is on the test set."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.data.records import Records, read
from precad.errors import UnusableError
from precad.gradients.chain import chain
from precad.gradients.isolation import State
from precad.gradients.losses import LossFunction, of_each, of_one_record

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


def evaluate(model: nn.Module, loss: LossFunction, records: Records, *, batches: bool = True) -> Score:
    """The mean loss, as it is trained, and the accuracy of the model as it is, without dropout.

    Records that cannot be read, hold a number that is not finite, have a label that the loss ignores, or raise in the
    model or the loss have no loss, and are not right. If all raise, so does this. What model and loss keep is put back
    after every batch: it is the state in which each record is trained. ``batches``: several records at a time.
    """
    tally = _Tally(model, loss, batches=batches)
    for _ in _looked_at(tally, model, records):
        pass
    if tally.failure is not None and not tally.counted:
        raise tally.failure
    mean = tally.total / tally.counted if tally.counted else math.nan
    return Score(mean, tally.hits / len(records) if tally.labelled else None)


def rehearse(model: nn.Module, loss: LossFunction, records: Records) -> None:
    """Look at records until one can be evaluated; refuse if none can."""
    tally, why = _Tally(model, loss, batches=True), "it holds a number that is not finite, or an ignored label"
    for unreadable in _looked_at(tally, model, records):
        if tally.counted:
            return
        why = next(iter(unreadable.values()), why)
    raise tally.failure or UnusableError(f"none of its records can be evaluated, as {why}")


def _looked_at(tally: "_Tally", model: nn.Module, records: Records) -> Iterator[Mapping[int, str]]:
    """Add some records after others; the place of those that cannot be read → why."""
    was_training = model.training
    model.eval()
    try:
        for start in range(0, len(records), _BATCH):
            found = read(records, np.arange(start, min(start + _BATCH, len(records))))
            with torch.inference_mode():
                for batch in found.batches:
                    tally.add(*_finite(batch.inputs, batch.targets))
            yield found.faults
    finally:
        model.train(was_training)


class _Tally:
    """Adds up losses and hits, batch by batch; a batch that raises, record by record."""

    def __init__(self, model: nn.Module, loss: LossFunction, *, batches: bool) -> None:
        self._model, self._loss, self._first = model, of_one_record(loss), next(model.parameters())
        self._known = chain(model) is not None  # a forward pass of somebody's own may rely on how images lie in memory
        self._model_state = State({} if self._known else {"": model}, trainable(model))
        self._loss_state, self._batches = State({"loss": self._loss}, trainable(model)), batches
        self.total, self.hits, self.counted, self.labelled = 0.0, 0, 0, True
        self.failure: Exception | None = None

    def add(self, inputs: Tensor, targets: Tensor) -> None:
        """Some more records."""
        if self._batches or len(inputs) == 1:
            try:
                self._add(*(_like(self._first, part) for part in (inputs, targets)))
                return
            except Exception as error:
                self.failure = self.failure or error
            finally:
                self._model_state.put_back()
                self._loss_state.put_back()
        for row in range(len(inputs)) if len(inputs) > 1 else ():
            self.add(inputs[row : row + 1], targets[row : row + 1])

    def _add(self, inputs: Tensor, targets: Tensor) -> None:
        if self._known and inputs.ndim == 4:
            inputs = _channels_last(inputs)
        outputs = self._model(inputs)
        losses = of_each(self._loss, outputs, targets, self._loss_state.put_back)
        total = float(losses.double().sum())
        labelled = (
            isinstance(outputs, Tensor) and outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()
        )
        self.hits += int((outputs.argmax(1) == targets).sum()) if labelled else 0
        self.labelled = self.labelled and labelled
        self.total += total
        self.counted += len(losses)


def _finite(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Without the records that hold a number that is not finite."""
    kept = torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    for part in (inputs, targets):
        if part.is_floating_point():
            kept &= part.reshape(len(part), -1).isfinite().all(1)
    return (inputs, targets) if bool(kept.all()) else (inputs[kept], targets[kept])


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
