"""From a configuration to a problem: images split among clients with their model, or a function of the user's."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from precad.data import splits
from precad.data.image_sets import ImageData, lowest_frequencies
from precad.data.records import ArrayRecords, Records
from precad.settings import TaskConfig
from precad.simulation import models
from precad.simulation.problem import Problem, client_names
from precad.simulation.randomness import Randomness
from precad.simulation.user_code import explained, load_plugin


def of_images(
    task: TaskConfig,
    images: ImageData,
    randomness: Randomness,
    *,
    without_train: NDArray[np.int64] | None = None,
    without_test: NDArray[np.int64] | None = None,
) -> Problem:
    """The images, split among the clients of a configuration, and the model of that data set.

    Args:
        task: Which model, how many clients, which split.
        images: A data set of :func:`precad.data.image_sets.load`.
        randomness: The split and the first weights come from it.
        without_train: Rows of the training images that no client gets.
        without_test: Rows of the test images that are left out.
    """
    rows = _split(task, images.y_train, randomness.generator("split"), without_train)
    transform = partial(lowest_frequencies, size=task.frequencies) if task.model == "frequencies" else images.normalise
    train = partial(ArrayRecords, images.x_train, images.y_train, transform=transform)
    test_rows = np.arange(len(images.y_test))
    if without_test is not None:
        test_rows = np.delete(test_rows, without_test)
    clients: dict[str, Records] = {
        name: train(indices) for name, indices in zip(client_names(len(rows)), rows, strict=True)
    }
    for name, records in clients.items():
        if len(records) == 0:
            raise ValueError(f"{name} has no records: use fewer clients")
    test = ArrayRecords(images.x_test, images.y_test, test_rows, transform)
    return Problem(initial_model(task, images, randomness), nn.functional.cross_entropy, clients, test, {})


def of_function(task: TaskConfig, data: Path | None, randomness: Randomness) -> Problem:
    """``module:function`` of the user's, called with the task's configuration and the data folder.

    Meanwhile torch's generator is the run's, so that first weights drawn from it repeat with the seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(randomness.torch_seed("first weights"))
        function = load_plugin("task", task.dataset)
        with explained(f"the task {task.dataset!r} fails"):
            problem = function(task, data)
    if not isinstance(problem, Problem):
        raise ValueError(f"{task.dataset} must return a precad.Problem, got {type(problem).__name__}")
    return problem


def initial_model(task: TaskConfig, images: ImageData, randomness: Randomness) -> nn.Module:
    """The network of a data set, with torch's usual first weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(randomness.torch_seed("first weights"))
        if task.model == "frequencies":
            linear = nn.Linear(task.frequencies**2 - 1, images.classes, bias=False)
            nn.init.zeros_(linear.weight)
            return linear
        if task.model == "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(images.x_train[0].size, images.classes))
        if task.dataset == "digits":
            return models.digits_model()
        return (models.cifar_cnn if task.dataset == "cifar10" else models.mnist_cnn)(task.activation)


def _split(
    task: TaskConfig, labels: NDArray[np.int64], rng: np.random.Generator, exclude: NDArray[np.int64] | None
) -> list[NDArray[np.int64]]:
    if task.split == "shards":
        return splits.shards_by_label(labels, task.clients, task.shards_per_client, rng, exclude=exclude)
    if task.split == "dirichlet":
        return splits.dirichlet(labels, task.clients, task.records_per_client, task.alpha, rng, exclude=exclude)
    return splits.iid(len(labels), task.clients, rng, exclude=exclude)
