"""The models: their sizes, and that the gradient engine takes each by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from precad.simulation.models import Activation, cifar_cnn, digits_model, mnist_cnn
from tests.messages import says


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(
    ("build", "shape", "size"), [(mnist_cnn, (1, 28, 28), 26_010), (cifar_cnn, (3, 32, 32), 122_570)]
)
def test_cnns_have_the_sizes_of_the_paper(
    build: Callable[[Activation], nn.Module], shape: tuple[int, ...], size: int, activation: Activation
) -> None:
    model = build(activation)
    assert sum(p.numel() for p in model.parameters()) == size
    assert model(torch.zeros(2, *shape)).shape == (2, 10)
    kinds = {type(module) for module in model}  # type: ignore[attr-defined]
    assert {"relu": nn.ReLU, "tanh": nn.Tanh}[activation] in kinds


def test_the_digits_model() -> None:
    model = digits_model()
    assert sum(p.numel() for p in model.parameters()) == 2_410
    assert model(torch.zeros(2, 64)).shape == (2, 10)


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(ValueError, match=says("activation", "relu", "tanh", "'gelu'")):
        mnist_cnn("gelu")  # type: ignore[arg-type]
