"""Table 1 of the paper, measured: the standard deviation of the noise in the opened sum, over the sensitivity."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from precad.lab.paper.rows import write_table
from precad.mpc.prg import digest
from precad.privacy.terms import Adversary
from precad.protocol.params import Round
from precad.settings import Protocol, from_table
from precad.simulation import presets
from precad.simulation.aggregators import Aggregator, Updates
from precad.simulation.randomness import Randomness

DIM, CLIENTS, HONEST, SIGMA = 20_000, 16, 4, 1.5
"""d, n, τ and σ of the measurement."""


@dataclass(frozen=True)
class Measured:
    """A row of the table: a mechanism, its noise by the paper's formula, and as measured."""

    name: str
    formula: str
    expected: float
    """The formula's value."""
    std: float
    """Over all coordinates of one opened sum of null updates."""

    @property
    def holds(self) -> bool:
        """Within five standard errors: 1/√(2d) each; a false alarm has probability below 1e-6."""
        return abs(self.std / self.expected - 1) < 5 / math.sqrt(2 * DIM)


def measure(seed: int) -> list[Measured]:
    """One round of each protocol; PRECAD's with all its cryptography."""
    return [
        _measure("CDP", "σ", 1, Protocol.CDP, Adversary.SERVER, seed),
        _measure("LDP", "√n·σ", CLIENTS, Protocol.LDP, Adversary.SERVER, seed),
        _measure("DDP", "√(n/τ)·σ", CLIENTS / HONEST, Protocol.DDP, Adversary.SERVER, seed),
        _measure("PRECAD, against a server", "√2·σ", 2, Protocol.PRECAD, Adversary.SERVER, seed),
        _measure("PRECAD, against clients", "σ", 1, Protocol.PRECAD, Adversary.CLIENTS, seed),
    ]


def write(measured: list[Measured], path: Path) -> None:
    """Write the rows as a table in Markdown."""
    text = [
        "# Table 1: standard deviation of the noise in the opened sum",
        "",
        f"In units of the sensitivity; measured over d = {DIM:,} coordinates, n = {CLIENTS} clients in the round, "
        f"τ = {HONEST}, σ = {SIGMA:g}.",
    ]
    verdicts = {True: "holds", False: "does not hold"}
    cells = [(row.name, row.formula, f"{row.expected:.4f}", f"{row.std:.4f}", verdicts[row.holds]) for row in measured]
    write_table(path, text, ("mechanism", "paper", "value", "measured", ""), cells)


def _measure(name: str, formula: str, variance: float, protocol: Protocol, noise: Adversary, seed: int) -> Measured:
    """``variance`` is that of the formula, in units of σ²."""
    everybody = replace(from_table(presets.preset("mnist", "paper")).training, client_rate=1.0, record_rate=1.0)
    settings = replace(everybody, noise_multiplier=SIGMA, protocol=protocol, noise=noise, honest_clients=HONEST)
    params = settings.params(DIM, CLIENTS)
    randomness = Randomness.repeatable(seed)
    round_ = Round(params, digest(b"precad table 1"), 0, digest(b"precad table 1"), randomness.nonces(0))
    honest = {f"client-{i:02}": np.zeros(DIM, np.int64) for i in range(CLIENTS)}
    collected = Aggregator(settings, randomness, CLIENTS).collect(round_)
    collected.add(Updates(honest, {}))
    std = float(collected.open().total.std()) / params.sensitivity
    return Measured(name, formula, math.sqrt(variance) * SIGMA, std)
