"""Canaries move the sum as far as a record may; out, they count for nothing, whatever the data are."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from precad.data.records import as_records
from precad.errors import PrecadError
from precad.gradients.engine import PerRecordGradients
from precad.lab.canaries.records import ALL, STRONG, Canary, CanaryRecords, choose, make_canaries, places
from precad.simulation.evaluation import read_parameters


class Tokens(nn.Module):
    """Reads four whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(9, 5), nn.Linear(20, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.last(self.embedding(tokens).flatten(1))  # type: ignore[no-any-return]


def canary_records(
    model: nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor, place: int = 2
) -> tuple[CanaryRecords, Canary]:
    clients = {"a": as_records("a", TensorDataset(x, y))}
    gradients, theta, rng = PerRecordGradients(model, loss), read_parameters(model), np.random.default_rng(1)
    canary = make_canaries(clients, [("a", place)], gradients, theta, 1.0, rng)["a", place]
    return CanaryRecords(clients["a"], {place: canary}), canary


def cases() -> dict[str, tuple[nn.Module, Any, torch.Tensor, torch.Tensor]]:
    labels, entropy = torch.arange(5) % 3, nn.functional.cross_entropy
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return {
            "numbers and labels": (nn.Linear(8, 3), entropy, torch.randn(5, 8), labels),
            "tokens and labels": (Tokens(), entropy, torch.randint(9, (5, 4)), labels),
            "numbers and numbers": (nn.Linear(8, 1), nn.functional.mse_loss, torch.randn(5, 8), torch.randn(5, 1)),
            "one label alone": (nn.Linear(8, 3), entropy, torch.randn(5, 8), torch.zeros(5).long()),
        }


CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_in_it_moves_the_sum_by_the_bound_and_out_by_nothing(case: str) -> None:
    model, loss, x, y = CASES[case]
    records, canary = canary_records(model, loss, x, y)
    gradients, theta = PerRecordGradients(model, loss), read_parameters(model)
    sums = {}
    for present in (True, False):
        canary.present = present
        choose([canary], gradients, theta)
        rows = records.batch(np.array([2]))
        sums[present] = gradients.clipped_sums(theta, *rows, np.array([1]), record_bound=1.0, fractional_bits=16)[0]
    assert not sums[False].any()
    assert np.linalg.norm(sums[True]) / 2**16 > (0.99 if x.is_floating_point() else 0.3)
    if x.is_floating_point():
        assert np.linalg.norm(choose([canary], gradients, theta)) >= STRONG


def test_no_model_fits_both_candidates() -> None:
    model, loss, x, y = CASES["numbers and labels"]
    _, canary = canary_records(model, loss, x, y)
    gradients, theta = PerRecordGradients(model, loss), read_parameters(model)
    for _ in range(50):
        step = choose([canary], gradients, theta)[0]
        assert np.linalg.norm(step) > 1.0
        theta = theta - 0.1 * step


def test_it_takes_the_place_of_one_record_or_of_all() -> None:
    model, loss, x, y = CASES["numbers and labels"]
    records, canary = canary_records(model, loss, x, y)
    inputs, _ = records.batch(np.array([0, 1, 3]))
    assert torch.equal(inputs, x[[0, 1, 3]])
    assert [canary.asked] == [False]
    inputs, _ = records.batch(np.array([4, 2, 0, 2]))
    assert torch.equal(inputs[[0, 2]], x[[4, 0]])
    assert (inputs[[1, 3]] == canary.candidates[canary.choice][0]).all()
    assert [canary.asked] == [True]
    whole, canary = canary_records(model, loss, x, y, ALL)
    inputs, _ = whole.batch(np.arange(3))
    assert (inputs == canary.candidates[canary.choice][0]).all()
    assert torch.equal(x, cases()["numbers and labels"][2])


def test_places_are_spread_over_clients_and_leave_half_of_their_records() -> None:
    x = torch.randn(12, 2)
    clients = {name: as_records(name, TensorDataset(x[:size], x[:size])) for name, size in (("a", 12), ("b", 1))}
    rng = np.random.default_rng(1)
    assert sorted(name for name, _ in places(clients, 8, rng, whole_client=False)) == [*"aaaab"]
    assert len(places(clients, 100, rng, whole_client=False)) == 7
    assert len(places(clients, 1, rng, whole_client=False)) == 1
    assert places(clients, 8, rng, whole_client=True) == [("a", ALL), ("b", ALL)]


def test_a_model_for_which_every_record_counts_is_refused() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight.expand(len(x), 3)

    with pytest.raises(PrecadError, match="none that counts as 0"):
        canary_records(Deaf(), nn.functional.cross_entropy, torch.randn(5, 8), torch.arange(5) % 3)
