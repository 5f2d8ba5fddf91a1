"""The answer to "what does this run cost?": both adversaries, all accountants."""

import math
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from precad.privacy.accounting import (
    Adversary,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    paper_clients_epsilon,
    record_mechanism,
)
from precad.privacy.calibration import Setting, solve


@dataclass(frozen=True)
class Report:
    """The figures of one setting, for one record."""

    sigma: float
    participations: int
    delta: float
    figures: dict[Adversary, dict[str, float]]

    def as_json(self) -> dict[str, Any]:
        """For machines: an object for each adversary."""
        return {"sigma": self.sigma, "participations": self.participations} | {
            adversary.value: {**figures, "delta": self.delta} for adversary, figures in self.figures.items()
        }

    def as_table(self) -> Table:
        """For people."""
        table = Table(
            title=f"ε of one record at δ = {self.delta:g}: σ = {self.sigma:.4g}, at most {self.participations:,} rounds"
        )
        table.add_column("accountant")
        for adversary in Adversary:
            table.add_column(f"against {adversary.value}", justify="right")
        for key, label in _LABELS.items():
            cells = (self.figures[adversary].get(key) for adversary in Adversary)
            table.add_row(label, *("" if cell is None else f"{cell:.3f}" for cell in cells))
        return table

    def notes(self) -> str:
        """What the figures are, in words."""
        return (
            "PLD and RDP are proven bounds; quote PLD. GDP, the paper's, is asymptotic and too small: it is never used "
            "to enforce a budget. The paper's own figure against clients is not valid: all records of a client share "
            "one selection. The figures hold for clients that take part at most as often as the title says."
        )


_LABELS = {
    "pld": "PLD (rigorous)",
    "rdp": "RDP (rigorous)",
    "pld_replace_one": "PLD, one record exchanged",
    "gdp": "GDP (as in the paper; too small)",
    "paper_invalid": "the paper's figure (not valid)",
}


def make(
    *,
    sigma: float | None,
    rounds: int,
    client_rate: float,
    record_rate: float,
    delta: float,
    participations: int | None,
    target_epsilon: float | None,
) -> Report:
    """All figures; σ is found first if ``target_epsilon`` is given in its place."""
    if (sigma is None) == (target_epsilon is None):
        raise ValueError("give either --sigma or --target-epsilon")
    _check_ranges(rounds, client_rate, delta, participations)
    cap = math.ceil(client_rate * rounds) if participations is None else participations
    if sigma is None:
        sigma = solve(
            Setting(
                adversary=Adversary.SERVER,
                epsilon=target_epsilon,
                delta=delta,
                rounds=cap,
                client_rate=1.0,
                record_rate=record_rate,
            )
        )
    figures = {}
    for adversary in Adversary:
        mechanism = record_mechanism(adversary, sigma=sigma, record_rate=record_rate, participations=cap)
        figures[adversary] = {
            "gdp": GdpAccountant().epsilon(mechanism, delta),
            "pld": PldAccountant().epsilon(mechanism, delta),
            "rdp": RdpAccountant().epsilon(mechanism, delta),
            "pld_replace_one": PldAccountant(interval=1e-3, replace_one=True).epsilon(mechanism, delta),
        }
    figures[Adversary.CLIENTS]["paper_invalid"] = paper_clients_epsilon(
        sigma=sigma, record_rate=record_rate, client_rate=client_rate, rounds=rounds, delta=delta
    )
    return Report(sigma, cap, delta, figures)


def _check_ranges(rounds: int, client_rate: float, delta: float, participations: int | None) -> None:
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    if not 0 < client_rate <= 1:
        raise ValueError(f"--client-rate must be in (0, 1], got {client_rate}")
    if not 0 < delta < 1:
        raise ValueError(f"--delta must be in (0, 1), far below one over the number of records; got {delta}")
    if participations is not None and not 0 <= participations <= rounds:
        raise ValueError(f"--participations must be in [0, {rounds}], the number of rounds; got {participations}")
