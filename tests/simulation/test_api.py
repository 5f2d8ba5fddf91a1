"""``precad.train``: any model, any data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import precad
from precad.simulation.evaluation import read_parameters
from precad.simulation.run_folder import RunError
from tests.messages import says
from tests.simulation.small import boosted, data, hyperparameters, model

LOSS = nn.functional.cross_entropy


def test_any_model_learns() -> None:
    """Hardly any noise: the accuracy on data like the clients' is far above a third."""
    params = hyperparameters(rounds=60, noise_multiplier=0.3, learning_rate=2.0, client_rate=1.0)
    clients = [data(60, seed=i) for i in range(5)]
    trained = precad.train(model(), LOSS, clients, params, test_set=data(300, seed=77), seed=1)
    assert trained.figures.accuracy is not None
    assert trained.figures.accuracy > 0.75
    assert [figures.round for figures in trained.history] == list(range(3, 61, 3))
    assert trained.participations == {f"client-0{i}": 60 for i in range(1, 6)}


class Curves(Dataset[tuple[Tensor, Tensor]]):
    """A data set without tensors of its own, for a regression."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        x = torch.tensor([float(i)] * 4)
        return x / 12, (x[:1] / 12).sin()


class Residual(nn.Module):
    """Not a chain: differentiated by torch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.out(x + torch.tanh(self.inner(x)))
        return result


def test_a_regression_by_a_model_that_is_no_chain() -> None:
    trained = precad.train(
        Residual(), nn.functional.mse_loss, {"a": Curves(), "b": Curves()}, hyperparameters(), test_set=Curves()
    )
    assert trained.figures.accuracy is None
    assert trained.figures.loss is not None
    assert np.isfinite(trained.figures.loss)


def test_malicious_clients_are_counted() -> None:
    params = hyperparameters(client_rate=1.0)
    trained = precad.train(
        model(), LOSS, {"a": data(), "b": data(), "mallory": data()}, params, attacks={"mallory": boosted}
    )
    assert trained.rejections == {"mallory": 4}


def test_layers_that_mix_records_are_refused_by_name() -> None:
    mixed = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    with pytest.raises(ValueError, match=says("'1'", "BatchNorm1d", "nn.GroupNorm")):
        precad.train(mixed, LOSS, [data()], hyperparameters())


def test_a_folder_keeps_the_run(tmp_path: Path) -> None:
    def call(folder: str, **changes: Any) -> precad.Trained:
        return precad.train(
            model(), LOSS, [data(), data()], hyperparameters(**changes), seed=2, folder=tmp_path / folder
        )

    first = call("run")
    assert (tmp_path / "run" / "summary.json").exists()
    with pytest.raises(RunError, match=says(tmp_path / "run", "end")):
        call("run")
    with pytest.raises(RunError, match=says(tmp_path / "run", "parameters")):
        call("run", rounds=9)
    (tmp_path / "run" / "summary.json").unlink()
    again = call("run")
    assert np.array_equal(read_parameters(first.model), read_parameters(again.model))
