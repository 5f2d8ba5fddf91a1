"""The paper's two backdoors: the attackers' images, and how they train their model θ* (Paper: Experimental Details)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from precad.data.image_sets import ImageData
from precad.data.records import ArrayRecords, Records
from precad.gradients.engine import PerRecordGradients
from precad.lab.attacks import data_poisoning, model_poisoning
from precad.simulation.problem import AttackContext, Floats

Transform = Callable[[NDArray[np.uint8]], Tensor]
"""From images to what the model takes."""

LEARNING_RATE = 0.02
ITERATIONS = 5
"""L, of the attackers' local training."""
BATCH, PATTERNS, WALLS = 64, 32, 20
"""Records in a local iteration, and how many of them have the backdoor. The paper does not say. The pixel pattern is
put on *all* of the attackers' images, so each has its twin: half. The rest is of Bagdasaryan et al., 2020, §5.1."""
TRAIN_VERSIONS, TEST_VERSIONS = 600, 1000
"""Random rotations and crops of the semantic backdoor's 12 and 4 images; the paper gives the second number only."""


@dataclass(frozen=True)
class BackdoorImages:
    """Records with the attackers' feature and label."""

    train: Records
    test: Records
    in_batch: int
    """How many of them are in a local iteration."""


def pixel_pattern(images: ImageData, transform: Transform, rows: NDArray[np.int64]) -> BackdoorImages:
    """A white square in the corner, labelled 0: of the attackers' own training images, and of all test images.

    Departure from the paper: test images that show a 0 are left out. A model without backdoor takes them for 0 too,
    and its backdoor accuracy would be about 10 %, where the paper has 0 %.
    """
    label = data_poisoning.PATTERN_LABEL
    clean = images.x_train[rows], images.x_test[np.flatnonzero(images.y_test != label)]
    train, test = (_labelled(data_poisoning.pixel_pattern(some), label, transform) for some in clean)
    return BackdoorImages(train, test, PATTERNS)


def semantic(images: ImageData, transform: Transform, rng: np.random.Generator) -> BackdoorImages:
    """Cars before a striped wall, labelled bird: rotations and crops of the 12 training and the 4 test images."""
    needed = max(data_poisoning.WALL_TRAIN), max(data_poisoning.WALL_TEST)
    if images.name != "cifar10" or needed[0] >= len(images.x_train) or needed[1] >= len(images.x_test):
        raise ValueError(f"the semantic backdoor is made of the images of CIFAR-10, got {images.name}, or a part of it")
    cars = (
        (images.x_train[np.array(data_poisoning.WALL_TRAIN)], TRAIN_VERSIONS),
        (images.x_test[np.array(data_poisoning.WALL_TEST)], TEST_VERSIONS),
    )
    versions = [data_poisoning.rotated_and_cropped(some, count, rng) for some, count in cars]
    train, test = (_labelled(some, data_poisoning.WALL_LABEL, transform) for some in versions)
    return BackdoorImages(train, test, WALLS)


class BackdoorAttack:
    """All attackers of a run as one: they pool their records, train one θ* in a round, and split what replaces θ_t."""

    def __init__(self, gradients: PerRecordGradients, benign: Records, backdoor: BackdoorImages) -> None:
        self._gradients, self._benign, self._backdoor = gradients, benign, backdoor
        self._theta: Floats | None = None
        self._target: Floats | None = None

    def __call__(self, context: AttackContext) -> Floats:
        """An attacker's even part of 1/(η·w)·(θ* − θ_t)."""
        if self._target is None or context.theta is not self._theta:
            self._theta, self._target = context.theta, self._train(context.theta, context.rng)
        return model_poisoning.model_replacement(
            self._target, context.theta, context.learning_rate, context.normaliser, context.attackers
        )

    def _train(self, theta: Floats, rng: np.random.Generator) -> Floats:
        """θ*: L steps on a mix of benign and backdoor records."""
        target = theta
        for _ in range(ITERATIONS):
            mix = (self._benign, BATCH - self._backdoor.in_batch), (self._backdoor.train, self._backdoor.in_batch)
            parts = [records.batch(rng.integers(0, len(records), count)) for records, count in mix]
            inputs, targets = (torch.cat(both) for both in zip(*parts, strict=True))
            (total,) = self._gradients.sums(target, inputs, targets, np.array([BATCH]))
            target = target - LEARNING_RATE / BATCH * total
        return target


def _labelled(images: NDArray[np.uint8], label: int, transform: Transform) -> ArrayRecords:
    return ArrayRecords(images, np.full(len(images), label, np.int64), np.arange(len(images)), transform)
