"""A problem that takes milliseconds a round: a linear model of 82 parameters, 24 clients."""

from typing import Any

import torch
from torch.utils.data import TensorDataset

from precad.settings import Hyperparameters
from precad.simulation.problem import Problem


def problem(clients: int = 24, records: int = 6, inputs: int = 40) -> Problem:
    generator = torch.Generator().manual_seed(5)

    def data() -> TensorDataset:
        x = torch.randn(records, inputs, generator=generator)
        return TensorDataset(x, torch.randint(2, (records,), generator=generator))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        model = torch.nn.Linear(inputs, 2)
    named = {f"c{i:02}": data() for i in range(clients)}
    return Problem.of_datasets(model, torch.nn.functional.cross_entropy, named)


def settings(**changes: Any) -> Hyperparameters:
    values: dict[str, Any] = {
        "rounds": 20,
        "client_rate": 1.0,
        "record_rate": 0.5,
        "record_bound": 1.0,
        "client_bound": 8.0,
        "noise_multiplier": 1.0,
        "learning_rate": 0.2,
    }
    return Hyperparameters(**(values | changes))
