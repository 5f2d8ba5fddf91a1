"""Per-record gradients as slowly and plainly as can be: one record at a time, by autograd."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.gradients.losses import LossFunction


def theta_of(model: nn.Module) -> NDArray[np.float64]:
    trained = [p.detach().flatten() for p in model.parameters() if p.requires_grad]
    return torch.cat(trained).numpy().astype(np.float64)


def one_by_one(model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor) -> NDArray[np.float32]:
    trained = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(inputs)):
        value = loss(model(inputs[i : i + 1]), targets[i : i + 1])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, trained)]).numpy())
    return np.array(rows)


def assert_close(found: NDArray[np.floating], expected: NDArray[np.floating], tolerance: float = 1e-4) -> None:
    """Every row is within float32 rounding of the other, relative to the row's norm."""
    assert found.shape == expected.shape
    errors = np.linalg.norm(found - expected, axis=1)
    assert (errors <= tolerance * np.linalg.norm(expected, axis=1) + 1e-7).all(), errors


def seeded(build: Any, *args: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return build(*args)  # type: ignore[no-any-return]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def classes(records: int, number: int = 10) -> Tensor:
    return torch.randint(0, number, (records,), generator=torch.Generator().manual_seed(1))
