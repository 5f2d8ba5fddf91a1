"""The score of a model, however its layers are written."""

import numpy as np
import torch
from torch import Tensor, nn

from precad.learning.evaluation import evaluate
from precad.learning.records import ArrayRecords


class Viewing(nn.Module):
    """A forward pass that needs images to lie in memory as torch makes them."""

    def __init__(self, convolution: nn.Conv2d, linear: nn.Linear) -> None:
        super().__init__()
        self.convolution, self.linear = convolution, linear

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.convolution(x)
        out: Tensor = self.linear(y.view(len(y), -1))
        return out


def test_a_chain_and_a_forward_pass_of_ones_own_have_the_same_score() -> None:
    torch.manual_seed(0)
    convolution, linear = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 10)
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (250, 3, 8, 8), np.uint8), rng.integers(0, 10, 250)
    records = ArrayRecords(images, labels, np.arange(250), lambda x: torch.from_numpy(x.astype(np.float32)).div_(255))
    loss = nn.functional.cross_entropy
    chained = evaluate(nn.Sequential(convolution, nn.Flatten(), linear), loss, records)
    viewing = evaluate(Viewing(convolution, linear), loss, records)
    assert chained.accuracy == viewing.accuracy
    assert abs(chained.loss - viewing.loss) < 1e-5
