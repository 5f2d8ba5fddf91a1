"""How long a client computes does not tell how many records it drew."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, TensorDataset

from precad.flower import records, wire
from precad.gradients import record_update
from precad.gradients.engine import PerRecordGradients
from precad.privacy.sampling import filled_sample, most_drawn

RATE, WIDTH = 0.1, 128


class Own(nn.Module):
    """Not a chain of known layers: torch's vmap differentiates it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.first(x)))
        return out


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))


class Listed(Dataset[Any]):
    """Read one by one; the second record cannot be read."""

    def __init__(self, size: int) -> None:
        self.inputs, self.targets = torch.randn(size, WIDTH), torch.randint(4, (size,))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise OSError("it is broken")
        return self.inputs[index], self.targets[index]


def tensors(size: int) -> Dataset[Any]:
    return TensorDataset(torch.randn(size, WIDTH), torch.randint(4, (size,)))


def play(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, data: Dataset[Any], size: int, rounds: int
) -> NDArray[np.int64]:
    """For each round the records that were drawn, those that were computed on, and the nanoseconds it took."""
    terms = ConfigRecord({"record_bound": 1.0, "record_rate": RATE, "fractional_bits": 16, "records": size})
    arrays = ArrayRecord(model.state_dict())
    seen, drawn = list[int](), list[int]()
    clipped_sums = PerRecordGradients.clipped_sums

    def watched(self: Any, theta: Any, inputs: Any, targets: Any, counts: NDArray[np.int64], **more: Any) -> Any:
        seen.append(len(inputs))
        return clipped_sums(self, theta, inputs, targets, counts, **more)

    filled = vars(record_update)["filled_sample"]

    def sampled(*arguments: Any) -> tuple[NDArray[np.int64], int]:
        rows, number = filled(*arguments)
        drawn.append(number)
        return rows, number

    monkeypatch.setattr(PerRecordGradients, "clipped_sums", watched)
    monkeypatch.setattr(record_update, "filled_sample", sampled)
    took = []
    for _ in range(rounds):
        message = Message(
            RecordDict({"arrays": arrays, wire.LOCAL: terms}), dst_node_id=1, message_type=MessageType.TRAIN
        )
        begun = time.process_time_ns()
        records.record_update(message, model, cross_entropy, data)
        took.append(time.process_time_ns() - begun)
    return np.array(list(zip(drawn, seen, took, strict=True)))


def correlation(monkeypatch: pytest.MonkeyPatch, model: nn.Module, data: Dataset[Any], size: int, rounds: int) -> float:
    """The rank correlation of processor time with the number drawn; computed on one thread, whose clock it is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        drawn, _, took = play(monkeypatch, model, data, size, rounds).T
    finally:
        torch.set_num_threads(threads)
    return float(stats.spearmanr(drawn, took).statistic)


@pytest.mark.parametrize("size", [1, 6, 20, 200])
def test_the_same_number_of_gradients_in_each_round(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, computed, _ = play(monkeypatch, chain(), tensors(size), size, 30).T
    assert len(set(drawn)) > 1 or size == 1
    assert set(computed) == {most_drawn(size, RATE)}


@pytest.mark.long
@pytest.mark.parametrize("model", [chain, Own])
@pytest.mark.parametrize("size", [6, 20, 200])
@pytest.mark.parametrize("data", [tensors, Listed])
def test_processor_time_is_not_correlated_with_the_number_drawn(
    data: Any, model: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|ρ| < 0.05; with ρ = 0 its standard deviation over 10,000 rounds is 0.01: a false alarm has probability 6e-7."""
    found = correlation(monkeypatch, model(), data(size), size, 10_000)
    assert abs(found) < 0.05, f"{model.__name__}, {data.__name__}, {size} records"


@pytest.mark.long
def test_a_client_that_computes_on_its_sample_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong law that the test above rejects; with 2,000 records most of a round is their gradients: ρ ≈ 0.3."""

    def unfilled(*arguments: Any) -> tuple[NDArray[np.int64], int]:
        rows, drawn = filled_sample(*arguments)
        return rows[: max(1, drawn)], drawn

    monkeypatch.setattr(record_update, "filled_sample", unfilled)
    assert correlation(monkeypatch, chain(), tensors(2_000), 2_000, 2_000) > 0.1
