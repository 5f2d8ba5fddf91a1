"""PRECAD for an app on Flower, in two lines: ``PrecadMod`` at the clients, ``PrecadStrategy`` at server A.

Built on the public names of ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp`` alone; tested with Flower 1.41.
"""

from precad.flower.mod import PrecadMod
from precad.flower.parties import ServerA
from precad.flower.strategy import PrecadStrategy

__all__ = ["PrecadMod", "PrecadStrategy", "ServerA"]
