"""Which models are chains of layers that can be differentiated by hand."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from precad.gradients import layers
from precad.gradients.layers import Layer
from precad.gradients.patches import pair


def chain(model: nn.Module) -> list[tuple[str, Layer]] | None:
    """The layers of a chain that can be differentiated by hand, with the prefixes of their parameters, or None."""
    names = [name for name, _ in model.named_parameters()]
    if len(names) != len(list(model.named_parameters(remove_duplicate=False))):
        return None  # tied parameters
    steps: list[tuple[str, Layer]] = []
    for prefix, module in _flattened("", model):
        rule = _RULES.get(type(module))
        if rule is None or _has_hooks(module) or not _supported(module) or (steps and rule is layers.Embedding):
            return None
        steps.append((prefix, rule(module)))
    own = {f"{prefix}{name}" for prefix, layer in steps for name in _PARAMETERS.get(type(layer), ())}
    if not own.issuperset(names):
        return None  # a parameter that no layer knows
    for i, ((_, layer), (_, following)) in enumerate(itertools.pairwise(list(steps))):
        if isinstance(layer, layers.ReLU) and isinstance(following, layers.MaxPool2d):
            steps[i : i + 2] = reversed(steps[i : i + 2])  # the same gradient, on fewer numbers
    return steps


def stays_finite(steps: list[tuple[str, Layer]], parameters: Mapping[str, Tensor], largest: float) -> bool:
    """Whether no number of a forward pass can overflow, for any record whose entries are within ``largest``."""
    bound = max(1.0, largest)
    for prefix, layer in steps:
        if isinstance(layer, layers.Linear | layers.Conv2d):
            own: Any = layer.module
            bound = max(1.0, bound * float(parameters.get(f"{prefix}weight", own.weight).abs().flatten(1).sum(1).max()))
            if own.bias is not None:
                bound += float(parameters.get(f"{prefix}bias", own.bias).abs().max())
        elif type(layer.module) not in _NOT_LARGER:
            return False
        if not bound < _FINITE:
            return False
    return True


def _flattened(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential and not _has_hooks(module):
        for name, child in module._modules.items():  # a module may occur twice
            if child is not None:
                yield from _flattened(f"{prefix}{name}.", child)
    else:
        yield prefix, module


def _has_hooks(module: nn.Module) -> bool:
    """Whether more happens in its passes than its type tells."""
    own = (getattr(module, name.removeprefix("_global")) for name in _GLOBAL_HOOKS)
    common = (getattr(nn.modules.module, name) for name in _GLOBAL_HOOKS)
    return any(own) or any(common) or "forward" in vars(module)


def _supported(module: Any) -> bool:
    match module:
        case nn.Conv2d():
            spans = (d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True))
            even = module.padding != "same" or all(span % 2 == 0 for span in spans)
            return module.groups == 1 and module.padding_mode == "zeros" and even
        case nn.Embedding():
            return module.max_norm is None and not module.sparse and not module.scale_grad_by_freq
        case nn.Dropout():
            return module.p == 0 or not module.training
        case nn.ELU() | nn.LeakyReLU() | nn.SiLU():
            return not module.inplace
        case nn.MaxPool2d():
            return not module.return_indices and not module.ceil_mode and pair(module.padding) == (0, 0)
        case nn.Flatten():
            return module.start_dim == 1 and module.end_dim == -1
    return True


_FINITE = 1e30
_NOT_LARGER = {nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Identity, nn.Dropout, nn.Flatten}
_NOT_LARGER |= {nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d}
"""Layers that give no number above the largest of their inputs, and of 1."""
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
"""Torch's hooks on all modules; one module's own have the same names without their first part."""

_PARAMETERS: dict[type[Layer], tuple[str, ...]] = {
    layers.Linear: ("weight", "bias"),
    layers.Conv2d: ("weight", "bias"),
    layers.Embedding: ("weight",),
    layers.LayerNorm: ("weight", "bias"),
    layers.GroupNorm: ("weight", "bias"),
}
"""What each layer writes the gradient of."""
_RULES: dict[type[nn.Module], type[Layer]] = {
    nn.ReLU: layers.ReLU,
    nn.Tanh: layers.Tanh,
    nn.Linear: layers.Linear,
    nn.Conv2d: layers.Conv2d,
    nn.MaxPool2d: layers.MaxPool2d,
    nn.Flatten: layers.Flatten,
    nn.Embedding: layers.Embedding,
    nn.LayerNorm: layers.LayerNorm,
    nn.GroupNorm: layers.GroupNorm,
    **dict.fromkeys((nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity, nn.Dropout), Layer),
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d), Layer),
}
