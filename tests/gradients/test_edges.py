"""At the edge of a model or a loss: parameters that no layer uses, types that torch casts, bits that compare equal."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from precad.data.records import DatasetRecords, read
from precad.gradients.engine import PerRecordGradients

X, Y = torch.randn(24, 8, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3


def theta(model: nn.Module) -> Any:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double().numpy()


def rows(model: nn.Module, loss: Any = cross_entropy, x: Tensor = X, y: Tensor = Y) -> Any:
    return PerRecordGradients(model, loss, threads=1).per_record(theta(model), x, y)


def alone(model: nn.Module, x: Tensor = X, y: Tensor = Y) -> Any:
    found = []
    for row, label in zip(x, y, strict=True):
        loss = cross_entropy(model(row[None]), label[None])
        parts = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
        found.append(torch.cat([part.flatten() for part in parts]).numpy())
    return np.array(found)


@pytest.mark.parametrize("place", ["the chain", "a layer", "a layer without weights", "the name of a weight"])
def test_a_parameter_that_no_layer_uses_has_gradient_0(place: str) -> None:
    """It had what was in the memory before."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    owner = {"the chain": model, "a layer": model[0]}.get(place, model[1])
    name = "weight" if place == "the name of a weight" else "unused"
    owner.register_parameter(name, nn.Parameter(torch.zeros(2000)))
    for _ in range(3):
        garbage = [torch.full((24, 2147), 1e4) for _ in range(4)]
        del garbage
        assert np.allclose(rows(model), alone(model), atol=1e-6)


def test_a_complex_buffer_stays_complex() -> None:
    class Rotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(8, 3)
            self.turn: Tensor
            self.register_buffer("turn", torch.polar(torch.ones(4), torch.arange(4.0)))

        def forward(self, x: Tensor) -> Tensor:
            turned = torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2)) * self.turn
            scores: Tensor = self.out(torch.view_as_real(turned).flatten(-2))
            return scores

    torch.manual_seed(0)
    model = Rotated()
    assert np.allclose(rows(model), alone(model), atol=1e-6)


class Latch(nn.Module):
    """A large record leaves behind what compares equal to what was there; the next one reads and clears it."""

    def __init__(self, left: Callable[[], Any], put: Callable[[Any, bool], None], shows: Callable[[Any], bool]) -> None:
        super().__init__()
        self.out, self.kept, self.put, self.shows = nn.Linear(8, 3), left(), put, shows

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x)
        if self.shows(self.kept):
            self.put(self.kept, False)
            scores = -scores
        if float(x.abs().max()) > 1e5:
            self.put(self.kept, True)
        return scores


def _put_zero(kept: Tensor, on: bool) -> None:
    kept.data.fill_(-0.0 if on else 0.0)


def _put_object(kept: Any, on: bool) -> None:
    kept[0] = "large" if on else None


@pytest.mark.parametrize(
    "latch",
    [
        (lambda: torch.zeros(1), _put_zero, lambda kept: bool(torch.signbit(kept).item())),
        (lambda: np.array([None], object), _put_object, lambda kept: kept[0] is not None),
    ],
    ids=["minus zero", "an array of objects"],
)
def test_what_compares_equal_is_put_back_too(latch: Any) -> None:
    torch.manual_seed(0)
    model = Latch(*latch)
    large = X.clone()
    large[4] = 1e6
    plain, other = rows(model), rows(model, x=large)
    kept = np.arange(24) != 4
    assert np.array_equal(plain[kept], other[kept])


def test_a_hook_on_the_loss_runs() -> None:
    model, loss = nn.Sequential(nn.Linear(8, 3)), nn.CrossEntropyLoss()

    def doubled(_module: nn.Module, grads: Any, _out: Any) -> Any:
        return tuple(g if g is None else 2 * g for g in grads)

    loss.register_full_backward_hook(doubled)
    assert np.allclose(rows(model, loss), 2 * alone(model), atol=1e-6)


def test_labels_that_are_no_numbers_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(8, 3))
    engine = PerRecordGradients(model, cross_entropy, threads=1)
    assert engine.misfit(theta(model), X, Y > 0) is not None


def test_a_record_that_moves_torch_to_another_device_moves_no_other() -> None:
    class Moving(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            if index == 1:
                torch.set_default_device("meta")
                raise ZeroDivisionError
            return torch.ones(2), index

    found = read(DatasetRecords(Moving()), np.arange(3))
    assert list(found.faults) == [1]
    assert torch.get_default_device() == torch.device("cpu")
    assert all(batch.inputs.device == torch.device("cpu") for batch in found.batches)
