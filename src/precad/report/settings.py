"""What a run is, from its ``config.toml``: read once, into values that the page needs.

Runs of ``precad train`` and of ``precad.train`` are read alike; a key that an older version did not write has the
default that it had then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from precad.errors import PrecadError
from precad.privacy.terms import Adversary
from precad.protocol.params import Params, Unit, Validation
from precad.tables import Table, build, read_toml


class ReportError(PrecadError):
    """A folder that is no run, or is damaged, or was made by a version that writes otherwise."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The numbers of a run, with the paper's names. Defaults are those of the versions that did not write a key."""

    rounds: int
    client_rate: float
    record_rate: float
    record_bound: float
    client_bound: float
    noise_multiplier: float
    delta: float = 1e-5
    protocol: str = "precad"
    validation: Validation = Validation.PROOF
    noise: Adversary = Adversary.SERVER
    unit: Unit = Unit.RECORD
    normalise: str = "constant"
    budget: float | None = None
    honest_clients: int | None = None
    clip_after_noise: bool = False
    participants: Literal["public", "hidden"] = "public"
    """Whether participants may become known (PROTOCOL §7a)."""
    seed: int | None = None
    dataset: str | None = None
    """None for a run that was begun from Python."""
    clients: int | None = None
    """n, as far as the configuration says."""
    malicious: int = 0
    attack: str = ""
    entries: tuple[tuple[str, str, str], ...]
    """Every (table, key, value) of the file, in its order."""

    def __post_init__(self) -> None:
        for name in ("rounds", "clients", "malicious"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must be a whole number of at least 0, got {getattr(self, name)}")

    @property
    def hidden(self) -> bool:
        """Whether nothing may show who took part."""
        return self.participants == "hidden"

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
        return _settings(read_toml(path))
    except ValueError as error:
        raise ReportError(f"{path} is not the configuration of a run: {error}") from None


def _settings(table: Table) -> RunSettings:
    training, task, malicious = (_inner(table, name) for name in ("training", "task", "malicious"))
    shown = {item.name for item in fields(RunSettings)}
    found = {key: value for key, value in training.items() if key in shown}
    found |= {key: value for key, value in task.items() if key in ("dataset", "clients")}
    found |= {
        "malicious": malicious.get("clients", 0),
        "attack": malicious.get("attack", ""),
        "seed": table.get("seed"),
    }
    return build(RunSettings, found, "[training]", given={"entries": tuple(_entries(table))})


def _inner(table: Table, name: str) -> Table:
    inner = table.get(name, {})
    if not isinstance(inner, Mapping):
        raise ValueError(f"[{name}] must be a table, got {inner!r}")
    return inner


def _entries(table: Table) -> list[tuple[str, str, str]]:
    top = [("run", key, str(value)) for key, value in table.items() if not isinstance(value, Mapping)]
    nested = [
        (name, key, str(value))
        for name, inner in table.items()
        if isinstance(inner, Mapping)
        for key, value in inner.items()
    ]
    return top + nested
