"""The gradient of every record, and each client's sum of clipped ones (paper: Algorithm 2, lines 2 to 5).

The records of all clients of a round go through the model together, grouped by client, in chunks of bounded memory.
A chain of known layers (:mod:`precad.learning.layers`) is differentiated by hand; any other model by ``torch.func``,
which gives the same gradients but for rounding.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from precad.learning import layers
from precad.learning.layers import Layer, Parameters
from precad.privacy.record_sums import add_clipped, check_record_bound

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → the mean over the batch of a loss of each record, as ``F.cross_entropy``."""

MAX_RECORDS = 512
MAX_ENTRIES = 1 << 23
"""Of a chunk: records, and entries of their gradients (32 MiB)."""


class PerRecordGradients:
    """Gradients of ``loss(model(inputs), targets)``, record by record, at any parameters θ.

    θ, and every gradient, is the flat vector of the trainable parameters in the order of ``model.parameters()``.
    Works on a copy of ``model`` as it is now, in its present mode; active dropout draws from torch's generator, apart
    for every record. A model that mixes records or keeps state across them is refused (PROTOCOL §9). ``inputs`` and
    ``targets`` are tensors with one record per row. Same arguments and torch threads, same bits; a record's gradient
    does not depend on the values of the others. One object serves one thread at a time, as it keeps its buffers.
    """

    dim: int

    def __init__(self, model: nn.Module, loss: LossFunction, device: torch.device | str = "cpu") -> None:
        check_model(model)
        self._device = torch.device(device)
        self._model = copy.deepcopy(model).to(self._device)
        self._loss = loss
        trained = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        self._shapes = {name: p.shape for name, p in trained.items()}
        ends = list(itertools.accumulate(p.numel() for p in trained.values()))
        self._slices = {name: slice(end - p.numel(), end) for (name, p), end in zip(trained.items(), ends, strict=True)}
        self.dim = ends[-1]
        self._steps = _chain(self._model)
        self._chunk = max(1, min(MAX_RECORDS, MAX_ENTRIES // self.dim))
        self._buffer = torch.empty(0, self.dim, device=self._device)

    def clipped_sums(
        self,
        theta: NDArray[np.float64],
        inputs: Tensor,
        targets: Tensor,
        counts: NDArray[np.int64],
        *,
        record_bound: float,
        fractional_bits: int,
    ) -> NDArray[np.int64]:
        """Each client's sum of its records' gradients, each clipped to R and truncated to the grid, as integers.

        Client i owns the next ``counts[i]`` rows, maybe none. One row per client; see ``add_clipped`` for the bound.
        """
        check_record_bound(record_bound, fractional_bits)
        owners = _owners(counts, inputs)
        sums = np.zeros((len(counts), self.dim), np.int64)
        for rows, gradients in self._chunks(theta, inputs, targets):
            add_clipped(gradients.cpu().numpy(), owners[rows], record_bound, fractional_bits, sums)
        return sums

    def sums(
        self, theta: NDArray[np.float64], inputs: Tensor, targets: Tensor, counts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Each client's plain sum of its records' gradients, for training without privacy."""
        _owners(counts, inputs)
        sums = np.zeros((len(counts), self.dim))
        parameters = {name: p.requires_grad_() for name, p in self._parameters(theta).items()}
        ends = np.cumsum(counts)
        for out, count, end in zip(sums, counts, ends, strict=True):
            if count:
                rows = slice(end - count, end)
                outputs = functional_call(self._model, parameters, (inputs[rows].to(self._device),))
                loss = self._loss(outputs, targets[rows].to(self._device)) * int(count)
                parts = torch.autograd.grad(loss, list(parameters.values()))
                out[:] = torch.cat([part.flatten() for part in parts]).cpu().numpy()
        return sums

    def per_record(self, theta: NDArray[np.float64], inputs: Tensor, targets: Tensor) -> NDArray[np.float32]:
        """The gradient of every record, one per row."""
        out = np.empty((len(inputs), self.dim), np.float32)
        for rows, gradients in self._chunks(theta, inputs, targets):
            out[rows] = gradients.cpu().numpy()
        return out

    def _chunks(self, theta: NDArray[np.float64], inputs: Tensor, targets: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and their gradients in a buffer that the next step overwrites."""
        if len(inputs) != len(targets):
            raise ValueError(f"expected one target per record, got {len(inputs)} records and {len(targets)} targets")
        parameters = self._parameters(theta)
        gradients_of = self._by_torch if self._steps is None else self._by_hand
        for start in range(0, len(inputs), self._chunk):
            rows = slice(start, min(start + self._chunk, len(inputs)))
            size = rows.stop - rows.start
            if len(self._buffer) < size:
                self._buffer = torch.empty(size, self.dim, device=self._device)
            out = self._buffer[:size]
            with torch.no_grad():
                gradients_of(parameters, inputs[rows].to(self._device), targets[rows].to(self._device), out)
            yield rows, out

    def _parameters(self, theta: NDArray[np.float64]) -> dict[str, Tensor]:
        if theta.shape != (self.dim,):
            raise ValueError(f"theta must be a vector of {self.dim} parameters, got shape {theta.shape}")
        flat = torch.from_numpy(theta.astype(np.float32)).to(self._device)
        return {name: flat[self._slices[name]].view(shape) for name, shape in self._shapes.items()}

    def _by_torch(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, out: Tensor) -> None:
        def loss(values: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
            return self._loss(functional_call(self._model, values, (x[None],)), target[None])

        found = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(parameters, inputs, targets)
        for name, place in self._slices.items():
            out[:, place] = found[name].flatten(1)

    def _by_hand(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, out: Tensor) -> None:
        assert self._steps is not None
        shaped = {name: out[:, place].view(-1, *self._shapes[name]) for name, place in self._slices.items()}
        x, kept = inputs, []
        for prefix, layer in self._steps:
            own = self._own(prefix, layer, parameters)
            x, saved = layer.forward(x, own)
            kept.append((saved, own))
        dx = _output_gradient(self._loss, x, targets)
        first = next(i for i, (prefix, _) in enumerate(self._steps) if any(n.startswith(prefix) for n in self._shapes))
        for i in range(len(kept) - 1, first - 1, -1):
            (prefix, layer), (saved, own) = self._steps[i], kept[i]
            gradients = Parameters(shaped.get(f"{prefix}weight"), shaped.get(f"{prefix}bias"))
            dx = layer.backward(dx, saved, own, gradients, i > first)

    @staticmethod
    def _own(prefix: str, layer: Layer, parameters: dict[str, Tensor]) -> Parameters:
        """The layer's parameters at θ; those that are frozen, from the model."""
        found = [parameters.get(prefix + name, getattr(layer.module, name, None)) for name in ("weight", "bias")]
        return Parameters(*found)


def check_model(model: nn.Module) -> None:
    """Refuse a model of which a record's gradient is undefined, naming the layer and what to use instead."""
    for name, module in model.named_modules():
        place = f"layer {name!r} ({type(module).__name__})"
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"{place} mixes the records of a batch: use nn.GroupNorm instead")
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            raise ValueError(
                f"{place} keeps statistics across records: use track_running_stats=False or nn.GroupNorm instead"
            )
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise ValueError(f"{place} changes its weights in the forward pass: use max_norm=None instead")
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        raise ValueError("the model has lazy parameters: call it once on a batch first")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("the model has no trainable parameters")


def _chain(model: nn.Module) -> list[tuple[str, Layer]] | None:
    """The layers of a chain that can be differentiated by hand, with the prefixes of their parameters, or None."""
    names = [name for name, _ in model.named_parameters()]
    if len(names) != len(list(model.named_parameters(remove_duplicate=False))):
        return None  # tied parameters
    steps = []
    for prefix, module in _flattened("", model):
        layer = layers.layer(module)
        if layer is None:
            return None
        steps.append((prefix, layer))
    return steps


def _flattened(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential and not layers.has_hooks(module):
        for name, child in module.named_children():
            yield from _flattened(f"{prefix}{name}.", child)
    else:
        yield prefix, module


def _output_gradient(loss: LossFunction, outputs: Tensor, targets: Tensor) -> Tensor:
    if _is_cross_entropy(loss) and outputs.ndim == 2 and targets.ndim == 1:
        gradient = outputs.softmax(1)
        gradient[torch.arange(len(targets), device=targets.device), targets] -= 1
        return gradient
    return vmap(grad(lambda y, target: loss(y[None], target[None])), randomness="different")(outputs, targets)


def _is_cross_entropy(loss: Any) -> bool:
    if type(loss) is nn.CrossEntropyLoss:
        return loss.weight is None and loss.label_smoothing == 0 and loss.reduction == "mean" and loss.ignore_index < 0
    return loss is nn.functional.cross_entropy


def _owners(counts: NDArray[np.int64], inputs: Tensor) -> NDArray[np.int64]:
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any() or counts.sum() != len(inputs):
        raise ValueError(f"counts must be integers from 0 that add up to the {len(inputs)} records, got {counts}")
    return np.repeat(np.arange(len(counts)), counts)
