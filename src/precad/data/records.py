"""A party's records, fetched a sample at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

Indices = NDArray[np.int64]


class Records(Protocol):
    """What training needs of a data set."""

    def __len__(self) -> int:
        """|D_i|."""
        ...

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these records, in this order."""
        ...


@dataclass(frozen=True, eq=False)
class ArrayRecords:
    """Some rows of arrays that many parties share: nothing is copied before it is asked for."""

    inputs: NDArray[Any]
    targets: NDArray[np.int64]
    rows: Indices
    transform: Callable[[NDArray[Any]], Tensor]
    """From rows of ``inputs`` to what the model takes."""

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these records."""
        rows = self.rows[indices]
        return self.transform(self.inputs[rows]), torch.from_numpy(self.targets[rows])


@dataclass(frozen=True, eq=False)
class DatasetRecords:
    """Any torch data set of (input, target) pairs with a length."""

    dataset: Dataset[Any]

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these records."""
        if isinstance(self.dataset, TensorDataset):
            parts = [tensor[torch.from_numpy(indices)] for tensor in self.dataset.tensors]
        else:
            parts = default_collate([self.dataset[int(i)] for i in indices])
        if not isinstance(parts, Sequence) or len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
            raise ValueError("a data set must give pairs (input, target) of tensors, arrays or numbers")
        return parts[0], parts[1]


def as_records(name: str, data: object) -> Records:
    """A torch data set, or records as they are; anything else, or an empty one, is refused by its owner's name."""
    if isinstance(data, ArrayRecords | DatasetRecords):
        records: Records = data
    elif isinstance(data, Dataset) and hasattr(data, "__len__") and not isinstance(data, IterableDataset):
        records = DatasetRecords(data)
    else:
        raise ValueError(
            f"the data of {name} must be a torch Dataset with a length and indices, got {type(data).__name__}"
        )
    if len(records) == 0:
        raise ValueError(f"{name} has no records")
    return records
