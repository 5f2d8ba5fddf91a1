"""A task that trains in a blink, for the tests of training."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import TensorDataset

from precad.settings import Hyperparameters
from precad.simulation.problem import Attack, AttackContext, Problem

CLIENTS = 6
HYPERPARAMETERS = Hyperparameters(
    rounds=4,
    client_rate=0.8,
    record_rate=0.5,
    record_bound=1.0,
    client_bound=4.0,
    noise_multiplier=1.0,
    learning_rate=0.5,
)


def hyperparameters(**changes: Any) -> Hyperparameters:
    return replace(HYPERPARAMETERS, **changes)


def model() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))


def data(records: int = 30, seed: int = 0) -> TensorDataset:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((records, 8)).astype(np.float32)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(x[:, :3].argmax(1)))


def task(attacks: dict[str, Attack] | None = None) -> Problem:
    clients = {f"client-{i}": data(seed=i) for i in range(CLIENTS)}
    return Problem.of_datasets(model(), nn.functional.cross_entropy, clients, data(60, seed=99), attacks or {})


def boosted(context: AttackContext) -> NDArray[np.float64]:
    return 100 * context.update / np.linalg.norm(context.update)
