"""Records that do not count: told before a run, and 0 in every sum."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import precad
from precad.errors import PrecadError
from precad.settings import Hyperparameters
from precad.simulation.evaluation import read_parameters
from tests.messages import says

SETTINGS = Hyperparameters(
    rounds=2, client_rate=1, record_rate=1, record_bound=1, client_bound=20, noise_multiplier=2, learning_rate=1
)
X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2


class Listed(Dataset[Any]):
    def __init__(self, **changes: Any) -> None:
        self.items = {i: (X[i], int(Y[i])) for i in range(20)} | {int(key[1:]): value for key, value in changes.items()}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.items[index], BaseException):
            raise self.items[index]
        return self.items[index]


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(3, 2)


def trained(clients: Any, test: Any = None, model: nn.Module | None = None) -> precad.Trained:
    loss = nn.functional.cross_entropy
    return precad.train(model or net(), loss, clients, SETTINGS, test_set=test, seed=4)


class Own(nn.Module):
    """Not a chain of known layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (width,) = x.shape[1:]
        out: torch.Tensor = self.inner(x.reshape(-1, width))
        return out + 0.0


class _SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class _Sour(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "stack":
            raise RuntimeError("not this one")
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


BAD = {
    "not finite": (torch.tensor([0.0, torch.nan, 0.0]), 1),
    "a label": (torch.zeros(3), 2),
    "another shape": (torch.zeros(4), 1),
    "no vector": (torch.zeros(3, 3), 1),
    "another target": (torch.zeros(3), torch.zeros(5)),
    "another shape, not finite": (torch.full((4,), torch.nan), 1),
    "no label": (torch.zeros(3), float("nan")),
    "exits": SystemExit("record 4"),
    "without words": _SilentError(),
    "cannot be stacked": (torch.zeros(3).as_subclass(_Sour), 2),
    "sparse": (torch.zeros(3).to_sparse(), 1),
    "without memory": (torch.zeros(3, device="meta"), 1),
    "a complex label": (torch.zeros(3), torch.tensor(1j)),
    "unreadable": OSError("the disk is broken"),
    "nothing": None,
}


@pytest.mark.parametrize("model", [net, Own])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_record_is_as_if_it_were_not_there(what: str, model: Any, caplog: pytest.LogCaptureFixture) -> None:
    """To the bit; with another one that counts in its place the sums differ."""
    bad = trained({"bank": Listed(), "shop": Listed(_4=BAD[what])}, model=model())
    assert re.search(says("shop", "1 of 20 records", "record 4"), caplog.text)
    assert "bank" not in caplog.text
    caplog.clear()
    worse = trained({"bank": Listed(), "shop": Listed(_4=BAD["unreadable"])}, model=model())
    good = trained({"bank": Listed(), "shop": Listed()}, model=model())
    assert np.array_equal(read_parameters(bad.model), read_parameters(worse.model))
    assert not np.array_equal(read_parameters(bad.model), read_parameters(good.model))


def test_nan_in_the_inputs_is_told_and_does_not_spoil_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    broken = X.clone()
    broken[5:8] = torch.nan
    run = trained([TensorDataset(broken, Y), TensorDataset(X, Y)], TensorDataset(broken, Y))
    assert run.figures.loss is not None
    assert np.isfinite(run.figures.loss)
    assert re.search(says("client-01", "3 of 20", "record 5, 6, 7"), caplog.text)
    assert re.search(says("the test set", "3 of 20"), caplog.text)


def test_test_records_that_raise_have_no_loss_and_are_not_right() -> None:
    labels = Y.clone()
    labels[3] = 7
    whole, broken = (trained([TensorDataset(X, Y)], TensorDataset(X, y)).figures for y in (Y, labels))
    assert broken.loss is not None
    assert np.isfinite(broken.loss)
    assert whole.accuracy is not None
    assert broken.accuracy is not None
    assert whole.accuracy - 1 / 20 <= broken.accuracy <= whole.accuracy


@pytest.mark.parametrize("model", [net, Own])
@pytest.mark.parametrize("what", ["a label", "another shape", "unreadable", "not finite"])
def test_the_first_records_do_not_decide_whether_a_run_starts(what: str, model: Any) -> None:
    bad = Listed(**{f"_{i}": BAD[what] for i in range(15)})
    for clients in ([bad], [bad, bad]):
        assert trained(clients, bad, model=model()).figures.loss is not None


@pytest.mark.parametrize("layers", [(nn.Embedding(50, 3), nn.Flatten(), nn.Linear(12, 2)), (nn.EmbeddingBag(50, 2),)])
def test_a_bad_first_test_record_is_left_out(layers: Any, caplog: pytest.LogCaptureFixture) -> None:
    tokens = torch.arange(80).view(20, 4) % 50
    bad = tokens.clone()
    bad[0] = 50
    figures = trained([TensorDataset(tokens, Y)], TensorDataset(bad, Y), nn.Sequential(*layers)).figures
    assert figures.loss is not None
    assert np.isfinite(figures.loss)
    assert re.search(says("the test set", "1 of 20", "record 0"), caplog.text)


@pytest.mark.parametrize("bad", [TensorDataset(X * torch.nan, Y), TensorDataset(X, Y + 2), TensorDataset(X[:, :2], Y)])
def test_a_test_set_without_a_record_that_can_be_evaluated_is_refused(bad: TensorDataset) -> None:
    with pytest.raises(PrecadError, match="the test set"):
        trained([TensorDataset(X, Y)], bad)


def test_a_client_without_a_record_that_counts_is_told_loudly(caplog: pytest.LogCaptureFixture) -> None:
    trained({"bank": TensorDataset(X, Y), "shop": TensorDataset(X, Y + 2)})
    assert re.search(says("shop", "NONE of 20 records"), caplog.text)


def test_a_data_set_that_changes_its_length_keeps_the_samples() -> None:
    class Shrinking(Listed):
        def __getitem__(self, index: int) -> Any:
            if index == 4:
                self.items.pop(19, None)
                raise OSError
            return super().__getitem__(index)

    shrunk, broken = (trained([data]).model for data in (Shrinking(), Listed(_4=OSError("gone"), _19=OSError("gone"))))
    assert np.array_equal(read_parameters(shrunk), read_parameters(broken))


def test_if_no_record_of_any_client_counts_there_is_no_run() -> None:
    with pytest.raises(PrecadError, match="counts"):
        trained({"bank": TensorDataset(X * torch.nan, Y), "shop": TensorDataset(X, Y + 2)})


def test_a_clean_run_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    trained([Listed()], TensorDataset(X, Y))
    assert "count" not in caplog.text
