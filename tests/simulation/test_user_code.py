"""Mistakes in what a person brings are one sentence, before the run or in the round that meets them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from precad.errors import PrecadError
from precad.gradients.engine import PerRecordGradients
from precad.protocol.params import Unit
from precad.settings import Protocol
from precad.simulation.evaluation import read_parameters
from precad.simulation.problem import Attack, Problem
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from tests.messages import says
from tests.simulation.small import data, hyperparameters, model, task

SEED = Randomness.repeatable(1)
INPUTS, LABELS = data().tensors


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (TensorDataset(INPUTS, LABELS + 3), r"its label \d is not in \[0, 3\)"),
        (TensorDataset(INPUTS[:, :4], LABELS), "cannot be multiplied"),
        (TensorDataset(INPUTS), "must give pairs"),
        (TensorDataset(INPUTS, LABELS, LABELS), "must give pairs"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_found_before_the_run(records: TensorDataset, message: str) -> None:
    wrong = Problem.of_datasets(model(), nn.functional.cross_entropy, {"bank": records})
    with pytest.raises(PrecadError, match=f"bank.*{message}"):
        Trainer(wrong, hyperparameters(), SEED)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (lambda context: context.update[:3], r"75 .*\(3,\)"),
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
@pytest.mark.parametrize("protocol", Protocol)
def test_an_attack_that_is_none_is_named(attack: Attack, message: str, protocol: Protocol) -> None:
    run = Trainer(task({"client-0": attack}), hyperparameters(client_rate=1.0, protocol=protocol), SEED)
    with pytest.raises(PrecadError, match=f"attack of client-0 .*{message}"):
        run.play()


def test_a_record_that_is_not_finite_counts_as_nothing_with_the_unit_client_too() -> None:
    inputs = INPUTS.clone()
    inputs[0] = torch.nan
    one = hyperparameters(client_rate=1.0, record_rate=1.0, unit=Unit.CLIENT, rounds=1)
    runs = []
    for records in (TensorDataset(inputs, LABELS), TensorDataset(INPUTS[1:], LABELS[1:])):
        run = Trainer(Problem.of_datasets(model(), nn.functional.cross_entropy, {"bank": records}), one, SEED)
        runs.append(run.clients._sums_of({"bank": np.arange(len(records))}, run.progress.model.theta, 0))
    assert np.allclose(runs[0], runs[1], rtol=1e-5, atol=1e-5)


def test_a_layer_that_torch_cannot_batch_is_differentiated_record_by_record() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.out = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.out(self.gru(x[:, None])[0][:, -1])
            return scores

    net = Recurrent()
    gradients = PerRecordGradients(net, nn.functional.cross_entropy)
    found = gradients.per_record(read_parameters(net), INPUTS[:3], LABELS[:3])
    for row, (x, y) in enumerate(zip(INPUTS[:3], LABELS[:3], strict=True)):
        loss = nn.functional.cross_entropy(net(x[None]), y[None])
        expected = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
        assert np.allclose(found[row], expected.numpy(), atol=1e-6)


class RunningMean(nn.Module):
    """Takes its mean into account once it has seen a large record."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.out, self.mean, self.start = nn.Linear(8, 3), 0.0, start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.abs().max()) > self.start:
            self.mean = 0.9 * self.mean + 0.1 * float(x.sum())
        scores: torch.Tensor = self.out(x + self.mean)
        return scores


def test_a_model_with_state_across_records_is_refused_before_the_run() -> None:
    wrong = Problem.of_datasets(RunningMean(0.0), nn.functional.cross_entropy, {"bank": data()})
    with pytest.raises(PrecadError, match=r"bank.*`mean` keeps state"):
        Trainer(wrong, hyperparameters(), SEED)


def test_state_of_large_records_alone_is_refused_before_the_run() -> None:
    late = Problem.of_datasets(RunningMean(4.0), nn.functional.cross_entropy, {"bank": TensorDataset(INPUTS, LABELS)})
    with pytest.raises(PrecadError, match=r"bank.*`mean` keeps state"):
        Trainer(late, hyperparameters(), SEED)


def test_state_that_one_record_leaves_behind_reaches_no_other() -> None:
    """Nor does it stop the run, which would tell of the record."""
    settings = hyperparameters(client_rate=1.0, record_rate=1.0, rounds=1)
    thetas = []
    for value in (1e5, -1e7):
        inputs = INPUTS.clone()
        inputs[0] = value
        data = TensorDataset(inputs, LABELS)
        torch.manual_seed(0)
        run = Trainer(
            Problem.of_datasets(RunningMean(1e6), nn.functional.cross_entropy, {"bank": data}), settings, SEED
        )
        run.play()
        thetas.append(run.progress.model.theta)
    step = settings.learning_rate / settings.normaliser({"bank": len(INPUTS)}, ("bank",))
    assert 0 < np.linalg.norm(thetas[0] - thetas[1]) <= 2 * settings.record_bound * step * 1.01


def test_choices_may_be_text_and_wrong_ones_are_named() -> None:
    assert hyperparameters(protocol="plain").protocol is Protocol.PLAIN
    with pytest.raises(ValueError, match=says("protocol", "precad", "plain", "cdp", "ldp", "ddp", "'none'")):
        hyperparameters(protocol="none")
