"""A task small enough for tests: the digits of scikit-learn, few clients, few rounds."""

from typing import Any

from precad.lab import malicious
from precad.settings import RunConfig, from_table
from precad.simulation import presets
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from precad.tables import merged


def config(**tables: Any) -> RunConfig:
    """The preset of digits with 6 clients and 3 rounds, and these changes."""
    base: dict[str, Any] = {
        "task": {"clients": 6},
        "training": {"rounds": 3, "record_rate": 0.05},
        "malicious": {"clients": 0},
        "seed": 7,
    }
    return from_table(merged(merged(presets.preset("digits", "recommended"), base), tables))


def trainer(settings: RunConfig, *, ideal: bool = False) -> Trainer:
    """A run's trainer, not yet begun."""
    assert settings.seed is not None
    randomness = Randomness.repeatable(settings.seed)
    return Trainer(malicious.build(settings, None, randomness), settings.training, randomness, ideal=ideal)
