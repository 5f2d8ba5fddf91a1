"""A loss as one record has it: torch's cross-entropy by hand, its weights, the loss of each record of a batch."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from precad.errors import UnusableError

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → the mean over the batch of a loss of each record, as ``F.cross_entropy``."""

_WEIGHTED = (nn.CrossEntropyLoss, nn.NLLLoss)
_AS_CLASSES: dict[Any, Any] = {
    nn.functional.cross_entropy: nn.CrossEntropyLoss(),
    nn.functional.nll_loss: nn.NLLLoss(),
}


def of_one_record(loss: LossFunction) -> LossFunction:
    """``loss`` as it is trained. A weight of torch's classes counts: a weighted mean over one record loses it."""
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise UnusableError(
            f"the loss must be a function of outputs and targets, got the class {loss.__name__}: make one"
        )
    if not callable(loss):
        raise UnusableError(f"the loss must be a function of outputs and targets, got {type(loss).__name__}")
    loss = _AS_CLASSES.get(loss, loss)
    if type(loss) in _WEIGHTED and loss.reduction == "mean":  # type: ignore[attr-defined]
        return _MeanOverRecords(loss)
    return loss


def one_number(value: object) -> Tensor:
    """The loss of one record, if it is one."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.numel() == 1:
        return value.reshape(())
    what = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise ValueError(f"the loss of one record must be a tensor of one real number, got {what}")


def of_each(loss: LossFunction, outputs: Tensor, targets: Tensor, after: Callable[[], object]) -> Tensor:
    """The losses of the records of a batch, of a loss as it is trained; none of a record that it ignores.

    ``after`` is called after each record that is computed alone.
    """
    if isinstance(loss, _MeanOverRecords):
        return loss.of_each(outputs, targets)
    if len(targets) == 1:
        return one_number(loss(outputs, targets))[None]
    if not isinstance(outputs, Tensor) or len(outputs) != len(targets):
        raise ValueError("the outputs of a batch are not one row for each record")
    losses = []
    for i in range(len(targets)):
        losses.append(one_number(loss(outputs[i : i + 1], targets[i : i + 1])))
        after()
    return torch.stack(losses)


class _MeanOverRecords:
    """The mean over records of Σ w[y]·loss over the places that are not ignored, by their number; without one, 0."""

    def __init__(self, loss: Any) -> None:
        self._each, self._ignored = copy.copy(loss), loss.ignore_index
        self._each.reduction = "none"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses, places = self._summed(outputs, targets)
        return (losses / places.clamp(min=1)).mean()

    def of_each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each record with a place that is not ignored."""
        losses, places = self._summed(outputs, targets)
        return (losses / places)[places > 0]

    def _summed(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Of each record: the sum over its places, and how many of them are not ignored."""
        losses: Tensor = self._each(outputs, targets)
        counted = torch.ones_like(losses) if targets.is_floating_point() else targets != self._ignored
        return losses.flatten(1).sum(1) if losses.ndim > 1 else losses, counted.reshape(len(losses), -1).sum(1)


class CrossEntropy:
    """The gradient of torch's cross-entropy with labels, by hand. Labels that do not count have gradient 0."""

    def __init__(self, ignored: int) -> None:
        self._ignored = ignored

    @classmethod
    def of(cls, loss: Any) -> "CrossEntropy | None":
        """If ``loss`` is it, without weights or smoothing."""
        if loss is nn.functional.cross_entropy:
            return cls(-100)
        plain = type(loss) is nn.CrossEntropyLoss and loss.weight is None and loss.label_smoothing == 0
        hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
        hooked = plain and (any(getattr(loss, name) for name in hooks) or "forward" in vars(loss))
        return cls(loss.ignore_index) if plain and not hooked and loss.reduction == "mean" else None

    @staticmethod
    def takes(targets: Tensor) -> bool:
        """Whether these are labels, one for each record."""
        return targets.ndim == 1 and not (
            targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool
        )

    def gradient(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """By the outputs; and the rows whose label does not count."""
        labels = targets.long()
        bad = (labels < 0) | (labels >= outputs.shape[1]) | (labels == self._ignored)
        gradient = outputs.softmax(1)
        gradient[torch.arange(len(labels), device=labels.device), labels.masked_fill(bad, 0)] -= 1
        return gradient.masked_fill_(bad[:, None], 0), bad

    def fault(self, label: int, classes: int) -> str:
        """Why a record with this label does not count."""
        why = "ignored by the loss" if label == self._ignored else f"not in [0, {classes})"
        return f"its label {label} is {why}"
