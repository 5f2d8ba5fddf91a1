"""Federated learning that two organisations run for many.

Private against each server, bounded against every client. The names below are loaded when first used, so that
``import precad`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from precad.errors import PrecadError, ProtocolError
    from precad.protocol.params import Params
    from precad.simulation.api import Trained, train
    from precad.simulation.hyperparameters import Hyperparameters
    from precad.simulation.problem import Problem

_HOMES = {
    "Hyperparameters": "precad.simulation.hyperparameters",
    "Params": "precad.protocol.params",
    "PrecadError": "precad.errors",
    "ProtocolError": "precad.errors",
    "Problem": "precad.simulation.problem",
    "Trained": "precad.simulation.api",
    "train": "precad.simulation.api",
}

__all__ = [
    "Hyperparameters",
    "Params",
    "PrecadError",
    "Problem",
    "ProtocolError",
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
