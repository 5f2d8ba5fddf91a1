"""The answer to "what does this run cost?": both adversaries, all accountants."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.table import Table

from precad.privacy.accounting import (
    Accountant,
    Adversary,
    GdpAccountant,
    Mechanism,
    PldAccountant,
    RdpAccountant,
    client_mechanism,
    draws_seen,
    expected_cap,
    gdp_epsilon,
    paper_clients_epsilon,
    record_mechanism,
    sampler_delta,
    with_sampler,
)
from precad.privacy.calibration import least_sigma, most_rounds
from precad.privacy.groups import MAX_GROUP, group_epsilon

_COARSE = PldAccountant(interval=2e-3)  # to the third digit, for figures that are not quoted


@dataclass(frozen=True, kw_only=True)
class Question:
    """A run, as the options of ``precad privacy`` give it. An impossible number is a ``ValueError`` with its range."""

    rounds: int
    """T."""
    client_rate: float
    """q."""
    record_rate: float
    """p."""
    delta: float
    participations: int | None = None
    """T_i, the cap; ⌈q·T⌉ if not given."""
    unit: Literal["record", "client"] = "record"
    hidden: bool = False
    """Whether the other clients cannot see who took part; it matters for the unit "client" alone."""
    group: int = 1
    """K, how many records or clients are protected together."""
    noise: Adversary = Adversary.SERVER
    """Whom each server's noise alone protects against: σ each, or σ/√2 each."""
    dim: int = 26_010
    """d, the model's parameters: so many noisy numbers a round."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"--rounds must be at least 1, got {self.rounds}")
        for name, rate in (("--client-rate", self.client_rate), ("--record-rate", self.record_rate)):
            if not 1e-9 <= rate <= 1:
                raise ValueError(
                    f"{name} must be in (0, 1], got {rate}: it is a probability, 1 for everyone, and at least 1e-9"
                )
        if not 0 < self.delta < 1:
            raise ValueError(
                f"--delta must be in (0, 1), far below one over the number of records, such as 1e-5; got {self.delta}"
            )
        if not 0 <= self.cap <= self.rounds:
            raise ValueError(f"--participations must be in [0, {self.rounds}], the number of rounds; got {self.cap}")
        if not 1 <= self.group <= MAX_GROUP:
            raise ValueError(f"--group must be in [1, {MAX_GROUP}], got {self.group}")
        if not 1 <= self.dim <= 1 << 32:
            raise ValueError(f"--dim must be in [1, 2^32], got {self.dim}")
        if self.hidden and self.unit == "record":
            raise ValueError("--hidden is for --unit client: all records of a client share one selection")

    @property
    def cap(self) -> int:
        """The most rounds that a client takes part in."""
        return expected_cap(self.client_rate, self.rounds) if self.participations is None else self.participations

    def mechanism(self, adversary: Adversary, sigma: float) -> Mechanism:
        """What ``adversary`` sees of one record or client."""
        each = sigma if self.noise is Adversary.SERVER else sigma / math.sqrt(2)
        if self.unit == "record":
            return record_mechanism(adversary, sigma=each, record_rate=self.record_rate, participations=self.cap)
        return client_mechanism(
            adversary,
            sigma=each,
            client_rate=self.client_rate,
            rounds=self.rounds,
            participations=self.cap,
            hidden=self.hidden,
        )

    def epsilon(self, accountant: Accountant, adversary: Adversary, sigma: float) -> float:
        """ε by a rigorous accountant, for the group, the sampler's distance included; infinite if there is none."""
        mechanism = self.mechanism(adversary, sigma)
        return with_sampler(
            lambda left: group_epsilon(accountant, mechanism, self.group, left),
            mechanism.steps,
            self.delta,
            draws_seen(adversary, self.dim),
        )


@dataclass(frozen=True)
class Report:
    """The figures of one setting."""

    question: Question
    sigma: float
    figures: dict[Adversary, dict[str, float]]

    def as_json(self) -> dict[str, Any]:
        """For machines: an object for each adversary; ``null`` where there is no ε."""
        asked = self.question
        return {
            "sigma": self.sigma,
            "rounds": asked.rounds,
            "participations": asked.cap,
            "unit": asked.unit,
            "group": asked.group,
            "dim": asked.dim,
        } | {
            adversary.value: {key: value if math.isfinite(value) else None for key, value in figures.items()}
            | {"delta": asked.delta}
            for adversary, figures in self.figures.items()
        }

    def as_table(self) -> Table:
        """For people."""
        asked = self.question
        whom = f"one {asked.unit}" if asked.group == 1 else f"{asked.group} {asked.unit}s together"
        table = Table(
            title=f"ε of {whom} at δ = {asked.delta:g}: σ = {self.sigma:.4g}, "
            f"at most {asked.cap:,} of {asked.rounds:,} rounds" + (", participation hidden" if asked.hidden else "")
        )
        table.add_column("accountant")
        for adversary in Adversary:
            table.add_column(f"against {adversary.value}", justify="right")
        for key, label in _LABELS.items():
            cells = [self.figures[adversary].get(key) for adversary in Adversary]
            if any(cell is not None for cell in cells):
                table.add_row(label, *("" if x is None else f"{x:.3f}" if math.isfinite(x) else "none" for x in cells))
        return table

    def notes(self) -> str:
        """What the figures are, in words."""
        notes = [
            "PLD and RDP are proven bounds; quote PLD. GDP, the paper's, is asymptotic and too small: it is never used "
            "to enforce a budget. The figures hold for clients that take part at most as often as the title says.",
            "The noise sampler's distance from its law, (1 + e^ε)·T·d·η, is in the bounds: of δ it takes "
            + " and ".join(f"{self.figures[a]['sampler_delta']:.1e} ({a.value})" for a in Adversary)
            + f" at d = {self.question.dim:,}.",
        ]
        if "paper_invalid" in self.figures[Adversary.CLIENTS]:
            notes.append(
                "The paper's own figure against clients is not valid: all records of a client share one selection."
            )
        if any(math.isinf(figures["pld"]) for figures in self.figures.values()):
            notes.append('"none": no ε holds at this δ; use more noise, fewer rounds, a lower rate or a smaller group.')
        return " ".join(notes)


_LABELS = {
    "pld": "PLD (rigorous)",
    "rdp": "RDP (rigorous)",
    "pld_replace_one": "PLD, one exchanged for another",
    "gdp": "GDP (as in the paper; too small)",
    "paper_invalid": "the paper's figure (not valid)",
}


def make(question: Question, sigma: float | None, target_epsilon: float | None) -> Report:
    """All figures. With ``target_epsilon`` alone the least σ is found first; with both, the most rounds.

    The target is the ε against whom the noise is for.
    """
    if sigma is None and target_epsilon is None:
        raise ValueError("give --sigma, such as 1, or --target-epsilon, such as 2, or both to find the rounds")
    if sigma is None:
        sigma = least_sigma(lambda x: question.epsilon(_COARSE, question.noise, x), target_epsilon or 0.0)
    elif target_epsilon is not None:
        question = _longest(question, sigma, target_epsilon)
    return Report(question, sigma, {adversary: _figures(question, adversary, sigma) for adversary in Adversary})


def _longest(question: Question, sigma: float, target_epsilon: float) -> Question:
    """The same run with the most rounds that keep the target."""
    if question.participations is not None:
        raise ValueError("--participations cannot be given where the rounds are to be found: the cap is then ⌈q·T⌉")

    def epsilon(rounds: int) -> float:
        return replace(question, rounds=rounds).epsilon(_COARSE, question.noise, sigma)

    return replace(question, rounds=most_rounds(epsilon, target_epsilon))


def _figures(question: Question, adversary: Adversary, sigma: float) -> dict[str, float]:
    mechanism = question.mechanism(adversary, sigma)
    pld = question.epsilon(PldAccountant(), adversary, sigma)
    figures = {
        "gdp": gdp_epsilon(question.group * GdpAccountant().mu(mechanism), question.delta),
        "pld": pld,
        "rdp": question.epsilon(RdpAccountant(), adversary, sigma),
        "sampler_delta": min(1.0, sampler_delta(mechanism.steps, draws_seen(adversary, question.dim), pld)),
    }
    if question.group == 1:
        exchanged = PldAccountant(interval=_COARSE.interval, replace_one=True)
        figures["pld_replace_one"] = question.epsilon(exchanged, adversary, sigma)
    if adversary is Adversary.CLIENTS and question.unit == "record" and question.group == 1:
        figures["paper_invalid"] = paper_clients_epsilon(
            sigma=mechanism.noise_multiplier / math.sqrt(2),
            record_rate=question.record_rate,
            client_rate=question.client_rate,
            rounds=question.rounds,
            delta=question.delta,
        )
    return figures
