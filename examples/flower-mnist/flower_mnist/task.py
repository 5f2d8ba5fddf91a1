"""The model, the data and the training: nothing here knows of precad."""

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SIDE, CLASSES, RECORDS = 7, 10, 600


class Net(nn.Module):
    """A linear classifier of images of 7 × 7 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE * SIDE, CLASSES)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        """The score of each class."""
        scores: Tensor = self.layer(images)
        return scores


def load_records(partition: int) -> tuple[Tensor, Tensor]:
    """The records of a client: its part of MNIST, if the folder MNIST holds it, or else made-up ones.

    Partition −1 is the servers' test set.
    """
    folder = os.environ.get("MNIST")
    images, labels = _mnist(Path(folder), partition) if folder else _made_up(partition)
    return torch.from_numpy(images), torch.from_numpy(labels)


def train(net: nn.Module, images: Tensor, labels: Tensor, learning_rate: float) -> float:
    """Ten steps of gradient descent; the last loss."""
    optimiser = torch.optim.SGD(net.parameters(), learning_rate)
    loss = torch.zeros(())
    for _ in range(10):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return float(loss.detach())


def accuracy(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The fraction of records that the model gets right."""
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())


def _mnist(folder: Path, partition: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """600 images of MNIST's own files, averaged over 4 × 4 pixels."""
    kind, first = ("t10k", 0) if partition < 0 else ("train", partition * RECORDS)
    with gzip.open(folder / f"{kind}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, SIDE, 4, SIDE, 4)
    with gzip.open(folder / f"{kind}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    chosen = slice(first, first + RECORDS)
    images = pixels[chosen].mean(axis=(2, 4), dtype=np.float32).reshape(-1, SIDE * SIDE) / 255
    return images, labels[chosen].astype(np.int64)


def _made_up(partition: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Each class is a fixed pattern under noise; each client has its own draw."""
    patterns = np.random.default_rng(0).random((CLASSES, SIDE * SIDE))
    generator = np.random.default_rng(partition + 2)
    labels = generator.integers(CLASSES, size=RECORDS)
    images = patterns[labels] + 0.3 * generator.standard_normal((RECORDS, SIDE * SIDE))
    return images.astype(np.float32), labels
