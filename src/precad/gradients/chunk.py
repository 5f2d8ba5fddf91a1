"""The gradients of the records of one chunk, in memory that is used again for the next."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from precad.gradients.layers import Layer, Pass
from precad.gradients.patches import Memory

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → the mean over the batch of a loss of each record, as ``F.cross_entropy``."""


class ChunkGradients:
    """Differentiates one chunk after another, in memory of its own; one object serves one thread."""

    def __init__(
        self, model: nn.Module, loss: LossFunction, steps: list[tuple[str, Layer]] | None, slices: dict[str, slice]
    ) -> None:
        self._model, self._loss, self._steps, self._slices = model, loss, steps, slices
        self._dim = max(place.stop for place in slices.values())
        self._memories = [Memory() for _ in steps or ()]
        self._buffer = Memory()
        self._batched = True

    def gradients(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """One row per record, valid until the next call."""
        out = self._buffer.take("gradients", (len(inputs), self._dim), next(iter(parameters.values())))
        (self._by_torch if self._steps is None else self._by_hand)(parameters, inputs, targets, out)
        return out

    def _by_torch(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, out: Tensor) -> None:
        def loss(values: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
            return self._loss(functional_call(self._model, values, (x[None],)), target[None])

        if self._batched:
            try:
                found = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(parameters, inputs, targets)
                for name, place in self._slices.items():
                    out[:, place] = found[name].flatten(1)
                return
            except RuntimeError:  # a layer that torch.func cannot batch, as nn.GRU; or a mistake, found again below
                self._batched = False
        for row, (x, target) in enumerate(zip(inputs, targets, strict=True)):
            for name, gradient in grad(loss)(parameters, x, target).items():
                out[row, self._slices[name]] = gradient.flatten()

    def _by_hand(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, out: Tensor) -> None:
        steps = self._steps or []
        first = next(i for i, (prefix, _) in enumerate(steps) if any(n.startswith(prefix) for n in self._slices))
        passes, x = [], inputs
        for i, (prefix, layer) in enumerate(steps):
            names = (prefix + "weight", prefix + "bias")
            weight, bias = (parameters.get(n, getattr(layer.module, n.removeprefix(prefix), None)) for n in names)
            weight_gradient, bias_gradient = (self._gradient(name, parameters, out) for name in names)
            passes.append(Pass(weight, bias, weight_gradient, bias_gradient, i > first, self._memories[i]))
            x = layer.forward(x, passes[-1])
        dx = _output_gradient(self._loss, x, targets)
        for (_, layer), done in reversed(list(zip(steps, passes, strict=True))[first:]):
            dx = layer.backward(dx, done)

    def _gradient(self, name: str, parameters: dict[str, Tensor], out: Tensor) -> Tensor | None:
        return out[:, self._slices[name]].view(-1, *parameters[name].shape) if name in parameters else None


def _output_gradient(loss: LossFunction, outputs: Tensor, targets: Tensor) -> Tensor:
    labelled = _is_cross_entropy(loss) and outputs.ndim == 2 and targets.ndim == 1
    if labelled and ((targets >= 0) & (targets < outputs.shape[1])).all():  # torch's own loss judges about others
        gradient = outputs.softmax(1)
        gradient[torch.arange(len(targets), device=targets.device), targets] -= 1
        return gradient
    of_one = grad(lambda y, target: loss(y[None], target[None]))
    return cast(Tensor, vmap(of_one, randomness="different")(outputs, targets))


def _is_cross_entropy(loss: Any) -> bool:
    if type(loss) is nn.CrossEntropyLoss:
        return loss.weight is None and loss.label_smoothing == 0 and loss.reduction == "mean" and loss.ignore_index < 0
    return loss is nn.functional.cross_entropy
