"""The score of a model, however its layers are written."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from precad.data.records import ArrayRecords
from precad.simulation.evaluation import evaluate


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
