"""The score of a model, however its layers are written."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import precad
from precad.data.records import ArrayRecords, as_records
from precad.simulation.evaluation import evaluate
from tests.simulation.small import data, hyperparameters


class Viewing(nn.Module):
    """A forward pass that needs images to lie in memory as torch makes them."""

    def __init__(self, convolution: nn.Conv2d, linear: nn.Linear) -> None:
        super().__init__()
        self.convolution, self.linear = convolution, linear

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.convolution(x)
        out: Tensor = self.linear(y.view(len(y), -1))
        return out


@pytest.mark.parametrize("channels", [1, 3])
def test_a_chain_and_a_forward_pass_of_ones_own_have_the_same_score(channels: int) -> None:
    torch.manual_seed(0)
    convolution, linear = nn.Conv2d(channels, 4, 3), nn.Linear(4 * 6 * 6, 10)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (250, channels, 8, 8), np.uint8), rng.integers(0, 10, 250)
    records = ArrayRecords(images, labels, np.arange(250), lambda x: torch.from_numpy(x.astype(np.float32)).div_(255))
    loss = nn.functional.cross_entropy
    chained = evaluate(nn.Sequential(convolution, nn.Flatten(), linear), loss, records)
    viewing = evaluate(Viewing(convolution, linear), loss, records)
    assert chained.accuracy == viewing.accuracy
    assert abs(chained.loss - viewing.loss) < 1e-5


@pytest.mark.parametrize("channels", [1, 3])
def test_images_go_through_a_chain_with_the_channels_last(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    """Which is two to three times as fast."""
    orders, convolve = list[bool](), nn.functional.conv2d

    def convolved(*inputs: Any) -> Tensor:
        orders.append(convolve(*inputs).is_contiguous(memory_format=torch.channels_last))
        return convolve(*inputs)

    monkeypatch.setattr(nn.functional, "conv2d", convolved)
    images = ArrayRecords(np.zeros((250, channels, 8, 8), np.float32), np.zeros(250, int), np.arange(250), torch.tensor)
    model = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 10))
    evaluate(model, nn.functional.cross_entropy, images)
    assert orders == [True, True, True]


CLASSES = torch.arange(30) % 3
INPUTS = torch.randn(30, 8, generator=torch.Generator().manual_seed(2))
WEIGHTS = torch.tensor([1.0, 5.0, 0.2])


@pytest.mark.parametrize(
    ("loss", "of_one"),
    [
        (nn.CrossEntropyLoss(WEIGHTS), nn.CrossEntropyLoss(WEIGHTS, reduction="sum")),
        (nn.CrossEntropyLoss(reduction="sum"), nn.CrossEntropyLoss()),
        (lambda o, t: (WEIGHTS[t] * nn.functional.cross_entropy(o, t, reduction="none")).sum(), None),
        (lambda o, t: nn.functional.cross_entropy(o, t, reduction="none"), nn.CrossEntropyLoss()),
    ],
)
def test_the_loss_is_the_mean_of_the_losses_that_are_trained(loss: Any, of_one: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 3)
    alone = [float((of_one or loss)(model(x[None]), y[None]).detach()) for x, y in zip(INPUTS, CLASSES, strict=True)]
    found = evaluate(model, loss, as_records("it", TensorDataset(INPUTS, CLASSES)))
    assert abs(found.loss - np.mean(alone)) < 1e-5
    assert found.accuracy is not None


def test_ignored_labels_have_no_part_in_the_loss() -> None:
    torch.manual_seed(0)
    model, kept = nn.Linear(8, 3), CLASSES != 1
    whole = evaluate(model, nn.CrossEntropyLoss(ignore_index=1), as_records("it", TensorDataset(INPUTS, CLASSES)))
    some = evaluate(model, nn.CrossEntropyLoss(), as_records("it", TensorDataset(INPUTS[kept], CLASSES[kept])))
    assert abs(whole.loss - some.loss) < 1e-5


SEEN: list[int] = []


class Counting(nn.Module):
    """Depends on how often it was called; what it keeps is the same for every record."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.calls = nn.Linear(8, 3), 0

    def seen(self) -> int:
        self.calls += 1
        return self.calls

    def forward(self, x: Tensor) -> Any:
        return self.out(x) * self.seen()


class Listing(Counting):
    def seen(self) -> int:
        SEEN.append(1)
        return len(SEEN)


class Branching(Counting):
    """Written for one record."""

    def forward(self, x: Tensor) -> Any:
        return self.out(x) if float(x.sum()) > 0 else -self.out(x)


class Bare(Counting):
    """Gives an object."""

    def forward(self, x: Tensor) -> Any:
        return {"scores": self.out(x)}


@pytest.mark.parametrize("kind", [Counting, Listing, Branching])
def test_a_model_is_evaluated_and_returned_as_it_was_trained(kind: type[Counting]) -> None:
    test = data(250, seed=1)
    run = precad.train(kind(), nn.functional.cross_entropy, [data()], hyperparameters(), test_set=test, seed=1)
    assert (getattr(run.model, "calls"), SEEN) == (0, [])  # noqa: B009 - torch's modules may have any attribute
    losses = []
    for x, y in zip(*test.tensors, strict=True):
        losses.append(float(nn.functional.cross_entropy(run.model(x[None]), y[None]).detach()))
        setattr(run.model, "calls", 0)  # noqa: B010
        SEEN.clear()
    assert run.figures.loss is not None
    assert abs(run.figures.loss - np.mean(losses)) < 1e-5


def test_outputs_may_be_any_object() -> None:
    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs["scores"], targets)

    figures = precad.train(Bare(), loss, [data()], hyperparameters(), test_set=data(), seed=1).figures
    assert figures.accuracy is None
    assert figures.loss is not None
