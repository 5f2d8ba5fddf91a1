"""Which models treat each record by itself, and :func:`fix` for those with layers that do not."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from precad.errors import UnusableError

_GROUPS = 32
"""Of a GroupNorm in the place of a BatchNorm, at most."""


def check_model(model: nn.Module) -> None:
    """Refuse a model of which a record's gradient is undefined, naming the layer and what to use instead."""
    _check_is_module(model)
    for name, module in model.named_modules():
        place = f"layer {name!r} ({type(module).__name__})"
        if isinstance(module, nn.modules.batchnorm._NormBase) and not _by_itself(module):
            mixes = isinstance(module, nn.modules.batchnorm._BatchNorm)
            what = "mixes the records of a batch" if mixes else "keeps statistics across records"
            instead = "nn.GroupNorm" if mixes else "track_running_stats=False"
            raise UnusableError(
                f"{place} {what}: use {instead} instead, as precad.fix(model) does, or call its eval() to train with "
                "the statistics that it has"
            )
        if isinstance(module, torch.jit.ScriptModule) and any(p.requires_grad for p in module.parameters()):
            raise UnusableError(f"{place} is scripted, its parameters cannot be exchanged: use the module itself")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise UnusableError(f"{place} changes its weights in the forward pass: use max_norm=None instead")
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        raise UnusableError("the model has lazy parameters: call it once on a batch first")
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise UnusableError("the model has no trainable parameters")
    for name, p in trained.items():
        if p.is_meta:
            raise UnusableError(f"the parameter {name!r} is on torch's meta device, without numbers: call to_empty()")
        if not p.is_floating_point():
            raise UnusableError(f"the parameter {name!r} must be of real floating point, got {p.dtype}")
        if p._backward_hooks:
            raise UnusableError(f"the parameter {name!r} has a hook on its gradient, which would not run: use none")


def fix(model: nn.Module) -> nn.Module:
    """A copy of ``model`` in which each record is treated by itself.

    Every BatchNorm becomes a GroupNorm of the same channels, with its scale and shift: of up to 32 groups, of one
    for BatchNorm1d. InstanceNorm keeps no statistics. The rest is copied, with its parameters. Train the copy.
    """
    fixed = copied(model)
    for name, module in list(fixed.named_modules()):
        if isinstance(module, nn.modules.batchnorm._NormBase):
            other = _fixed(module)
            if not name:
                return other
            parent, _, own = name.rpartition(".")
            setattr(fixed.get_submodule(parent), own, other)
    return fixed


def copied(model: nn.Module) -> nn.Module:
    """A deep copy, also of a model that keeps a computed tensor, as torch's older ``weight_norm`` does."""
    _check_is_module(model)
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise UnusableError(f"the model cannot be copied: {error}") from error


def _check_is_module(model: object) -> None:
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise UnusableError(f"the model must be a torch nn.Module, got the class {model.__name__}: call it to make one")
    if not isinstance(model, nn.Module):
        raise UnusableError(f"the model must be a torch nn.Module, got {type(model).__name__}")


def _by_itself(module: nn.modules.batchnorm._NormBase) -> bool:
    if not module.training and module.running_mean is not None:
        return True
    return not isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats


def _fixed(module: nn.modules.batchnorm._NormBase) -> nn.Module:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        channels = module.num_features
        most = 1 if isinstance(module, nn.BatchNorm1d) else min(_GROUPS, channels)  # a vector has no more
        groups = max(g for g in range(1, most + 1) if channels % g == 0)
        other = nn.GroupNorm(groups, channels, module.eps, module.affine)
        other.train(module.training)
        if module.affine:
            other.weight, other.bias = module.weight, module.bias
        return other
    module.track_running_stats = False
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        module.register_buffer(name, None)
    return module
