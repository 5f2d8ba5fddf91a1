"""A run that is planned: what it will cost against both adversaries, by all accountants; the σ or T for a wanted ε."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.table import Table

from precad.privacy.accounting import EXCHANGED, GdpAccountant, RdpAccountant, gdp_epsilon, paper_clients_epsilon
from precad.privacy.epsilon import bound, check_target, epsilon, least_sigma, most
from precad.privacy.groups import MAX_GROUP
from precad.privacy.terms import Adversary, Spent, Terms
from precad.tables import finite

_MAX_ROUNDS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
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
    """Who sees σ: each server adds σ, or σ/√2."""
    dim: int = 26_010
    """d, the number of the model's parameters, and of the noisy numbers of a round."""

    def __post_init__(self) -> None:
        capped = self.participations is None or 0 <= self.participations <= self.rounds
        probability = "in (0, 1]: it is a probability, 1 for everyone, and at least 1e-9"
        for name, value, possible, allowed in (
            ("--rounds", self.rounds, self.rounds >= 1, "at least 1"),
            ("--client-rate", self.client_rate, 1e-9 <= self.client_rate <= 1, probability),
            ("--record-rate", self.record_rate, 1e-9 <= self.record_rate <= 1, probability),
            ("--delta", self.delta, 0 < self.delta < 1, "in (0, 1), far below one over the number of records"),
            ("--participations", self.participations, capped, f"in [0, {self.rounds}], the number of rounds"),
            ("--group", self.group, 1 <= self.group <= MAX_GROUP, f"in [1, {MAX_GROUP}]"),
            ("--dim", self.dim, 1 <= self.dim <= 1 << 32, "in [1, 2^32]"),
        ):
            if not possible:
                raise ValueError(f"{name} must be {allowed}; got {value}")
        if self.hidden and self.unit == "record":
            raise ValueError("--hidden is for --unit client: all records of a client share one selection")

    @property
    def cap(self) -> int:
        """The most rounds that a client takes part in."""
        if self.participations is not None:
            return self.participations
        return max(1, math.ceil(self.client_rate * self.rounds - 1e-9))  # free of float error

    def terms(self, sigma: float) -> Terms:
        """What a participation costs with this σ."""
        return Terms(
            sigma=self.noise.noise_of_each(sigma),
            record_rate=self.record_rate if self.unit == "record" else 1.0,
            delta=self.delta,
            dim=self.dim,
            group=self.group,
            client_rate=self.client_rate,
            hidden_rounds=self.rounds if self.hidden else None,
        )

    def epsilon(self, adversary: Adversary, sigma: float) -> float:
        """What the run costs with this σ."""
        return epsilon(self.terms(sigma), adversary, self.cap)

    def gdp(self, adversary: Adversary, sigma: float) -> float:
        """The same as in the paper: asymptotic and too small."""
        mechanism = self.terms(sigma).mechanism(adversary, self.cap)
        return gdp_epsilon(self.group * GdpAccountant().mu(mechanism), self.delta)


@dataclass(frozen=True)
class Costs:
    """What a plan costs: the figures of each adversary, by the names of the accountants."""

    plan: Plan
    sigma: float
    figures: dict[Adversary, dict[str, float]]

    def as_json(self) -> dict[str, Any]:
        """For machines: an object for each adversary; ``null`` where there is no ε."""
        return {
            "sigma": self.sigma,
            "rounds": self.plan.rounds,
            "participations": self.plan.cap,
            "unit": self.plan.unit,
            "group": self.plan.group,
            "dim": self.plan.dim,
        } | {
            adversary.value: {key: finite(value) for key, value in figures.items()} | {"delta": self.plan.delta}
            for adversary, figures in self.figures.items()
        }

    def as_table(self) -> Table:
        """For people."""
        plan = self.plan
        whom = f"one {plan.unit}" if plan.group == 1 else f"{plan.group} {plan.unit}s together"
        table = Table(
            title=f"ε of {whom} at δ = {plan.delta:g}: σ = {self.sigma:.4g}, "
            f"at most {plan.cap:,} of {plan.rounds:,} rounds" + (", participation hidden" if plan.hidden else "")
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
            + f" at d = {self.plan.dim:,}.",
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


def costs(plan: Plan, sigma: float | None, target_epsilon: float | None) -> Costs:
    """All figures. With ``target_epsilon`` alone the least σ is found first; with both, the most rounds.

    The target is the ε against whom the noise is for.
    """
    if sigma is None and target_epsilon is None:
        raise ValueError("give --sigma, such as 1, or --target-epsilon, such as 2, or both to find the rounds")
    if sigma is None:
        sigma = least_sigma(lambda x: plan.epsilon(plan.noise, x), target_epsilon or 0.0)
    elif target_epsilon is not None:
        plan = _longest(plan, sigma, target_epsilon)
    return Costs(plan, sigma, {adversary: _figures(plan, adversary, sigma) for adversary in Adversary})


def _longest(plan: Plan, sigma: float, target: float) -> Plan:
    """The same run with the most rounds that keep the target."""
    if plan.participations is not None:
        raise ValueError("--participations cannot be given where the rounds are to be found: the cap is then ⌈q·T⌉")
    check_target(target)

    def cost(rounds: int) -> float:
        return replace(plan, rounds=rounds).epsilon(plan.noise, sigma)

    rounds = most(lambda rounds: cost(rounds) <= target, _MAX_ROUNDS + 1)
    if rounds == 0:
        raise ValueError(f"epsilon must be at least {cost(1):.4g}, what a single round costs; got {target}")
    if rounds > _MAX_ROUNDS:
        raise ValueError(f"more than {_MAX_ROUNDS:,} rounds keep this promise: sigma is larger than it need be")
    return replace(plan, rounds=rounds)


def _figures(plan: Plan, adversary: Adversary, sigma: float) -> dict[str, float]:
    terms, pld = plan.terms(sigma), plan.epsilon(adversary, sigma)
    steps, run = terms.mechanism(adversary, plan.cap).steps, [Spent(terms, plan.cap)]
    figures = {
        "gdp": plan.gdp(adversary, sigma),
        "pld": pld,
        "rdp": bound(RdpAccountant(), run, adversary, plan.delta),
        "sampler_delta": min(1.0, terms.sampler_delta(adversary, steps, pld)),
    }
    if plan.group == 1:
        figures["pld_replace_one"] = bound(EXCHANGED, run, adversary, plan.delta)
    if adversary is Adversary.CLIENTS and plan.unit == "record" and plan.group == 1:
        claim = {"record_rate": plan.record_rate, "client_rate": plan.client_rate, "delta": plan.delta}
        figures["paper_invalid"] = paper_clients_epsilon(sigma=terms.sigma, rounds=plan.rounds, **claim)
    return figures
