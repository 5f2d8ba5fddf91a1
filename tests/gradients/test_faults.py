"""Records that do not count are found without their gradients, and where bounds tell, without a forward pass."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from precad.gradients.engine import PerRecordGradients
from precad.gradients.layers import Linear

MODELS = {
    "by bounds": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)),
    "images": lambda: nn.Sequential(nn.Conv2d(1, 3, 2, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6, 4)),
    "by torch": lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(), nn.Linear(6, 4)),
    "by a forward pass": lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.LeakyReLU(9.0), nn.Linear(8, 4)),
}


@pytest.mark.parametrize("scale", [1.0, 1e9, 1e18, 1e25, 1e38, np.inf, np.nan])
@pytest.mark.parametrize("size", [1.0, 1e5, 1e30])
@pytest.mark.parametrize("kind", MODELS)
def test_faults_are_the_records_without_a_finite_gradient(kind: str, size: float, scale: float) -> None:
    """Whatever the weights and inputs are; a label that there is not is a fault, too."""
    torch.manual_seed(2)
    model = MODELS[kind]()
    x, y = torch.randn(60, 6), torch.randint(4, (60,))
    x[5], x[7, 2], y[9], y[11] = torch.nan, torch.inf, 4, -1
    x = (x * size).view(60, *((1, 2, 3) if kind == "images" else (6,)))
    engine = PerRecordGradients(model, cross_entropy)
    theta = nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy()
    theta[: theta.size // 2] *= scale
    found = set(engine.faults(theta, x, y))
    finite = np.isfinite(engine.per_record(theta, x, y)).all(1)
    assert {5, 7, 9, 11} <= found
    unbounded = set(np.flatnonzero(~finite).tolist())
    assert found - {9, 11} <= unbounded | {5, 7}
    if scale < 1e18 and size < 1e30:
        assert unbounded <= found


def test_bounds_spare_the_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    forward = Linear.forward

    def watched(self: Any, x: Any, own: Any) -> Any:
        rows.append(len(x))
        return forward(self, x, own)

    monkeypatch.setattr(Linear, "forward", watched)
    model = MODELS["by bounds"]()
    engine = PerRecordGradients(model, cross_entropy)
    theta = nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy()
    y = torch.zeros(500, dtype=torch.int64)
    y[499] = 4
    assert set(engine.faults(theta, torch.randn(500, 6), y)) == {499}
    assert set(rows) == {1}
