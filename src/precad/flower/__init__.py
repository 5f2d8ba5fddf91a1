"""PRECAD for an app on Flower, in two lines: ``PrecadMod`` at the clients, ``PrecadStrategy`` at server A.

Built on the public names of ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp`` alone; tested with Flower 1.41. The
names are loaded when first used: Flower starts a process for every reply of a client, which needs no server's code.
"""

from typing import TYPE_CHECKING

from precad.lazy import public_names

if TYPE_CHECKING:
    from precad.flower.mod import PrecadMod
    from precad.flower.records import record_update
    from precad.flower.strategy import PrecadStrategy, ServerA
    from precad.flower.wire import vector_of

__getattr__, __dir__ = public_names(
    __name__,
    {
        "PrecadMod": "precad.flower.mod",
        "PrecadStrategy": "precad.flower.strategy",
        "ServerA": "precad.flower.strategy",
        "record_update": "precad.flower.records",
        "vector_of": "precad.flower.wire",
    },
)

__all__ = ["PrecadMod", "PrecadStrategy", "ServerA", "record_update", "vector_of"]
