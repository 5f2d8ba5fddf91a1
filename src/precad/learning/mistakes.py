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
        raise PrecadError(f"{what}: {sentence(error)}") from error


def sentence(error: Exception) -> str:
    """What an exception says, with its type where it would not be understood without, as of a ``KeyError``."""
    first, name = (str(error).strip().splitlines() or [""])[0], type(error).__name__
    if isinstance(error, ValueError | TypeError | RuntimeError | ImportError | AttributeError) and first:
        return first
    return f"{name}: {first}" if first else name


def usable(device: torch.device | str) -> torch.device | str:
    """The device, if torch can compute on it here."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device
