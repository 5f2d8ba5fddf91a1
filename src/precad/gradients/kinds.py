"""Records of several shapes and types through one model: each kind that it takes together, no record of the others."""

import numpy as np
import torch
from numpy.typing import NDArray

from precad.data.records import Batch, Read
from precad.gradients.engine import PerRecordGradients


class Kinds:
    """Which shapes and types of records a model takes, found out once for each, on made-up records."""

    def __init__(self, gradients: PerRecordGradients) -> None:
        self._gradients = gradients
        self._misfits: dict[object, str | None] = {}

    def misfit(self, batch: Batch, theta: NDArray[np.float64]) -> str | None:
        """Why no record of this kind counts; None if they may."""
        if batch.kind not in self._misfits:
            made_up = (torch.zeros_like(rows[:1]) for rows in (batch.inputs, batch.targets))
            self._misfits[batch.kind] = self._gradients.misfit(theta, *made_up)
        return self._misfits[batch.kind]

    def faults(self, found: Read, theta: NDArray[np.float64]) -> dict[int, str]:
        """Of records that were asked for: their place → why they do not count."""
        faults = dict(found.faults)
        for batch in found.batches:
            places, why = batch.places.tolist(), self.misfit(batch, theta)
            if why is None:
                inside = self._gradients.faults(theta, batch.inputs, batch.targets)
                faults |= {places[row]: reason for row, reason in inside.items()}
            else:
                faults |= dict.fromkeys(places, why)
        return faults
