"""Reading a data set record by record: what one record is, or raises, changes nothing about the others."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from precad.data.faults import described
from precad.data.records import DatasetRecords, as_records, read
from tests.messages import says

GOOD = [(torch.full((3,), float(i)), i % 2) for i in range(10)]


class Listed(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        item = self.items[index]
        if isinstance(item, Exception):
            raise item
        return item


BAD: dict[str, Any] = {
    "raises": OSError("record 4 is broken"),
    "ends": StopIteration(),
    "nothing": None,
    "one part": (torch.zeros(3),),
    "three parts": (torch.zeros(3), 1, 2),
    "text": "ab",
    "text as input": ("x", 1),
    "a number that is too large": (torch.zeros(3), 2**80),
}
OF_ANOTHER_KIND: dict[str, Any] = {
    "another shape": (torch.zeros(4), 1),
    "a target with a fraction": (torch.zeros(3), 1.5),
    "double precision": (torch.zeros(3, dtype=torch.float64), 1),
    "integers": (torch.zeros(3, dtype=torch.int64), 1),
    "a target of another shape": (torch.zeros(3), torch.zeros(2, dtype=torch.int64)),
}


@pytest.mark.parametrize("what", [*BAD, *OF_ANOTHER_KIND])
def test_a_record_changes_nothing_about_the_others(what: str) -> None:
    items = list(GOOD)
    items[4] = {**BAD, **OF_ANOTHER_KIND}[what]
    found = read(as_records("bank", Listed(items)), np.arange(10))
    first = found.batches[0]
    assert first.places.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert first.inputs.dtype == torch.float32
    assert first.targets.dtype == torch.int64
    assert torch.equal(first.inputs, torch.stack([x for i, (x, _) in enumerate(GOOD) if i != 4]))
    assert set(found.faults) == ({4} if what in BAD else set())
    assert [batch.places.tolist() for batch in found.batches[1:]] == ([] if what in BAD else [[4]])
    with pytest.raises(ValueError, match=says("record 4") if what in BAD else says("2 shapes")):
        DatasetRecords(Listed(items)).batch(np.arange(10))


def test_arrays_and_numbers_are_records() -> None:
    items = [(np.ones(3, np.float32), np.int64(1)), (torch.zeros(3), True), (np.zeros(3, np.float32), 0)]
    found = read(as_records("bank", Listed(items)), np.arange(3))
    assert not found.faults
    assert [batch.places.tolist() for batch in found.batches] == [[0, 2], [1]]


def test_a_data_set_of_tensors_is_read_at_once() -> None:
    tensors = TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
    (batch,) = read(as_records("bank", tensors), np.array([2, 0])).batches
    assert batch.targets.tolist() == [2, 0]
    with pytest.raises(ValueError, match=says("pairs", "3 tensors")):
        read(as_records("bank", TensorDataset(*tensors.tensors, torch.zeros(3))), np.arange(2))


def test_what_a_class_of_its_own_gives_counts() -> None:
    """A subclass of torch's TensorDataset may change its items."""

    class Doubled(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            return 2 * self.tensors[0][index], self.tensors[1][index]

    (batch,) = read(as_records("bank", Doubled(torch.ones(3, 2), torch.arange(3))), np.arange(3)).batches
    assert torch.equal(batch.inputs, torch.full((3, 2), 2.0))


def test_in_words() -> None:
    faults = {1: "it is old", **dict.fromkeys(range(10, 20), "it is new")}
    assert described(faults, 50) == (
        "11 of 50 records; 10 because it is new (record 10, 11, 12, 13, 14, …); 1 because it is old (record 1)"
    )
    assert "NONE of 2" in described({0: "x", 1: "y"}, 2)
    assert "1 for other reasons" in described(dict(enumerate("abcd")), 9)
