"""Which models are chains of layers that can be differentiated by hand."""

import itertools
from collections.abc import Iterator
from typing import Any

from torch import nn

from precad.gradients import layers
from precad.gradients.layers import Layer
from precad.gradients.patches import pair


def chain(model: nn.Module) -> list[tuple[str, Layer]] | None:
    """The layers of a chain that can be differentiated by hand, with the prefixes of their parameters, or None."""
    names = [name for name, _ in model.named_parameters()]
    if len(names) != len(list(model.named_parameters(remove_duplicate=False))):
        return None  # tied parameters
    steps = []
    for prefix, module in _flattened("", model):
        rule = _RULES.get(type(module))
        if rule is None or _has_hooks(module) or not _supported(module):
            return None
        steps.append((prefix, rule(module)))
    for i, ((_, layer), (_, following)) in enumerate(itertools.pairwise(list(steps))):
        if isinstance(layer, layers.ReLU) and isinstance(following, layers.MaxPool2d):
            steps[i : i + 2] = reversed(steps[i : i + 2])  # the same gradient, on fewer numbers
    return steps


def _flattened(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential and not _has_hooks(module):
        for name, child in module._modules.items():  # a module may occur twice
            if child is not None:
                yield from _flattened(f"{prefix}{name}.", child)
    else:
        yield prefix, module


def _has_hooks(module: nn.Module) -> bool:
    """Whether more happens in its passes than its type tells."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


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
