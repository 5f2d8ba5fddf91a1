"""The data sets, models and presets that precad knows, and problems of the user's own."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.data import image_sets as datasets
from precad.data import splits
from precad.data.image_sets import ImageData, lowest_frequencies
from precad.data.records import ArrayRecords, Records
from precad.privacy.certified import CERTIFIED, CERTIFIED_SMALL, CertifiedSetting
from precad.simulation import models
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
from precad.simulation.settings import TaskConfig
from precad.simulation.user_code import explained, load_plugin

Table = Mapping[str, Any]

_PAPER_TRAINING: Table = {
    "rounds": 5000,
    "client_rate": 0.1,
    "record_rate": 0.05,
    "record_bound": 2.0,
    "client_bound": 30.0,
    "noise_multiplier": 1.0,
    "learning_rate": 0.1,
}
_SHARDS: Table = {"clients": 100, "split": "shards", "shards_per_client": 4}
_DIRICHLET: Table = {"clients": 100, "split": "dirichlet", "records_per_client": 500, "alpha": 0.5}

_RECOMMENDED: Table = {
    "rounds": 500,
    "client_rate": 1.0,
    "record_rate": 0.05,
    "record_bound": 0.5,
    "client_bound": 15.0,
    "noise_multiplier": 2.0,
    "learning_rate": 10.0,
    "final_learning_rate": 1.0,
}

_DIGITS: Table = {
    "task": {"dataset": "digits", "clients": 20, "split": "shards", "shards_per_client": 4},
    "training": {
        "rounds": 200,
        "client_rate": 1.0,
        "record_rate": 0.2,
        "record_bound": 1.0,
        "client_bound": 10.0,
        "noise_multiplier": 2.0,
        "learning_rate": 0.5,
    },
    "malicious": {"clients": 1, "boost": 10.0},
    "evaluate_every": 5,
}


def _certified(dataset: str, setting: CertifiedSetting) -> Table:
    return {
        "task": {
            "dataset": dataset,
            "model": "frequencies",
            "frequencies": setting.frequencies,
            "clients": setting.clients,
            "split": "iid",
        },
        "training": {
            "rounds": setting.rounds,
            "client_rate": 1.0,
            "record_rate": 1.0,
            "record_bound": setting.client_bound,
            "client_bound": setting.client_bound,
            "noise_multiplier": setting.sigma,
            "learning_rate": setting.learning_rate,
            "unit": "client",
        },
        "evaluate_every": 1,
    }


_TABLES: Mapping[tuple[str, str], Table] = {
    ("digits", "recommended"): _DIGITS,
    ("digits", "certified"): _certified("digits", CERTIFIED_SMALL),
    ("mnist", "certified"): _certified("mnist", CERTIFIED),
    ("mnist", "paper"): {"task": {"dataset": "mnist", **_SHARDS}, "training": _PAPER_TRAINING, "evaluate_every": 200},
    ("fashion", "paper"): {
        "task": {"dataset": "fashion", **_SHARDS},
        "training": _PAPER_TRAINING,
        "evaluate_every": 200,
    },
    ("cifar10", "paper"): {
        "task": {"dataset": "cifar10", **_DIRICHLET},
        "training": _PAPER_TRAINING,
        "evaluate_every": 200,
    },
    ("mnist", "recommended"): {
        "task": {"dataset": "mnist", "activation": "tanh", **_SHARDS},
        "training": _RECOMMENDED,
        "evaluate_every": 10,
    },
    ("fashion", "recommended"): {
        "task": {"dataset": "fashion", "activation": "tanh", **_SHARDS},
        "training": _RECOMMENDED,
        "evaluate_every": 10,
    },
    ("cifar10", "recommended"): {
        "task": {"dataset": "cifar10", "activation": "tanh", **_DIRICHLET},
        "training": {**_RECOMMENDED, "learning_rate": 4.0, "final_learning_rate": 0.4},
        "evaluate_every": 10,
    },
}


_OWN_TASK: Mapping[str, Table] = {"recommended": _RECOMMENDED, "paper": _PAPER_TRAINING}


def preset(dataset: str, name: str) -> Table:
    """A named configuration, as the tables of its file."""
    if not isinstance(dataset, str):
        raise ValueError(f"dataset must be text, got {dataset!r}")
    if (dataset, name) in _TABLES:
        return _TABLES[dataset, name]
    known = [preset for data, preset in _TABLES if data == dataset]
    if known:
        raise ValueError(f"{dataset} has no preset {name!r}; it has {', '.join(known)}")
    if ":" in dataset:
        if name not in _OWN_TASK:
            raise ValueError(f"a task of your own has no preset {name!r}; it has {', '.join(_OWN_TASK)}")
        return {"task": {"dataset": dataset}, "training": _OWN_TASK[name]}
    raise ValueError(f"the data set is {dataset!r}, expected {', '.join(get_args(datasets.Name))}, or module:function")


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
    none = np.empty(0, np.int64)
    rows = _split(task, images.y_train, randomness.generator("split"), none if without_train is None else without_train)
    transform = _transform(task, images)
    train = partial(ArrayRecords, images.x_train, images.y_train, transform=transform)
    test_rows = np.delete(np.arange(len(images.y_test)), none if without_test is None else without_test)
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


def client_names(clients: int) -> list[str]:
    """client-01, client-02, …: as many digits as the last one needs."""
    width = max(2, len(str(clients)))
    return [f"client-{i + 1:0{width}}" for i in range(clients)]


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


def _transform(task: TaskConfig, images: ImageData) -> Callable[[NDArray[np.uint8]], Tensor]:
    if task.model == "frequencies":
        return partial(lowest_frequencies, size=task.frequencies)
    return images.normalise


def _split(
    task: TaskConfig, labels: NDArray[np.int64], rng: np.random.Generator, exclude: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    if task.split == "shards":
        return splits.shards_by_label(labels, task.clients, task.shards_per_client, rng, exclude=exclude)
    if task.split == "dirichlet":
        return splits.dirichlet(labels, task.clients, task.records_per_client, task.alpha, rng, exclude=exclude)
    return splits.iid(len(labels), task.clients, rng, exclude=exclude)
