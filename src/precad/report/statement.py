"""The statement that ends an audit: one page that the person who answers for the data can sign.

Its sentences are made here once; the terminal, Markdown, HTML and JSON show the same.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from precad.errors import PrecadError
from precad.files import is_file
from precad.privacy.ledger import Origin
from precad.privacy.terms import Adversary, Terms
from precad.protocol.params import Unit, Validation
from precad.report.formatting import counted, small
from precad.report.page import templates
from precad.report.run import read_rounds, unfinished
from precad.settings import PRIVATE, Hyperparameters, Protocol, from_table
from precad.tables import read_toml

NO_EPSILON = "none: nothing protects against it"
AGAINST = {
    Adversary.SERVER: "one server together with all other clients",
    Adversary.CLIENTS: "all other clients together",
}
SEEDED = "A seed made the noise: whoever knows it takes the noise away"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What was run, what it cost, and on what that rests."""

    name: str
    """Of the run or of the task."""
    digest: str
    training: Hyperparameters
    terms: Terms
    rounds: int
    """That were counted."""
    participations: int
    """T_i of the client that took part most often; where participants are hidden, the cap of the task."""
    costs: Mapping[Adversary, float | None]
    """ε of this client against each adversary; None where there is none."""
    private: bool | None
    """Whether nobody can take the noise away: not with a seed; None where that is not recorded."""
    differences: int
    """How many the audit found."""
    unfinished: str | None = None
    """What is to be said of a round that was counted, and cut off."""
    unchecked: tuple[str, ...] = ()
    """What it could not compare."""
    simulated: bool = True
    """Whether one machine played all parties."""
    hidden: bool = False
    """Whether participants must not become known."""

    @property
    def headline(self) -> str:
        """The first line: what may be claimed, if anything."""
        cost = self.costs[Adversary.SERVER]
        if self.differences:
            return f"NOT TO BE SIGNED: the audit found {counted(self.differences, 'difference')}. No ε is claimed."
        if self.private is False:
            return f"NOT PRIVATE. {SEEDED}. No ε is claimed."
        if self.private is None:
            return "NOT TO BE SIGNED: it is not recorded whether a seed made the noise. No ε is claimed."
        if cost is None:
            return f"NO ε HOLDS against {AGAINST[Adversary.SERVER]}."
        return (
            f"(ε, δ)-differential privacy with ε = {cost:.3f} at δ = {small(self.terms.delta)} for "
            f"{unit_of(self.training.unit.value)}, against {AGAINST[Adversary.SERVER]}."
        )

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Each figure with its name."""
        training, claimed = self.training, self.private is True and not self.differences
        costs = {
            f"ε against {who}": "not claimed" if not claimed else NO_EPSILON if cost is None else f"{cost:.3f}"
            for who, cost in ((AGAINST[each], self.costs[each]) for each in Adversary)
        }
        most = "is allowed to take part in" if self.hidden else "took part in"
        budget = "none" if training.budget is None else f"ε ≤ {training.budget:g} against a server, then it sits out"
        return [
            ("task" if not self.simulated else "run", f"{self.name}, digest {self.digest}"),
            *essentials(self.terms, Origin(unit=training.unit.value, private=self.private)),
            *costs.items(),
            ("noise", self._noise()),
            (
                "sampling",
                f"each record with p = {training.record_rate:g}; each client with q = {training.client_rate:g}",
            ),
            ("bounds", f"R = {training.record_bound:g}, C = {training.client_bound:g}, {self._validation()}"),
            (
                "rounds",
                f"{self.rounds:,} of {training.rounds:,}; the most exposed client {most} {self.participations:,}"
                + (f"; {self.unfinished}" if self.unfinished else ""),
            ),
            ("a client's budget", budget),
        ]

    @property
    def assumed(self) -> list[str]:
        """What the figures rest on, beside the proofs."""
        played = [
            "One machine played all clients and both servers, and whoever runs it sees the records. The figures are of "
            "what leaves it: the model, and what servers and clients would see of each other."
        ]
        return [
            *(played if self.simulated else []),
            "The two servers do not work together, and are not administered, hosted or backed up by one third party.",
            "The operating systems' generators are unpredictable, and nobody keeps what they gave.",
            "Each client declares its records truly, and a person is in one record: K records of one person cost more "
            "(precad privacy --group K).",
            "This is the only run on these records. Others on the same ones add to its cost: precad ledger total.",
            "When a client answers tells nothing about the records that it drew: it keeps to its task's reply time.",
            "Whatever was chosen by looking at the data (σ, R, η, the model, which run to keep) is not counted.",
        ]

    @property
    def not_covered(self) -> list[str]:
        """What nobody who signs this answers for."""
        return [
            "Both servers together: they see every update.",
            "A server that deviates: it can reject clients, stop the run, or shift the model by anything it likes."
            + (" With triples it can also learn from verdicts." if self._triples else ""),
            "The code that clients run: an app that sends more than precad does breaks every figure.",
            "What a client sends within its bound C: it may poison the model. The parties' machines, memory and disks.",
            "The test accuracy, which is not computed again, and what anybody does with the model.",
            "Files that were all written anew: they agree with each other. Compare a digest that was kept elsewhere."
            if self.simulated
            else "Logs that both servers signed together although something else happened.",
            *(f"Not checked: {sentence}." for sentence in self.unchecked),
        ]

    @property
    def _triples(self) -> bool:
        return self.training.validation is Validation.TRIPLES

    def _validation(self) -> str:
        return f"validation {self.training.validation.value}"

    def _noise(self) -> str:
        training, each = self.training, self.terms.sigma
        if training.protocol is Protocol.PRECAD:
            return (
                f"σ = {training.noise_multiplier:g} for {training.noise.value}: each server adds {each:.4g} times the "
                "sensitivity (R' for a record, C for a client)"
            )
        return f"protocol {training.protocol.value}, σ = {training.noise_multiplier:g}"

    def as_text(self) -> str:
        """For a terminal, and as Markdown."""
        return templates().get_template("statement.md").render(statement=self)

    def as_html(self) -> str:
        """For a printer."""
        return templates().get_template("statement.html").render(statement=self)

    def as_json(self) -> dict[str, Any]:
        """For machines. There is an ε only where one may be claimed."""
        claimed = self.private is True and not self.differences
        return {
            "headline": self.headline,
            "private": self.private,
            "epsilon": {each.value: cost for each, cost in self.costs.items()} if claimed else None,
            "unit": self.training.unit.value,
            "rounds": self.rounds,
            "participations": self.participations,
            "terms": asdict(self.terms),
            "figures": dict(self.rows),
            "assumed": self.assumed,
            "not_covered": self.not_covered,
        }


def essentials(terms: Terms, origin: Origin) -> list[tuple[str, str]]:
    """What every ε must be read with, whoever prints it: unit, neighbours, δ, accountant, randomness."""
    noise = {
        True: PRIVATE,
        False: f"NOT PRIVATE. {SEEDED}",
        None: "unknown: it is not recorded whether a seed made the noise",
    }
    unit = "not recorded: one record, or all of a client's" if origin.unit is None else unit_of(origin.unit)
    return [
        ("randomness", noise[origin.private]),
        ("unit", unit),
        ("neighbours", "data sets that differ in one unit, replaced by a null one, whose gradient is 0"),
        ("δ", small(terms.delta)),
        ("accountant", f"privacy loss distributions (dp-accounting {version('dp-accounting')}), rounded up: a bound"),
    ]


def origin_of(ledger: Path, told: Origin) -> Origin:
    """What a ledger was told of its run, and what the configuration beside it says. One seed is enough."""
    place = ledger.with_name("config.toml")
    try:
        config = from_table({"task": {"dataset": ""}, **read_toml(place)}) if is_file(place) else None
    except ValueError:
        config = None
    if config is None:
        return told
    private = config.seed is None and told.private is not False
    return Origin(unit=told.unit or config.training.unit.value, private=private)


def unfinished_of(ledger: Path, counted: int) -> str | None:
    """Of the ledger in a run's folder that counts so many rounds: what is to be said if not all were finished."""
    if not is_file(ledger.with_name("config.toml")):
        return None
    try:
        return unfinished(counted, len(read_rounds(ledger.with_name("metrics.jsonl"))))
    except (PrecadError, ValueError):
        return None


def unit_of(unit: str) -> str:
    """What is protected, in words."""
    return "one record of one client" if unit == Unit.RECORD.value else "all records of one client"
