"""Per-record gradients of single layers, by hand: one forward and one backward pass for a whole batch.

Every layer has a forward pass that keeps what its backward pass needs, and a backward pass that writes the
parameters' gradients of every record apart, where autograd would add them up. A layer treats records independently.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class Parameters(NamedTuple):
    """The parameters of one layer, or their gradients with the records in front. None: absent, or not trained."""

    weight: Tensor | None = None
    bias: Tensor | None = None


class Layer:
    """A layer without parameters, differentiated by autograd."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The output, and what :meth:`backward` needs."""
        return self._apply(x, self.module)

    def backward(
        self,
        dy: Tensor,
        saved: Any,
        parameters: Parameters,  # noqa: ARG002
        gradients: Parameters,  # noqa: ARG002
        wanted: bool,
    ) -> Tensor:
        """Fill ``gradients``; return the gradient of the input if ``wanted``, else anything."""
        return self._pull_back(dy, saved) if wanted else dy

    @staticmethod
    def _apply(x: Tensor, function: Any) -> tuple[Tensor, Any]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = function(x)
        return y.detach(), (x, y)

    @staticmethod
    def _pull_back(dy: Tensor, saved: Any) -> Tensor:
        x, y = saved
        return torch.autograd.grad(y, x, dy)[0]


class ReLU(Layer):
    """max(x, 0)."""

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: ARG002, D102
        y = x.relu()
        return y, y

    @staticmethod
    def _pull_back(dy: Tensor, saved: Any) -> Tensor:
        return torch.ops.aten.threshold_backward(dy, saved, 0)  # type: ignore[no-any-return]


class Tanh(Layer):
    """tanh(x)."""

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: ARG002, D102
        y = x.tanh()
        return y, y

    @staticmethod
    def _pull_back(dy: Tensor, saved: Any) -> Tensor:
        return torch.ops.aten.tanh_backward(dy, saved)  # type: ignore[no-any-return]


class Linear(Layer):
    """Of one vector, or of several positions, per record."""

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: D102
        assert parameters.weight is not None
        return F.linear(x, parameters.weight, parameters.bias), x

    def backward(  # noqa: D102
        self, dy: Tensor, saved: Any, parameters: Parameters, gradients: Parameters, wanted: bool
    ) -> Tensor:
        records, x = len(dy), saved
        assert parameters.weight is not None
        ys, xs = dy.reshape(records, -1, dy.shape[-1]), x.reshape(records, -1, x.shape[-1])
        if gradients.weight is not None:
            if ys.shape[1] == 1:
                torch.mul(ys.transpose(1, 2), xs, out=gradients.weight)
            else:
                torch.bmm(ys.transpose(1, 2), xs, out=gradients.weight)
        if gradients.bias is not None:
            torch.sum(ys, 1, out=gradients.bias)
        return dy @ parameters.weight if wanted else dy


class Conv2d(Layer):
    """As a product with the matrix of all patches."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        conv = self.module
        self.geometry = {
            "kernel_size": conv.kernel_size,
            "dilation": conv.dilation,
            "padding": _padding(conv),
            "stride": conv.stride,
        }

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: D102
        assert parameters.weight is not None
        patches = F.unfold(x, **self.geometry)
        y = parameters.weight.flatten(1) @ patches
        if parameters.bias is not None:
            y += parameters.bias[:, None]
        return y.view(len(x), len(parameters.weight), *self._output(x)), (x.shape[2:], patches)

    def backward(  # noqa: D102
        self, dy: Tensor, saved: Any, parameters: Parameters, gradients: Parameters, wanted: bool
    ) -> Tensor:
        size, patches = saved
        assert parameters.weight is not None
        dy = dy.flatten(2)
        if gradients.weight is not None:
            torch.bmm(dy, patches.transpose(1, 2), out=gradients.weight.flatten(2))
        if gradients.bias is not None:
            torch.sum(dy, 2, out=gradients.bias)
        return F.fold(parameters.weight.flatten(1).t() @ dy, size, **self.geometry) if wanted else dy

    def _output(self, x: Tensor) -> tuple[int, ...]:
        g = self.geometry
        return tuple(
            (x.shape[2 + i] + 2 * g["padding"][i] - g["dilation"][i] * (g["kernel_size"][i] - 1) - 1) // g["stride"][i]
            + 1
            for i in range(2)
        )


class Embedding(Layer):
    """Of indices, so only as the first layer."""

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: D102
        assert parameters.weight is not None
        return F.embedding(x, parameters.weight), x

    def backward(  # noqa: D102
        self,
        dy: Tensor,
        saved: Any,
        parameters: Parameters,  # noqa: ARG002
        gradients: Parameters,
        wanted: bool,  # noqa: ARG002
    ) -> Tensor:
        if gradients.weight is not None:
            dw = gradients.weight.zero_()
            index = saved.reshape(len(dy), -1, 1).expand(-1, -1, dy.shape[-1])
            dw.scatter_add_(1, index, dy.reshape(len(dy), -1, dy.shape[-1]))
            if self.module.padding_idx is not None:
                dw[:, self.module.padding_idx] = 0
        return dy


class _Norm(Layer):
    """Normalise each record, then scale and shift its features."""

    def forward(self, x: Tensor, parameters: Parameters) -> tuple[Tensor, Any]:  # noqa: D102
        y, saved = self._apply(x, self._normalise)
        normal = y
        if parameters.weight is not None:
            y = y * self._shaped(parameters.weight, x)
        if parameters.bias is not None:
            y = y + self._shaped(parameters.bias, x)
        return y, (normal, saved)

    def backward(  # noqa: D102
        self, dy: Tensor, saved: Any, parameters: Parameters, gradients: Parameters, wanted: bool
    ) -> Tensor:
        normal, saved = saved
        if gradients.weight is not None:
            gradients.weight.copy_(self._summed(dy * normal))
        if gradients.bias is not None:
            gradients.bias.copy_(self._summed(dy))
        if not wanted:
            return dy
        if parameters.weight is not None:
            dy = dy * self._shaped(parameters.weight, dy)
        return self._pull_back(dy, saved)

    def _normalise(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _shaped(self, parameter: Tensor, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _summed(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class LayerNorm(_Norm):
    """Over the last dimensions."""

    def _normalise(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.module.normalized_shape, eps=self.module.eps)

    def _shaped(self, parameter: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        return parameter

    def _summed(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, *self.module.normalized_shape).sum(1)


class GroupNorm(_Norm):
    """Over groups of channels."""

    def _normalise(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.module.num_groups, eps=self.module.eps)

    def _shaped(self, parameter: Tensor, x: Tensor) -> Tensor:
        return parameter.view(-1, *[1] * (x.ndim - 2))

    def _summed(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], -1).sum(2)


def layer(module: nn.Module) -> Layer | None:
    """The rule for ``module``, or None if there is none."""
    kind = _RULES.get(type(module))
    return kind(module) if kind is not None and not has_hooks(module) and _supported(module) else None


def has_hooks(module: nn.Module) -> bool:
    """Whether more happens in its passes than its type tells."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def _supported(module: Any) -> bool:
    match module:
        case nn.Conv2d():
            return (
                module.groups == 1
                and module.padding_mode == "zeros"
                and (module.padding != "same" or all(d * (k - 1) % 2 == 0 for d, k in _spans(module)))
            )
        case nn.Embedding():
            return module.max_norm is None and not module.sparse and not module.scale_grad_by_freq
        case nn.Dropout():
            return module.p == 0 or not module.training
        case nn.ELU() | nn.LeakyReLU() | nn.SiLU():
            return not module.inplace
        case nn.MaxPool2d():
            return not module.return_indices
        case nn.Flatten():
            return module.start_dim == 1 and module.end_dim == -1
    return True


def _spans(conv: Any) -> Any:
    return zip(conv.dilation, conv.kernel_size, strict=True)


def _padding(conv: Any) -> Any:
    if conv.padding == "same":
        return tuple(d * (k - 1) // 2 for d, k in _spans(conv))
    return (0, 0) if conv.padding == "valid" else conv.padding


_RULES: dict[type[nn.Module], type[Layer]] = {
    nn.ReLU: ReLU,
    nn.Tanh: Tanh,
    nn.Linear: Linear,
    nn.Conv2d: Conv2d,
    nn.Embedding: Embedding,
    nn.LayerNorm: LayerNorm,
    nn.GroupNorm: GroupNorm,
    **dict.fromkeys(
        (
            nn.Sigmoid,
            nn.GELU,
            nn.ELU,
            nn.LeakyReLU,
            nn.SiLU,
            nn.MaxPool2d,
            nn.AvgPool2d,
            nn.AdaptiveAvgPool2d,
            nn.Flatten,
            nn.Identity,
            nn.Dropout,
        ),
        Layer,
    ),
}
