"""The gradients of the records of one chunk, in memory that is used again for the next."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from precad.gradients.chain import chain, stays_finite
from precad.gradients.isolation import State
from precad.gradients.layers import Embedding, Layer, Pass
from precad.gradients.losses import CrossEntropy, LossFunction, of_one_record, one_number
from precad.gradients.mixing import Tried, check_mean, outputs_of_chain, try_model
from precad.gradients.patches import Memory
from precad.gradients.rows import Rows

_SMALL = 1e6
"""Inputs of a chain within it have a finite gradient if the outputs' gradient is finite."""


class Code:
    """The model and the loss that a person brought, as a chain of known layers or else as torch runs them."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        self.model, self.steps, self.cross_entropy = model, chain(model), CrossEntropy.of(loss)
        self.loss = of_one_record(loss)
        roots = {"loss": self.loss} if self.steps else {"": model, "loss": self.loss}
        self.state = State(roots, [p for p in model.parameters() if p.requires_grad])
        self.rows = Rows(self._of_outputs if self.steps else self._of_batch, self.state, by_input=bool(self.steps))
        self._checked, self.takes_batches = False, True
        """Whether a batch's outputs are those of its records, as far as was seen."""

    @contextmanager
    def isolated(self, targets: Tensor) -> Iterator[None]:
        """What a person changed since the last call stays changed; what they draw later does not depend on ours."""
        if self.steps and self.cross_entropy and self.cross_entropy.takes(targets):  # none of their code runs
            yield
            return
        if self.state.changed():
            self.state.renew()
            self.rows.forget()
        with self.state.sources.kept():
            yield

    def check_batch(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> None:
        """Refuse code that keeps state, or mixes the records of a batch, once; a model that draws, as it evaluates.

        ``inputs`` are the outputs of a chain. Their shapes alone matter.
        """
        if self._checked:
            return

        def model(x: Tensor) -> Any:
            return functional_call(self.model, parameters, (x,))

        def evaluating(x: Tensor) -> Any:
            self.model.eval()  # which is put back with the other state
            return model(x)

        with self.rows.lock:
            self.rows.plan(parameters, inputs, targets)
            if self.steps:
                tried: Tried | None = outputs_of_chain(inputs)
            else:
                tried = try_model((model, evaluating), self.state, inputs)
            if tried is not None:
                check_mean(self.loss, self.state, tried, targets)
                self.takes_batches = tried.same
            self._checked = True

    def _of_batch(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return one_number(self.loss(functional_call(self.model, parameters, (inputs,)), targets))

    def _of_outputs(self, _: dict[str, Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
        return one_number(self.loss(outputs, targets))


@dataclass(frozen=True)
class Chunk:
    """What was found for the records of a chunk."""

    gradients: Tensor
    """One row per record, valid until the next call."""
    faults: dict[int, str]
    """Row → why it counts as 0."""


class ChunkGradients:
    """Differentiates one chunk after another, in memory of its own; one object serves one thread."""

    def __init__(self, code: Code, slices: dict[str, slice]) -> None:
        self._code, self._slices = code, slices
        self._dim = max(place.stop for place in slices.values())
        self._memories = [Memory() for _ in code.steps or ()]
        self._buffer = Memory()

    def gradients(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, seed: int) -> Chunk:
        """Of these records, whose own randomness begins at ``seed``."""
        out = self._buffer.take("gradients", (len(inputs), self._dim), next(iter(parameters.values())))
        run = self._by_torch if self._code.steps is None else self._by_hand
        return Chunk(out, run(parameters, inputs, targets, out, seed))

    def faults(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, seed: int) -> dict[int, str]:
        """Row → why a record counts as 0; of a chain with inputs of usual size, by a forward pass, or by bounds.

        Of other models record by record, but for chunks whose gradient as one batch is finite.
        """
        steps, most = self._code.steps, largest(inputs) if inputs.is_floating_point() else 0.0
        if steps and most < _SMALL:
            exact = self._code.cross_entropy
            alike = exact and exact.takes(targets) and stays_finite(steps, parameters, most)
            x, _, faults = self._forward(parameters, inputs[:1] if alike else inputs, None)
            if alike:
                x = x.expand(len(inputs), *x.shape[1:])
            found = self._output_gradient(x, targets, faults, seed).flatten(1)
        elif not steps and self._finite_together(parameters, inputs, targets, seed):
            return {}
        else:
            chunk = self.gradients(parameters, inputs, targets, seed)
            found, faults = chunk.gradients, chunk.faults
        unbounded = (~found.isfinite().all(1)).nonzero().flatten().tolist()
        return {**dict.fromkeys(unbounded, "its gradient is not finite"), **faults}

    def _finite_together(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, seed: int) -> bool:
        self._code.check_batch(parameters, inputs, targets)
        return self._code.rows.finite_together(parameters, inputs, targets, seed)

    def _by_torch(
        self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, out: Tensor, seed: int
    ) -> dict[int, str]:
        self._code.check_batch(parameters, inputs, targets)
        places = {name: out[:, place].view(-1, *parameters[name].shape) for name, place in self._slices.items()}
        return self._code.rows.fill(places, parameters, inputs, targets, seed)

    def _by_hand(
        self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, out: Tensor, seed: int
    ) -> dict[int, str]:
        x, passes, faults = self._forward(parameters, inputs, out)
        dx = self._output_gradient(x, targets, faults, seed)
        steps = self._code.steps or []
        first = self._first(steps)
        for (_, layer), done in reversed(list(zip(steps, passes, strict=True))[first:]):
            dx = layer.backward(dx, done)
        if faults:
            out[list(faults)] = 0
        return faults

    def _forward(
        self, parameters: dict[str, Tensor], x: Tensor, out: Tensor | None
    ) -> tuple[Tensor, list[Pass], dict[int, str]]:
        steps, passes = self._code.steps or [], []
        faults: dict[int, str] = {}
        first = self._first(steps)
        if isinstance(steps[0][1], Embedding):
            x, faults = steps[0][1].within(x)
        for i, (prefix, layer) in enumerate(steps):
            names = (prefix + "weight", prefix + "bias")
            weight, bias = (parameters.get(n, getattr(layer.module, n.removeprefix(prefix), None)) for n in names)
            weight_gradient, bias_gradient = (self._gradient(name, parameters, out) for name in names)
            passes.append(Pass(weight, bias, weight_gradient, bias_gradient, i > first, self._memories[i]))
            x = layer.forward(x, passes[-1])
        return x, passes, faults

    def _output_gradient(self, outputs: Tensor, targets: Tensor, faults: dict[int, str], seed: int) -> Tensor:
        """The gradient of the loss by the outputs of a chain; adds to ``faults``."""
        exact = self._code.cross_entropy
        if exact and exact.takes(targets) and outputs.ndim == 2:
            gradient, bad = exact.gradient(outputs, targets)
            if bad.any():
                labels, classes = targets.tolist(), outputs.shape[1]
                faults |= {row: exact.fault(labels[row], classes) for row in bad.nonzero().flatten().tolist()}
            return gradient
        gradient = torch.empty_like(outputs)
        self._code.check_batch({}, outputs, targets)
        faults |= self._code.rows.fill({"": gradient}, {}, outputs, targets, seed)
        return gradient

    def _first(self, steps: list[tuple[str, Layer]]) -> int:
        """The first layer that is trained."""
        return next(i for i, (prefix, _) in enumerate(steps) if any(n.startswith(prefix) for n in self._slices))

    def _gradient(self, name: str, parameters: dict[str, Tensor], out: Tensor | None) -> Tensor | None:
        if out is None or name not in parameters:
            return None
        return out[:, self._slices[name]].view(-1, *parameters[name].shape)


def largest(floats: Tensor) -> float:
    """The largest magnitude; NaN if there is one. In one pass, far cheaper than ``isfinite``."""
    if not floats.numel():
        return 0.0
    low, high = floats.aminmax()
    return float(torch.maximum(-low, high))
