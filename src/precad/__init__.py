"""Federated learning that two organisations run for many.

Private against each server, bounded against every client. The names below are loaded when first used, so that
``import precad`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from precad.errors import PrecadError, ProtocolError
    from precad.params import Params

_HOMES = {
    "Params": "precad.params",
    "PrecadError": "precad.errors",
    "ProtocolError": "precad.errors",
}

__all__ = ["Params", "PrecadError", "ProtocolError", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'precad' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
