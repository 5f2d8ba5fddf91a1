"""A party's records, fetched a sample at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from precad.errors import UnusableError, failure

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
        """The inputs and targets of these records, if all can be read and are of one kind."""
        found = self.read(indices)
        if found.faults or len(found.batches) != 1:
            faults = ", ".join(f"record {indices[place]}: {why}" for place, why in list(found.faults.items())[:1])
            raise ValueError(faults or f"the records are of {len(found.batches)} shapes or types, expected one")
        return found.batches[0].inputs, found.batches[0].targets

    def read(self, indices: Indices) -> "Read":
        """These records, each read by itself: what one of them is, or raises, changes nothing about the others."""
        if isinstance(self.dataset, TensorDataset) and type(self.dataset).__getitem__ is TensorDataset.__getitem__:
            parts = [tensor[torch.from_numpy(indices)] for tensor in self.dataset.tensors]
            if len(parts) != 2:
                raise ValueError(f"{_PAIRS}, got {len(parts)} tensors")
            return _as_they_are(parts[0].detach(), parts[1].detach())
        groups: dict[object, list[tuple[int, Tensor, Tensor]]] = {}
        faults: dict[int, str] = {}
        device = torch.get_default_device()
        for place, index in enumerate(indices.tolist()):
            try:
                x, y = (_tensor(part) for part in _pair(self.dataset[index]))
            except BaseException as error:
                faults[place] = f"it cannot be read: {failure(error)}"
                continue
            finally:
                if torch.get_default_device() != device:
                    put_default_device(device)
            groups.setdefault(_kind(x, y), []).append((place, x, y))
        batches = (Batch(np.array(places), torch.stack(x), torch.stack(y)) for places, x, y in _columns(groups))
        return Read(tuple(batches), faults)


@dataclass(frozen=True, eq=False)
class Batch:
    """Records of one kind, which can go through a model together."""

    places: Indices
    """Where they stand among the indices that were asked for."""
    inputs: Tensor
    targets: Tensor

    @property
    def kind(self) -> object:
        """The shape, type and device of an input and of a target."""
        return _kind(self.inputs[0], self.targets[0])


@dataclass(frozen=True, eq=False)
class Read:
    """What came of an attempt to read some records."""

    batches: tuple[Batch, ...]
    faults: dict[int, str]
    """For those that cannot be read: their place among the indices that were asked for → why."""


def read(records: Records, indices: Indices) -> Read:
    """These records, or why they cannot be read, without harm to the others."""
    if not len(indices):
        return Read((), {})
    if isinstance(records, DatasetRecords):
        return records.read(indices)
    return _as_they_are(*records.batch(indices))


def _as_they_are(inputs: Tensor, targets: Tensor) -> Read:
    """All of one kind, if there are any."""
    return Read((Batch(np.arange(len(inputs)), inputs, targets),) if len(inputs) else (), {})


def as_records(name: str, data: object) -> Records:
    """A torch data set, or records as they are; anything else, or an empty one, is refused by its owner's name."""
    if isinstance(data, ArrayRecords | DatasetRecords):
        records: Records = data
    elif isinstance(data, Dataset) and hasattr(data, "__len__") and not isinstance(data, IterableDataset):
        records = DatasetRecords(data)
    else:
        raise UnusableError(
            f"the data of {name} must be a torch Dataset with __len__ and __getitem__, as TensorDataset(x, y), "
            f"got {type(data).__name__}"
        )
    try:
        size = len(records)
    except Exception as error:
        raise UnusableError(
            f"the data of {name} must have a length, but its __len__ raises {failure(error)}"
        ) from error
    if size == 0:
        raise UnusableError(f"{name} has no records")
    return records


def put_default_device(device: torch.device) -> None:
    """Have torch make tensors on this device; on the CPU without the mode that it would enter."""
    torch.set_default_device(None if device == torch.device("cpu") else device)


_PAIRS = "a data set must give pairs (input, target) of tensors, arrays or numbers"


def _pair(item: Any) -> Any:
    if not isinstance(item, Sequence) or isinstance(item, str | bytes) or len(item) != 2:
        raise ValueError(f"{_PAIRS}, got {type(item).__name__}")
    return item


def _tensor(value: Any) -> Tensor:
    """One part of a record, as a copy: a data set may use its memory again. Python's floats are of double precision."""
    if isinstance(value, Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            if value.layout is not torch.strided or value.is_quantized or value.is_nested:
                raise ValueError(f"{_PAIRS}, got a tensor that is sparse, quantised or nested")
            return value.detach().as_subclass(Tensor).clone(memory_format=torch.contiguous_format)
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, int | np.ndarray | np.generic):
        return torch.tensor(value)
    raise ValueError(f"{_PAIRS}, got {type(value).__name__}")


def _kind(x: Tensor, y: Tensor) -> object:
    return x.shape, x.dtype, x.device, y.shape, y.dtype, y.device


def _columns(groups: dict[object, list[tuple[int, Tensor, Tensor]]]) -> Iterator[tuple[Any, ...]]:
    return (tuple(zip(*rows, strict=True)) for rows in groups.values())
