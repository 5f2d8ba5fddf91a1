"""Mistakes in what a person brings, a model, a loss, data, an attack, a device: each is one sentence."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from precad.errors import PrecadError

Floats = NDArray[np.float64]
Attack = Callable[[Floats, int], Floats]
"""(the update that an honest client would send, the round) → what the malicious client sends."""


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Whatever goes wrong in a person's code is a ``PrecadError`` that begins with ``what``."""
    try:
        yield
    except PrecadError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise PrecadError(f"{what}: {lines[0] if lines else type(error).__name__}") from error


def sent_by(name: str, attack: Attack, update: Floats, round_: int) -> Floats:
    """What a malicious client sends: any numbers, but as many as the model has."""
    with explained(f"the attack of {name} fails"):
        sent = np.asarray(attack(update.copy(), round_), np.float64)
    if sent.shape != update.shape:
        raise PrecadError(f"the attack of {name} must give {update.size} numbers, got shape {sent.shape}")
    return sent


def usable(device: torch.device | str) -> torch.device | str:
    """The device, if torch can compute on it here."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device
