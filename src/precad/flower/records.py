"""The client of a task by record: Algorithm 2 in place of an app's own training (paper: Algorithm 2, lines 1 to 6).

``return record_update(message, Net(), nn.functional.cross_entropy, records)`` is the body of ``@app.train()``.
R, p and the grid come from the client's own copy of the task, by way of :class:`precad.flower.PrecadMod`.
"""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from precad.flower import wire
from precad.flower.wire import vector_of
from precad.gradients.engine import LossFunction
from precad.gradients.record_update import RecordUpdate, own_records
from precad.privacy.sampling import RecordTerms


def record_update(
    message: Message,
    model: nn.Module,
    loss: LossFunction,
    inputs: Dataset[Any] | Tensor,
    targets: Tensor | None = None,
) -> Message:
    """Make the reply of a client whose records are those of a data set, or the rows of two tensors.

    Each record is drawn with probability p, from the operating system's randomness; its gradient at the model of the
    message is clipped to R and put on the grid; the sum goes to the mod, in exact integers. How long that takes does
    not tell how many were drawn: others are read and computed on, too, up to a fixed number (PROTOCOL §9).

    A record that cannot be read, that raises, or whose gradient is not finite counts as 0, and changes nothing about
    the others. So let the data set read a record when it is asked for one: what an app raises before it calls this
    makes the whole update zeros, and one record then moves the sum by up to C.

    Args:
        message: What the app was asked to train.
        model: The shape alone: its trainable parameters must be the message's arrays, in order.
        loss: ``loss(outputs, targets)`` is the mean loss of a batch.
        inputs: A data set of pairs (input, target), of which only the records that are needed are read, each by
            itself; or a tensor with one record in each row.
        targets: One target for each row of a tensor.

    Raises:
        ValueError: The task is not by record, or there are more records than the roster declares.
    """
    given = message.content.config_records.get(wire.LOCAL)
    if given is None:
        raise ValueError("the app has no PrecadMod, or the task's unit is client: train as you like instead")
    values: dict[str, Any] = dict(given)
    terms = RecordTerms(**values)
    update = RecordUpdate(model, loss, own_records(inputs, targets, terms.records))
    total = update.sum_at(_parameters(message, update), terms)
    return Message(RecordDict({wire.SUM: ArrayRecord({wire.SUM: Array(total)})}), reply_to=message)


def _parameters(message: Message, update: RecordUpdate) -> NDArray[np.float64]:
    """θ, if the message's arrays are what is trained."""
    (arrays,) = message.content.array_records.values()
    own = update.parameters()
    sent = [(name, tuple(array.shape)) for name, array in arrays.items()]
    if own != sent:
        raise ValueError(f"the model's trainable parameters are {own}, the message's arrays are {sent}")
    return vector_of(arrays)
