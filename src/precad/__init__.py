"""Federated learning that two organisations run for many.

Private against each server, bounded against every client. ``precad.deployment`` has the names for a task that two
organisations run, ``precad.flower`` those for an app on Flower. Everything else is internal and may change.
"""

from typing import TYPE_CHECKING

from precad.lazy import public_names

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from precad.errors import PrecadError, ProtocolError
    from precad.gradients.models import fix
    from precad.privacy.terms import Adversary
    from precad.protocol.params import Params, Unit
    from precad.protocol.update import Schedule
    from precad.settings import Hyperparameters
    from precad.simulation.api import Trained, train
    from precad.simulation.problem import AttackContext, Problem
    from precad.simulation.session import Figures

__getattr__, __dir__ = public_names(
    __name__,
    {
        "Adversary": "precad.privacy.terms",
        "AttackContext": "precad.simulation.problem",
        "Figures": "precad.simulation.session",
        "Hyperparameters": "precad.settings",
        "Params": "precad.protocol.params",
        "PrecadError": "precad.errors",
        "Problem": "precad.simulation.problem",
        "ProtocolError": "precad.errors",
        "Schedule": "precad.protocol.update",
        "Trained": "precad.simulation.api",
        "Unit": "precad.protocol.params",
        "fix": "precad.gradients.models",
        "train": "precad.simulation.api",
    },
)

__all__ = [
    "Adversary",
    "AttackContext",
    "Figures",
    "Hyperparameters",
    "Params",
    "PrecadError",
    "Problem",
    "ProtocolError",
    "Schedule",
    "Trained",
    "Unit",
    "__version__",
    "fix",
    "train",
]
