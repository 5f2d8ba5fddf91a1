"""The problem of a configuration for a test with canaries: nobody cheats, and no data need be there.

Malicious clients are left out: they are part of the adversary, who knows what they send. What is claimed holds for any
data, so images of noise do as well as those of a data set that is not on the machine; nothing is downloaded.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from precad.data import image_sets
from precad.data.image_sets import CLASSES, SHAPES, ImageData, Name
from precad.settings import TaskConfig
from precad.simulation import known_problems
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness

_RECORDS_OF_A_CLIENT, _FEWEST, _TEST = 2, 6000, 100


def needs_stand_in(task: TaskConfig, data: Path | None) -> bool:
    """Whether the images of the task have not been given: then noise stands in for them."""
    return task.dataset in SHAPES and data is None and not os.environ.get("PRECAD_DATA")


def build(task: TaskConfig, data: Path | None, randomness: Randomness) -> Problem:
    """Model, loss and records of a task, with honest clients alone."""
    if ":" in task.dataset:
        return replace(known_problems.of_function(task, data, randomness), attacks={})
    name = cast(Name, task.dataset)  # load refuses what it does not know
    if needs_stand_in(task, data):
        records = max(_FEWEST, _RECORDS_OF_A_CLIENT * task.clients * task.shards_per_client)
        images = _noise(name, records, randomness.generator("images"))
    else:
        images = image_sets.load(name, data)
    return known_problems.of_images(task, images, randomness)


def _noise(name: Name, records: int, rng: np.random.Generator) -> ImageData:
    """Images of the data set's form: random pixels, random labels."""
    images = rng.integers(256, size=(records + _TEST, *SHAPES[name]), dtype=np.uint8)
    labels = rng.integers(CLASSES, size=records + _TEST)
    return ImageData(name, images[:records], labels[:records], images[records:], labels[records:])
