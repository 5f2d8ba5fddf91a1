"""Mistakes in what a person brings, a model, a loss, data, an attack, a device: each is one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from precad.errors import PrecadError


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


def usable(device: torch.device | str) -> torch.device | str:
    """The device, if torch can compute on it here."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device
