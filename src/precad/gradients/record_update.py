"""A client's local update by record (paper: Algorithm 2, lines 1 to 6), whoever brings the model and takes the sum.

A Flower app and a native client both come here. R, p and the grid come from the client's own copy of the task.
"""

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from precad.data.faults import described
from precad.data.records import Records, as_records, read
from precad.gradients.engine import LossFunction, PerRecordGradients
from precad.gradients.kinds import Kinds
from precad.mpc.prg import Context, Purpose, Stream, digest
from precad.mpc.secret import Secret
from precad.privacy.sampling import RecordTerms, filled_sample

LOG = logging.getLogger("precad.client")
_SAMPLES = Context(digest(b"precad samples"), 0, "client")
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class RecordUpdate:
    """A model's shape, a loss, and a client's records."""

    model: nn.Module
    loss: LossFunction
    """``loss(outputs, targets)`` is the mean loss of a batch."""
    records: Records

    @classmethod
    def of(cls, given: object, dim: int, declared: int) -> "RecordUpdate":
        """What a client's operator brings, checked before any round.

        Args:
            given: A PyTorch model, its loss, and a data set of pairs (input, target).
            dim: How many parameters the task's model has.
            declared: How many records the roster says that there are.

        Raises:
            ValueError: It is something else, has another number of parameters, or more records.
        """
        if not isinstance(given, tuple) or len(given) != 3:
            raise ValueError(f"expected a tuple (model, loss, records), got {type(given).__name__}")
        model, loss, records = given
        if not isinstance(model, nn.Module):
            raise ValueError(f"the model must be a torch.nn.Module, got {type(model).__name__}")
        if not callable(loss):
            raise ValueError(f"the loss must be a function, got {type(loss).__name__}")
        own = PerRecordGradients(model, loss).dim
        if own != dim:
            raise ValueError(f"the model has {own} trainable parameters, the task's has {dim}")
        return cls(model, loss, own_records(records, None, declared))

    def parameters(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of what is trained, in the order in which a vector θ holds it."""
        return [(name, tuple(value.shape)) for name, value in self.model.named_parameters() if value.requires_grad]

    def sum_at(self, theta: NDArray[np.float64], terms: RecordTerms) -> NDArray[np.int64]:
        """The update at θ, on the grid.

        Each record is drawn with probability p, from the operating system's randomness; its gradient is clipped to R
        and put on the grid. The sum is exact, and points downhill.

        How long that takes does not tell how many were drawn: others are read and computed on, too, up to a fixed
        number (PROTOCOL §9). A record that cannot be read, that raises, or whose gradient is not finite counts as 0,
        and changes nothing about the others.
        """
        stream = Stream(Secret.fresh(), Purpose.SAMPLE, _SAMPLES)
        rows, drawn = filled_sample(stream, len(self.records), terms.record_rate, terms.records)
        gradients = PerRecordGradients(self.model, self.loss)
        kinds = Kinds(gradients)
        if terms.look:
            _look(self.records, kinds, theta, terms.look)
        total = np.zeros(gradients.dim, np.int64)
        for batch in read(self.records, rows).batches:
            if kinds.misfit(batch, theta) is None:
                own = np.searchsorted(batch.places, drawn)
                counts = np.array([own, len(batch.places) - own])
                bound, f = terms.record_bound, terms.fractional_bits
                total += gradients.clipped_sums(
                    theta, batch.inputs, batch.targets, counts, record_bound=bound, fractional_bits=f
                )[0]
        return -total


def own_records(inputs: Dataset[Any] | Tensor, targets: Tensor | None, declared: int) -> Records:
    """A client's records, if there are no more than the roster declares; those of a data set, or rows of tensors."""
    if isinstance(inputs, Tensor) and targets is not None:
        if len(inputs) != len(targets):
            raise ValueError(f"expected as many targets as inputs, got {len(inputs)} inputs and {len(targets)} targets")
        inputs = TensorDataset(inputs, targets)
    records = as_records("this client", inputs)
    if len(records) > declared:
        raise ValueError(f"expected at most the {declared} records that the roster declares, got {len(records)}")
    return records


def _look(records: Records, kinds: Kinds, theta: NDArray[np.float64], seconds: float) -> None:
    """Tell of records that do not count, as far as the time goes."""
    faults: dict[int, str] = {}
    begun, seen = time.monotonic(), 0
    while seen < len(records) and time.monotonic() - begun < seconds:
        indices = np.arange(seen, min(seen + _AT_ONCE, len(records)))
        faults |= {seen + place: why for place, why in kinds.faults(read(records, indices), theta).items()}
        seen += len(indices)
    if faults:
        LOG.warning("some records do not count, and add 0 to every sum: %s", described(faults, seen))
    if seen < len(records):
        LOG.info("there was time to look at %d of %d records", seen, len(records))
