"""Refuses a model or a loss that mixes the records of a batch, as made-up records show.

Training takes each record as a batch of its own, evaluation takes many: both must be the same function of a record.
"""

import math
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from precad.gradients.isolation import State, StateError
from precad.gradients.losses import CrossEntropy, LossFunction

_TRIED = 16
"""Records of a batch."""
_TOLERANCE, _ROUNDINGS = 1e-3, 8
"""Of the largest number: what rounding may change, at least, and in units of the last place."""


@dataclass(frozen=True)
class Tried:
    """What a model gives for made-up records."""

    whole: Any
    """For all of them as one batch."""
    apart: list[Any]
    """For each of them alone."""
    same: bool
    """Whether these are the same, or cannot be compared."""


def try_model(models: Sequence[Callable[[Tensor], Any]], state: State, inputs: Tensor) -> Tried | None:
    """The outputs for records of this shape, of the first of ``models`` that draws no randomness.

    None if there is no such model, or if it raises for these records, as one that takes a single record alone.

    Raises:
        StateError: The model mixes the records of a batch. One that makes Python numbers of
            tensors, to branch on them, may: it is written for one record, and is so evaluated.
    """
    x = _made_up(inputs)
    for model in models:
        state.sources.seed(0)
        before, reading = state.sources.standing(), _Reading()  # type: ignore[no-untyped-call]
        try:
            with reading:
                whole, *apart = (_run(model, state, batch) for batch in (x, *_rows(x)))
            if state.sources.standing() != before:
                continue
            same = not isinstance(whole, Tensor) or _joined(whole, apart)
            mixed = not same and not reading.seen and _mixed(model, state, x, whole)
        except StateError:
            raise
        except Exception:
            return None
        finally:
            state.restore()
        if mixed:
            raise StateError(
                "the model mixes the records of a batch: its outputs for several records are not those of each record "
                "alone. Look for an operation over dimension 0, as mean(0) or softmax(0), and for nn.LSTM, nn.GRU, "
                "nn.RNN or attention without batch_first=True"
            )
        return Tried(whole, apart, same)
    return None


def outputs_of_chain(outputs: Tensor) -> Tried:
    """Made-up ones of this shape."""
    whole = _made_up(outputs)
    return Tried(whole, _rows(whole), True)


def check_mean(loss: LossFunction, state: State, outputs: Tried, targets: Tensor) -> None:
    """Refuse a loss that is neither the mean nor the sum of the losses of its records, with labels of all classes.

    What raises, draws randomness or is not finite is not judged here.
    """
    whole, target = outputs.whole, _made_up(targets, torch.rand)
    if isinstance(whole, Tensor) and whole.ndim == 2 and CrossEntropy.takes(targets):
        target = torch.arange(_TRIED, dtype=targets.dtype, device=targets.device) % whole.shape[1]
    apart = outputs.apart if outputs.same else _rows(whole)
    state.sources.seed(0)
    before = state.sources.standing()
    try:
        together, *alone = (
            _value(loss, state, *p) for p in zip([whole, *apart], [target, *_rows(target)], strict=True)
        )
    except StateError:
        raise
    except Exception:
        return  # a loss of one record alone, or of values that these are not
    finally:
        drawn = state.sources.standing() != before
        state.restore()
    most, total = _tolerance(whole) * max(map(abs, alone)) + 1e-6, sum(alone)
    near = any(abs(together - wanted) <= most for wanted in (total / len(alone), total))
    if not near and not drawn and math.isfinite(total) and math.isfinite(together):
        raise StateError(
            "the loss of several records is not the mean of their losses: give each record a loss of its own, with "
            'weights as in (w[t] * F.cross_entropy(o, t, reduction="none")).mean()' + _shapes(whole, target)
        )


class _Reading(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether code makes a Python number of a tensor."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = self.seen or func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def _run(model: Callable[[Tensor], Any], state: State, batch: Tensor) -> Any:
    found = copy_context().run(model, batch.clone())
    state.restore()
    return found


def _joined(whole: Tensor, apart: list[Tensor]) -> bool:
    """Whether a batch's outputs are its records' one after another, or side by side in any dimension."""
    flat = torch.cat([one.flatten() for one in apart])
    if not whole.ndim or not all(bool(part.isfinite().all()) for part in (whole, flat)):
        return True  # not to be compared
    joined = [flat.view_as(whole)] if flat.numel() == whole.numel() else []
    joined += [torch.cat(apart, dim) for dim in range(1, min(one.ndim for one in apart))]
    return any(_close(one, whole) for one in joined)


def _mixed(model: Callable[[Tensor], Any], state: State, x: Tensor, whole: Tensor) -> bool:
    """Whether a record's output is another if the others are: not if its place in the batch alone tells."""
    if len(whole) != len(x):
        return True
    for row in (0, len(x) // 2, len(x) - 1):
        other = x.roll(1, 0)
        other[row] = x[row]
        if not _close(_run(model, state, other)[row], whole[row]):
            return True
    return False


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, 0, _tolerance(b) * float(b.abs().max()) + 1e-6)


def _value(loss: LossFunction, state: State, outputs: Any, target: Tensor) -> float:
    value = float(loss(outputs.clone() if isinstance(outputs, Tensor) else outputs, target.clone()))
    state.restore()
    return value


def _tolerance(outputs: Any) -> float:
    floating = isinstance(outputs, Tensor) and outputs.is_floating_point()
    return max(_TOLERANCE, _ROUNDINGS * torch.finfo(outputs.dtype).eps) if floating else _TOLERANCE


def _shapes(outputs: Any, targets: Tensor) -> str:
    """A hint at torch's broadcasting."""
    if not isinstance(outputs, Tensor) or not targets.is_floating_point() or outputs.shape == targets.shape:
        return ""
    one, other = (f"(n, {', '.join(map(str, part.shape[1:]))})".replace(", )", ",)") for part in (outputs, targets))
    return f"; here outputs of shape {one} meet targets of shape {other}, which must be the same"


def _rows(batch: Tensor) -> list[Tensor]:
    return [batch[i : i + 1] for i in range(len(batch))]


def _made_up(like: Tensor, draw: Callable[..., Tensor] = torch.randn) -> Tensor:
    """Records of this shape: drawn numbers, or zeros and ones in turn in the place of indices."""
    shape = _TRIED, *like.shape[1:]
    if like.is_floating_point():
        return draw(shape, generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)
    turns = torch.arange(_TRIED).view(-1, *[1] * (like.ndim - 1)) % 2
    return turns.expand(shape).to(like.device, like.dtype)
