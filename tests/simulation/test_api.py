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


class _Unmeasured(Curves):
    def __len__(self) -> int:
        raise OSError("no such table")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client_datasets": data()}, says("list of data sets", "TensorDataset")),
        ({"client_datasets": iter([data()])}, says("list of data sets", "list_iterator")),
        ({"client_datasets": [[(1, 2)]]}, says("client-01", "Dataset", "list")),
        ({"client_datasets": {"bank": _Unmeasured()}}, says("bank", "__len__", "OSError: no such table")),
        ({"client_datasets": [data(0)]}, says("client-01", "no records")),
        ({"client_datasets": []}, "no clients"),
        ({"model": nn.Linear}, says("model", "class Linear")),
        ({"model": nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3))}, "BatchNorm1d"),
        ({"model": nn.LazyLinear(3)}, "lazy"),
        ({"model": model().requires_grad_(False)}, "no trainable"),
        ({"loss_fn": nn.CrossEntropyLoss}, says("loss", "class CrossEntropyLoss")),
        ({"loss_fn": 3}, says("loss", "int")),
        ({"loss_fn": lambda *_: 2.0}, "tensor of one real number"),
        ({"loss_fn": lambda o, t: LOSS(o, t, weight=torch.tensor([1.0, 2.0, 9.0]))}, "not the mean"),
    ],
)
def test_one_type_of_error_refuses_what_a_person_brings(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "model": model(),
        "loss_fn": LOSS,
        "client_datasets": [data()],
        "params": hyperparameters(),
    }
    with pytest.raises(precad.PrecadError, match=message) as refused:
        precad.train(**(given | changes))
    assert isinstance(refused.value, ValueError)


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


def test_a_loop_over_sigma_trains_the_same_model_anew() -> None:
    """Nothing that the caller gave is changed; each run's ε is that of the model that it returns."""
    given, clients = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 3)), {"a": data(), "b": data(seed=1)}
    given[1].eval()
    before, tensors = read_parameters(given), [tensor.clone() for tensor in clients["a"].tensors]
    modes, state = [m.training for m in given.modules()], torch.get_rng_state()
    runs = [
        precad.train(given, LOSS, clients, hyperparameters(noise_multiplier=s), test_set=data(), seed=1)
        for s in (0.5, 2.0, 0.5)
    ]
    assert np.array_equal(read_parameters(given), before)
    assert [m.training for m in given.modules()] == modes
    assert all(torch.equal(*pair) for pair in zip(clients["a"].tensors, tensors, strict=True))
    assert list(clients) == ["a", "b"]
    assert torch.equal(torch.get_rng_state(), state)
    first, other, again = (read_parameters(run.model) for run in runs)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert runs[0].model is not given
