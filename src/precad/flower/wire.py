"""What precad puts into Flower's messages: arrays that are the model, and one ConfigRecord, of the keys below.

The servers compute, sign and send the model in float64; an app trains it in float32. The arrays are the same numbers as
the protocol's vector, in the order of the record. What mod and app say to each other stays on the node.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from precad.text import PrintableFilter

LOG = logging.getLogger("flwr.precad")
for _log in (LOG, logging.getLogger("precad.client")):
    _log.addFilter(PrintableFilter())  # what another party sent, or a record raised, may be in a line

RECORD = "precad"

ASK = "ask"
"""A → node: 32 fresh bytes. Which client are you?"""
NAME = "name"
"""Node → A: the client's name in the roster,"""
PROOF = "proof"
"""and its signature of the question: see :func:`precad.deployment.client.introduction`."""

INVITATION = "invitation"
"""A → node: the round, with the model in the message's arrays."""
TOLD = "told"
"""A → node: what became of its last submission."""
REPLY = "reply"
"""Node → A: the sealed submission."""

LOCAL = "precad-local"
"""Mod → app, by record: a ConfigRecord of :class:`precad.privacy.sampling.RecordTerms`. It never comes from A."""
SUM = "precad-sum"
"""App → mod, by record: an ArrayRecord with the update on the grid. It never leaves the node."""

_NOT_TRAINED = frozenset({"running_mean", "running_var", "num_batches_tracked"})


def read(message: Message, key: str) -> bytes | None:
    """The bytes under a key; None if the message has none there."""
    if message.has_error() or not message.has_content():
        return None
    record = message.content.get(RECORD)
    value = record.get(key) if isinstance(record, ConfigRecord) else None
    return value if isinstance(value, bytes) else None


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a model's arrays, in order."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "Layout":
        """The layout of a record. State that is not trained, as BatchNorm has it, is a ``ValueError`` (PROTOCOL §9)."""
        for name, array in arrays.items():
            if name.split(".")[-1] in _NOT_TRAINED:
                raise ValueError(f"{name} is not trained but counted from records: use a model without BatchNorm")
            if array.dtype not in ("float32", "float64"):
                raise ValueError(f"{name} has the type {array.dtype}: only float32 parameters can be trained")
        return cls(tuple((name, tuple(array.shape)) for name, array in arrays.items()))

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def record(self, vector: NDArray[np.float64], dtype: type[np.floating]) -> ArrayRecord:
        """A vector as arrays of this layout."""
        if vector.shape != (self.size,):
            raise ValueError(f"the arrays have {self.size} parameters, the model has shape {vector.shape}")
        record, start = ArrayRecord(), 0
        for name, shape in self.shapes:
            end = start + math.prod(shape)
            record[name] = Array(vector[start:end].reshape(shape).astype(dtype))
            start = end
        return record


def vector_of(arrays: Mapping[str, Array]) -> NDArray[np.float64]:
    """The parameters of a record, one after the other. The initial model of a task is made with this."""
    values = {name: array.numpy() for name, array in arrays.items()}
    for name, shape in Layout.of(arrays).shapes:
        if values[name].shape != shape or values[name].dtype not in (np.float32, np.float64):
            raise ValueError(f"{name} holds another shape or type than it says")
    if not values:
        raise ValueError("there are no arrays")
    return np.concatenate([value.astype(np.float64).ravel() for value in values.values()])
