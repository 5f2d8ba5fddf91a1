"""Canaries: records whose gradient is far above R, in directions of their own, and records that count for nothing.

A canary takes the place of one record of its client, or of all of them where the unit is the client. Out, it is a null
record: what the program itself counts as 0. Nothing else about the run depends on whether it is in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from precad.data.records import Indices, Records
from precad.errors import PrecadError
from precad.gradients.engine import PerRecordGradients

Floats = NDArray[np.float64]
Pair = tuple[Tensor, Tensor]
"""An input and a target, without the axis of a batch."""

STRONG = 8.0
"""The gradient of a canary is at least this many times the bound, at the first model, where that can be reached."""
_DOUBLINGS, _LOOKED_AT = 16, 8
_LABEL_OF_NOTHING = -100


Key = tuple[str, int]
"""The client of a canary, and the number of the record that it takes the place of; of all of them, :data:`ALL`."""
ALL = -1


@dataclass
class Canary:
    """One canary; who plays the run says whether it is in."""

    candidates: Sequence[Pair]
    null: Pair
    present: bool = True
    choice: int = 0
    """Which candidate it is now."""
    asked: bool = False
    """Whether a batch has asked for it."""


@dataclass(frozen=True)
class CanaryRecords:
    """A client's records with canaries among them."""

    held: Records
    canaries: Mapping[int, Canary]
    """By place."""

    def __len__(self) -> int:
        return len(self.held)

    def batch(self, indices: Indices) -> Pair:
        """The records, and canaries or null records in their places."""
        inputs, targets = (part.clone() for part in self.held.batch(indices))
        for place, canary in self.canaries.items():
            rows = np.flatnonzero((np.asarray(indices) == place) | (place == ALL))
            if len(rows):
                canary.asked = True
                inputs[rows], targets[rows] = canary.candidates[canary.choice] if canary.present else canary.null
        return inputs, targets


def places(clients: Mapping[str, Records], most: int, rng: np.random.Generator, *, whole_client: bool) -> list[Key]:
    """Where up to ``most`` canaries go: over all clients evenly, into half of a client's records at most, or all."""
    names = [list(clients)[i] for i in np.sort(rng.permutation(len(clients))[:most])]
    if whole_client:
        return [(name, ALL) for name in names]
    each = max(1, most // len(names))
    return [
        (name, int(place))
        for name in names
        for place in np.sort(rng.permutation(len(clients[name]))[: min(each, max(1, len(clients[name]) // 2))])
    ]


def make_canaries(
    clients: Mapping[str, Records],
    keys: Sequence[Key],
    gradients: PerRecordGradients,
    theta: Floats,
    bound: float,
    rng: np.random.Generator,
) -> dict[Key, Canary]:
    """A canary for each of these places, in directions as different as random inputs make them.

    Each has two candidates with the same input and different targets, or with opposite inputs where the data have one
    target alone: few models fit both, so that one of them has a large gradient whatever was learnt.
    """
    names = dict.fromkeys(name for name, _ in keys)
    examples = [clients[name].batch(np.arange(min(_LOOKED_AT, len(clients[name])))) for name in names]
    inputs, targets = (torch.cat(parts) for parts in zip(*examples, strict=True))
    distinct = torch.unique(targets, dim=0)
    null = _null(inputs[0], targets[0], gradients, theta)
    canaries = {}
    for key in keys:
        chosen = distinct[torch.from_numpy(rng.permutation(len(distinct))[:2])]
        canaries[key] = Canary(_strong(inputs, chosen, gradients, theta, bound, rng), null)
    return canaries


def choose(canaries: Sequence[Canary], gradients: PerRecordGradients, theta: Floats) -> Floats:
    """Let each canary be its candidate with the largest gradient at θ; returns these gradients, a row each."""
    pairs = [pair for canary in canaries for pair in canary.candidates]
    found = gradients.per_record(theta, *(torch.stack(parts) for parts in zip(*pairs, strict=True)))
    rows = np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)
    norms, chosen, start = np.linalg.norm(rows, axis=1), [], 0
    for canary in canaries:
        canary.choice = int(np.argmax(norms[start : start + len(canary.candidates)]))
        chosen.append(start + canary.choice)
        start += len(canary.candidates)
    return rows[chosen].astype(np.float64)


def _strong(
    inputs: Tensor,
    targets: Tensor,
    gradients: PerRecordGradients,
    theta: Floats,
    bound: float,
    rng: np.random.Generator,
) -> list[Pair]:
    """Random signs, as large as it takes; another record's input where inputs are not numbers with a fraction."""
    if not inputs.is_floating_point():
        x = inputs[int(rng.integers(len(inputs)))]
        return [(x, target) for target in targets]
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], tuple(inputs.shape[1:]))).to(inputs.dtype)
    x = signs * max(1.0, float(torch.nan_to_num(inputs).abs().max()))
    for _ in range(_DOUBLINGS):
        found = [(x, target) for target in targets] if len(targets) > 1 else [(x, targets[0]), (-x, targets[0])]
        rows = gradients.per_record(theta, *(torch.stack(parts) for parts in zip(*found, strict=True)))
        norms = np.linalg.norm(rows, axis=1)
        if not np.isfinite(norms).all() or norms.max() >= STRONG * bound:
            break
        x = 2 * x
    return found


def _null(x: Tensor, y: Tensor, gradients: PerRecordGradients, theta: Floats) -> Pair:
    """A record that the program counts as 0, since its gradient is 0 or not finite."""
    if x.is_floating_point():
        x = torch.full_like(x, torch.nan)
    else:
        y = torch.full_like(y, torch.nan if y.is_floating_point() else _LABEL_OF_NOTHING)
    gradient = gradients.per_record(theta, x[None], y[None])[0]
    if np.isfinite(gradient).all() and gradient.any():
        raise PrecadError("this model gives every record a gradient: there is none that counts as 0 to compare with")
    return x, y
