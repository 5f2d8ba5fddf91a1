"""Federated learning that two organisations run for many.

Private against each server, bounded against every client. The names below are loaded when first used, so that
``import precad`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from precad.errors import PrecadError, ProtocolError
    from precad.learning.api import Trained, train
    from precad.learning.hyperparameters import Hyperparameters
    from precad.learning.training import Task
    from precad.params import Params

_HOMES = {
    "Hyperparameters": "precad.learning.hyperparameters",
    "Params": "precad.params",
    "PrecadError": "precad.errors",
    "ProtocolError": "precad.errors",
    "Task": "precad.learning.training",
    "Trained": "precad.learning.api",
    "train": "precad.learning.api",
}

__all__ = [
    "Hyperparameters",
    "Params",
    "PrecadError",
    "ProtocolError",
    "Task",
    "Trained",
    "__version__",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'precad' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
