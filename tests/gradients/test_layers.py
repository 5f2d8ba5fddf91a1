"""Every layer with a rule of its own, against autograd on single records."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from precad.gradients.engine import PerRecordGradients
from tests.gradients.reference import assert_close, classes, normal, one_by_one, seeded, theta_of

IMAGES, SEQUENCES, VECTORS = (3, 9, 8), (6, 5), (12,)


def head(width: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(width, 10)]


def around(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The layer between two with parameters, on images."""
    return lambda: nn.Sequential(nn.Conv2d(3, 4, 2), layer(), nn.Flatten(), nn.LazyLinear(10))


BY_HAND: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(12, 7), nn.Linear(7, 10)), VECTORS),
    "linear alone": (lambda: nn.Linear(12, 10), VECTORS),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(12, 7, bias=False), nn.Linear(7, 10)), VECTORS),
    "linear on positions": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), *head(24)), SEQUENCES),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, (3, 2)), nn.Flatten(), nn.LazyLinear(10)),
        IMAGES,
    ),
    "conv, few positions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 6), nn.Conv2d(4, 4, 2), nn.Flatten(), nn.LazyLinear(10)),
        IMAGES,
    ),
    "conv, many positions": (
        lambda: nn.Sequential(nn.Conv2d(3, 1, 1), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.LazyLinear(10)),
        IMAGES,
    ),
    "conv, same": (around(lambda: nn.Conv2d(4, 2, 3, padding="same", dilation=(1, 2))), IMAGES),
    "conv, valid, no bias": (around(lambda: nn.Conv2d(4, 2, 3, padding="valid", bias=False)), IMAGES),
    "relu": (around(nn.ReLU), IMAGES),
    "relu in place": (around(lambda: nn.ReLU(inplace=True)), IMAGES),
    "tanh": (around(nn.Tanh), IMAGES),
    "sigmoid": (around(nn.Sigmoid), IMAGES),
    "gelu": (around(nn.GELU), IMAGES),
    "elu": (around(nn.ELU), IMAGES),
    "leaky relu": (around(nn.LeakyReLU), IMAGES),
    "silu": (around(nn.SiLU), IMAGES),
    "identity": (around(nn.Identity), IMAGES),
    "max pool": (around(lambda: nn.MaxPool2d(2)), IMAGES),
    "max pool, overlapping": (around(lambda: nn.MaxPool2d((3, 2), stride=1)), IMAGES),
    "max pool, dilated": (around(lambda: nn.MaxPool2d(2, stride=2, dilation=2)), IMAGES),
    "relu, max pool": (around(lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2))), IMAGES),
    "average pool": (around(lambda: nn.AvgPool2d(2, padding=1)), IMAGES),
    "adaptive average pool": (around(lambda: nn.AdaptiveAvgPool2d(1)), IMAGES),
    "group norm": (around(lambda: nn.GroupNorm(2, 4)), IMAGES),
    "group norm without parameters": (around(lambda: nn.GroupNorm(2, 4, affine=False)), IMAGES),
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), *head(24)), SEQUENCES),
    "layer norm on all": (lambda: nn.Sequential(nn.LayerNorm([6, 5]), *head(30)), SEQUENCES),
    "layer norm without bias": (lambda: nn.Sequential(nn.LayerNorm(5, bias=False), *head(30)), SEQUENCES),
    "layer norm without parameters": (
        lambda: nn.Sequential(nn.Linear(12, 12), nn.LayerNorm(12, elementwise_affine=False), nn.Linear(12, 10)),
        VECTORS,
    ),
    "dropout of nothing": (around(lambda: nn.Dropout(0.0)), IMAGES),
    "dropout, evaluating": (lambda: around(nn.Dropout)().eval(), IMAGES),
    "layers without parameters in front": (lambda: nn.Sequential(nn.Tanh(), nn.MaxPool2d(2), *head(48)), IMAGES),
    "nested": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(12, 7), nn.Tanh()), nn.Sequential(nn.Linear(7, 10))),
        VECTORS,
    ),
}


def with_one_tanh() -> nn.Module:
    tanh = nn.Tanh()
    return nn.Sequential(nn.Linear(12, 7), tanh, nn.Linear(7, 7), tanh, nn.Linear(7, 10))


BY_HAND["one activation used twice"] = with_one_tanh, VECTORS


def compare(model: nn.Module, inputs: Tensor, *, by_hand: bool = True) -> None:
    targets = classes(len(inputs))
    engine = PerRecordGradients(model, cross_entropy)
    assert engine.by_hand is by_hand
    found = engine.per_record(theta_of(model), inputs, targets)
    assert_close(found, one_by_one(model, cross_entropy, inputs, targets))


@pytest.mark.parametrize("name", BY_HAND)
def test_a_layer_by_hand(name: str) -> None:
    build, shape = BY_HAND[name]
    model, inputs = seeded(build), normal(5, *shape)
    model(inputs)  # lazy layers take their sizes
    compare(model, inputs)


@pytest.mark.parametrize("padding_idx", [None, 3])
def test_embedding(padding_idx: int | None) -> None:
    model = seeded(lambda: nn.Sequential(nn.Embedding(9, 4, padding_idx=padding_idx), nn.Tanh(), *head(24)))
    compare(model, torch.randint(0, 9, (5, 6), generator=torch.Generator().manual_seed(3)))


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@settings(max_examples=40)
@given(st.data())
def test_convolutions_of_all_geometries(data: st.DataObject) -> None:
    size, stride, dilation, padding = (data.draw(pair) for pair in (pairs(1, 3), pairs(1, 3), pairs(1, 2), pairs(0, 2)))
    channels = data.draw(st.integers(1, 3))
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, channels, 2),
            nn.Conv2d(channels, 2, size, stride, padding, dilation),
            nn.Flatten(),
            nn.LazyLinear(10),
        )
    )
    inputs = normal(3, 1, *data.draw(pairs(6, 9)))
    model(inputs)
    compare(model, inputs)


@settings(max_examples=20)
@given(st.data())
def test_max_pools_of_all_geometries(data: st.DataObject) -> None:
    size, stride, dilation = (data.draw(pair) for pair in (pairs(1, 3), pairs(1, 3), pairs(1, 2)))
    pool = nn.MaxPool2d(size, stride, dilation=dilation)
    model = seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 2), pool, nn.Flatten(), nn.LazyLinear(10)))
    inputs = normal(3, 1, *data.draw(pairs(6, 9)))
    model(inputs)
    compare(model, inputs)


BY_TORCH: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv with groups": (around(lambda: nn.Conv2d(4, 4, 2, groups=2)), IMAGES),
    "conv with reflection": (around(lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")), IMAGES),
    "conv, same, of even size": (around(lambda: nn.Conv2d(4, 2, 2, padding="same")), IMAGES),
    "max pool with padding": (around(lambda: nn.MaxPool2d(2, padding=1)), IMAGES),
    "max pool, last window cut": (around(lambda: nn.MaxPool2d(2, ceil_mode=True)), IMAGES),
    "one-dimensional conv": (lambda: nn.Sequential(nn.Conv1d(6, 4, 2), *head(16)), SEQUENCES),
    "instance norm": (around(lambda: nn.InstanceNorm2d(4, affine=True)), IMAGES),
    "softmax": (lambda: nn.Sequential(nn.Linear(12, 7), nn.Softmax(1), nn.Linear(7, 10)), VECTORS),
}


@pytest.mark.parametrize("name", BY_TORCH)
@pytest.mark.filterwarnings("ignore:.*even kernel lengths.*")
def test_a_layer_without_a_rule(name: str) -> None:
    build, shape = BY_TORCH[name]
    model, inputs = seeded(build), normal(5, *shape)
    model(inputs)
    compare(model, inputs, by_hand=False)
