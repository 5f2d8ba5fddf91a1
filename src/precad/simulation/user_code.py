"""What a person brings, a model, a loss, data, an attack, a device: how it is loaded; its mistakes in one sentence."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def load_plugin(what: str, name: str) -> Any:
    """The function of ``module:function``, looked for in the working folder too; ``what`` it is, for the error."""
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # whatever a person's module raises
        raise ValueError(f"the {what} {name!r} cannot be loaded: {sentence(error)}") from None
    if not callable(function):
        raise ValueError(f"the {what} {name!r} must be a function, got {type(function).__name__}")
    return function


def plugin_source(what: str, name: str) -> bytes:
    """The text of its module, by which a changed function is known."""
    load_plugin(what, name)
    file = sys.modules[name.partition(":")[0]].__file__
    return Path(file).read_bytes() if file else b""
