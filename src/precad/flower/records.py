"""The client of a task by record: Algorithm 2 in place of an app's own training (paper: Algorithm 2, lines 1 to 6).

``return record_update(message, Net(), nn.functional.cross_entropy, inputs, targets)`` is the body of ``@app.train()``.
R, p and the grid come from the client's own copy of the task, by way of :class:`precad.flower.PrecadMod`.
"""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.flower import wire
from precad.flower.wire import vector_of
from precad.gradients.engine import LossFunction, PerRecordGradients
from precad.mpc.prg import Context, Purpose, Stream, digest
from precad.mpc.secret import Secret
from precad.privacy.sampling import poisson_sample

_SAMPLES = Context(digest(b"precad samples"), 0, "client")


def record_update(message: Message, model: nn.Module, loss: LossFunction, inputs: Tensor, targets: Tensor) -> Message:
    """Make the reply of a client whose records are the rows of ``inputs`` and ``targets``.

    Each record is drawn with probability p, from the operating system's randomness; its gradient at the model of the
    message is clipped to R and put on the grid; the sum goes to the mod, in exact integers.

    Args:
        message: What the app was asked to train.
        model: The shape alone: its trainable parameters must be the message's arrays, in order.
        loss: ``loss(outputs, targets)`` is the mean loss of a batch.
        inputs: One record in each row.
        targets: One target for each record.

    Raises:
        ValueError: The task is not by record, or there are more records than the roster declares.
    """
    given = message.content.config_records.get(wire.LOCAL)
    if given is None:
        raise ValueError("the app has no PrecadMod, or the task's unit is client: train as you like instead")
    values: dict[str, Any] = dict(given)
    terms = wire.LocalTerms(**values)
    if not len(inputs) == len(targets) <= terms.records:
        raise ValueError(
            f"expected as many targets as inputs, at most the {terms.records} records that the roster declares, "
            f"got {len(inputs)} inputs and {len(targets)} targets"
        )
    theta = _parameters(message, model)
    drawn = poisson_sample(Stream(Secret.fresh(), Purpose.SAMPLE, _SAMPLES), len(inputs), terms.record_rate)
    (total,) = PerRecordGradients(model, loss).clipped_sums(
        theta,
        inputs[drawn],
        targets[drawn],
        np.array([len(drawn)]),
        record_bound=terms.record_bound,
        fractional_bits=terms.fractional_bits,
    )
    return Message(RecordDict({wire.SUM: ArrayRecord({wire.SUM: Array(-total)})}), reply_to=message)


def _parameters(message: Message, model: nn.Module) -> NDArray[np.float64]:
    """θ, if the message's arrays are what is trained."""
    (arrays,) = message.content.array_records.values()
    own = [(name, tuple(value.shape)) for name, value in model.named_parameters() if value.requires_grad]
    sent = [(name, tuple(array.shape)) for name, array in arrays.items()]
    if own != sent:
        raise ValueError(f"the model's trainable parameters are {own}, the message's arrays are {sent}")
    return vector_of(arrays)
