"""PRECAD for an app on Flower, in two lines: ``PrecadMod`` at the clients, ``PrecadStrategy`` at server A.

Built on the public names of ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp`` alone; tested with Flower 1.41. The
names are loaded when first used: Flower starts a process for every reply of a client, which needs no server's code.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precad.flower.mod import PrecadMod
    from precad.flower.parties import ServerA
    from precad.flower.strategy import PrecadStrategy

_HOMES = {
    "PrecadMod": "precad.flower.mod",
    "PrecadStrategy": "precad.flower.strategy",
    "ServerA": "precad.flower.parties",
}

__all__ = ["PrecadMod", "PrecadStrategy", "ServerA"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'precad.flower' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
