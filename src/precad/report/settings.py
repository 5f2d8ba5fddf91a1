"""What a run is, from its ``config.toml``: read once, into values that the page needs.

Runs of ``precad train`` and of ``precad.train`` are read alike; a key that an older version did not write has the
default that it had then.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.privacy.terms import Adversary
from precad.protocol.params import Params, Unit, Validation


class ReportError(PrecadError):
    """A folder that is no run, or is damaged, or was made by a version that writes otherwise."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The numbers of a run, with the paper's names."""

    rounds: int
    client_rate: float
    record_rate: float
    record_bound: float
    client_bound: float
    noise_multiplier: float
    delta: float
    protocol: str
    validation: Validation
    noise: Adversary
    unit: Unit
    normalise: str
    budget: float | None
    honest_clients: int | None
    clip_after_noise: bool
    hidden: bool
    """Whether participants must not become known (PROTOCOL §7a)."""
    seed: int | None
    dataset: str | None
    """None for a run that was begun from Python."""
    clients: int | None
    """n, as far as the configuration says."""
    malicious: int
    attack: str
    entries: tuple[tuple[str, str, str], ...]
    """Every (table, key, value) of the file, in its order."""

    def params(self, dim: int, clients: int) -> Params:
        """The protocol's parameters for a model of ``dim`` parameters."""
        return Params(
            dim=dim,
            clients=clients,
            record_bound=self.record_bound,
            client_bound=self.client_bound,
            noise_multiplier=self.noise_multiplier,
            validation=self.validation,
            noise=self.noise,
            unit=self.unit,
        )


def read_settings(path: Path) -> RunSettings:
    """The settings in a file. Raises a :class:`ReportError` that names the file and the fault."""
    try:
        table = tomllib.loads(path.read_text())
        return _settings(table)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ReportError(f"{path} cannot be read: {error}") from None
    except KeyError as error:
        raise ReportError(f"{path} lacks {error.args[0]}: it is not the configuration of a run") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ReportError(f"{path} is not the configuration of a run: {error}") from None


def _settings(table: Mapping[str, Any]) -> RunSettings:
    training, task, malicious = table["training"], table.get("task", {}), table.get("malicious", {})
    numbers = ("client_rate", "record_rate", "record_bound", "client_bound", "noise_multiplier")
    return RunSettings(
        rounds=_whole("rounds", training["rounds"]),
        **{name: _number(name, training[name]) for name in numbers},
        delta=_number("delta", training.get("delta", 1e-5)),
        protocol=str(training.get("protocol", "precad")),
        validation=Validation(training.get("validation", "proof")),
        noise=Adversary(training.get("noise", "server")),
        unit=Unit(training.get("unit", "record")),
        normalise=str(training.get("normalise", "constant")),
        budget=None if "budget" not in training else _number("budget", training["budget"]),
        honest_clients=training.get("honest_clients"),
        clip_after_noise=bool(training.get("clip_after_noise", False)),
        hidden=training.get("participants", "public") == "hidden",
        seed=table.get("seed"),
        dataset=task.get("dataset"),
        clients=None if "clients" not in task else _whole("clients", task["clients"]),
        malicious=_whole("malicious clients", malicious.get("clients", 0)),
        attack=str(malicious.get("attack", "")),
        entries=tuple(_entries(table)),
    )


def _entries(table: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    top = [("run", key, str(value)) for key, value in table.items() if not isinstance(value, Mapping)]
    nested = [
        (name, key, str(value))
        for name, inner in table.items()
        if isinstance(inner, Mapping)
        for key, value in inner.items()
    ]
    return top + nested


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def _whole(name: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}")
    return value
