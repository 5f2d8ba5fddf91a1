"""Per-record gradients of single layers, by hand: one forward and one backward pass for a whole chunk of records.

Every layer has a forward pass that keeps what its backward pass needs, and a backward pass that writes the
parameters' gradients of every record apart, where autograd would add them up. A layer treats records independently.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from precad.gradients.patches import Memory, Patches, laid_out_as, max_pool, max_unpool, planes


@dataclass
class Pass:
    """What a layer has at hand in its passes over one chunk.

    The gradients are to be filled in, with the records in front; they are None for a parameter that is absent or not
    trained.
    """

    weight: Tensor | None
    bias: Tensor | None
    weight_gradient: Tensor | None
    bias_gradient: Tensor | None
    input_wanted: bool
    memory: Memory
    saved: Any = None


class Layer:
    """A layer without parameters, differentiated by autograd."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module

    def forward(self, x: Tensor, own: Pass) -> Tensor:
        """The output. ``own.saved`` takes what :meth:`backward` needs."""
        return self._apply(x, self.module, own)

    def backward(self, dy: Tensor, own: Pass) -> Tensor:
        """Fill the gradients; return the gradient of the input if it is wanted, else anything."""
        x, y = own.saved
        dx: Tensor = torch.autograd.grad(y, x, dy)[0]
        return dx

    @staticmethod
    def _apply(x: Tensor, function: Any, own: Pass) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y: Tensor = function(x)
        own.saved = x, y
        return y.detach()


class ReLU(Layer):
    """max(x, 0)."""

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        own.saved = y = torch.clamp_min(x, 0, out=own.memory.take("y", x.shape, x))
        return y

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        dx = own.memory.take("dx", dy.shape, dy)
        torch.ops.aten.threshold_backward.grad_input(dy, own.saved, 0, grad_input=dx)
        return dx


class Tanh(Layer):
    """tanh(x)."""

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        own.saved = y = torch.tanh(x, out=own.memory.take("y", x.shape, x))
        return y

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        dx = own.memory.take("dx", dy.shape, dy)
        torch.ops.aten.tanh_backward.grad_input(dy, own.saved, grad_input=dx)
        return dx


class Linear(Layer):
    """Of one vector, or of several positions, per record."""

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        own.saved = x
        return F.linear(x, _present(own.weight), own.bias)

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        x = own.saved
        ys, xs = dy.reshape(len(dy), -1, dy.shape[-1]), x.reshape(len(x), -1, x.shape[-1])
        if own.weight_gradient is not None:
            multiply = torch.mul if ys.shape[1] == 1 else torch.bmm
            multiply(ys.transpose(1, 2), xs, out=own.weight_gradient)
        if own.bias_gradient is not None:
            torch.sum(ys, 1, out=own.bias_gradient)
        return dy @ _present(own.weight) if own.input_wanted else dy


class Flatten(Layer):
    """All that a record has, as one vector."""

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        own.saved = x.shape
        return x.flatten(1)

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        return dy.reshape(own.saved)


class Conv2d(Layer):
    """As a product of the weights with the matrix of all patches, record by record.

    The matrix is stored by entries of the window or by positions, whichever are more: both products are then faster.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.padding = _padding(module)
        self.patches = Patches(module)

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        weight = _present(own.weight)
        x = F.pad(x, (self.padding[1], self.padding[1], self.padding[0], self.padding[0])) if any(self.padding) else x
        patches = self.patches.unfold(x, own.memory)
        own.saved = x.shape, patches
        y = own.memory.take("y", (len(x), len(weight), patches.shape[2]), x)
        torch.bmm(weight.flatten(1).expand(len(x), -1, -1), patches, out=y)
        if own.bias is not None:
            y += own.bias[:, None]
        return y.view(*y.shape[:2], *self.patches.output(x.shape))

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        shape, patches = own.saved
        dy = dy.flatten(2)
        if own.weight_gradient is not None:
            torch.bmm(dy, patches.transpose(1, 2), out=own.weight_gradient.flatten(2))
        if own.bias_gradient is not None:
            torch.sum(dy, 2, out=own.bias_gradient)
        if not own.input_wanted:
            return dy
        transposed = _present(own.weight).flatten(1).t().expand(len(dy), -1, -1)
        gradients = laid_out_as(patches, own.memory.take("dp", patches.shape, dy))
        dx = self.patches.fold(torch.bmm(transposed, dy, out=gradients), shape, own.memory)
        down, across = self.padding
        return dx[:, :, down : shape[2] - down, across : shape[3] - across]


class MaxPool2d(Layer):
    """The largest entry of each window."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.patches = Patches(module)

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        if x.device.type != "cpu":
            return super().forward(x, own)
        shape = (*x.shape[:2], *self.patches.output(x.shape))
        y, places = own.memory.take("y", shape, x), own.memory.take("places", shape, x, torch.uint64)
        own.saved = x.shape, places
        max_pool(planes(x), self.patches.tables(x.shape).window, planes(y), planes(places))
        return y

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        if dy.device.type != "cpu":
            return super().backward(dy, own)
        shape, places = own.saved
        dx = own.memory.take("dx", shape, dy)
        max_unpool(planes(dy), planes(places), planes(dx))
        return dx


class Embedding(Layer):
    """Of indices, so only as the first layer."""

    def within(self, x: Tensor) -> tuple[Tensor, dict[int, str]]:
        """The indices, with 0 for those that there are not; row → why it does not count, for rows that have such."""
        size = self.module.num_embeddings
        bad = (x < 0) | (x >= size)
        rows = bad.flatten(1).any(1).nonzero().flatten().tolist() if x.ndim > 1 else bad.nonzero().flatten().tolist()
        faults = {row: f"its input {int(x[row][bad[row]][0])} is not in [0, {size})" for row in rows}
        return x.masked_fill(bad, 0), faults

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        own.saved = x
        return F.embedding(x, _present(own.weight))

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        if own.weight_gradient is not None:
            dw = own.weight_gradient.zero_()
            index = own.saved.reshape(len(dy), -1, 1).expand(-1, -1, dy.shape[-1])
            dw.scatter_add_(1, index, dy.reshape(len(dy), -1, dy.shape[-1]))
            if self.module.padding_idx is not None:
                dw[:, self.module.padding_idx] = 0
        return dy


class LayerNorm(Layer):
    """Normalise each record over its last dimensions, then scale and shift its features."""

    def forward(self, x: Tensor, own: Pass) -> Tensor:  # noqa: D102
        normal = self._apply(x, self._normalise, own)
        own.saved = normal, own.saved
        y = normal if own.weight is None else normal * self._shaped(own.weight, x)
        return y if own.bias is None else y + self._shaped(own.bias, x)

    def backward(self, dy: Tensor, own: Pass) -> Tensor:  # noqa: D102
        normal, own.saved = own.saved
        if own.weight_gradient is not None:
            own.weight_gradient.copy_(self._summed(dy * normal))
        if own.bias_gradient is not None:
            own.bias_gradient.copy_(self._summed(dy))
        return super().backward(dy if own.weight is None else dy * self._shaped(own.weight, dy), own)

    def _normalise(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.module.normalized_shape, eps=self.module.eps)

    def _shaped(self, parameter: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        return parameter

    def _summed(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, *self.module.normalized_shape).sum(1)


class GroupNorm(LayerNorm):
    """The same over groups of channels."""

    def _normalise(self, x: Tensor) -> Tensor:
        return torch.group_norm(x, self.module.num_groups, eps=self.module.eps)  # F's refuses some batches of one

    def _shaped(self, parameter: Tensor, x: Tensor) -> Tensor:
        return parameter.view(-1, *[1] * (x.ndim - 2))

    def _summed(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], -1).sum(2)


def _present(parameter: Tensor | None) -> Tensor:
    if parameter is None:
        raise TypeError("the layer has no weight")
    return parameter


def _padding(conv: Any) -> Any:
    if conv.padding == "same":
        return tuple(d * (k - 1) // 2 for d, k in zip(conv.dilation, conv.kernel_size, strict=True))
    return (0, 0) if conv.padding == "valid" else conv.padding
