"""What becomes of each sentence of the paper that has a number in it, or that a number can refute.

A sentence is judged by a rule that is written beside our number, from the means over the seeds that were run; without
any, it is not tested.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from precad.experiments import plan
from precad.experiments.figures import CLIENT_RATE, DELTA, RECORD_RATE, stamp
from precad.experiments.plan import Dataset, Experiment, Method, Scale
from precad.experiments.rows import Row, RowFile
from precad.experiments.spread import Spread, spread
from precad.experiments.table1 import Measured
from precad.privacy.accounting import Adversary, GdpAccountant, PldAccountant, record_mechanism

POINT = 0.01
PAPER_EPSILON = {1.0: 6.8, 1.5: 3.5, 2.0: 2.4}
PAPER_ROUNDS = 5000


class Verdict(Enum):
    """What we found."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what we measured."""

    sentence: str
    ours: str
    rule: str
    verdict: Verdict


@dataclass(frozen=True)
class Evidence:
    """The rows, by what they answer."""

    scale: Scale
    found: Callable[[Iterable[Experiment]], list[Row]]
    """The rows that there are."""

    def clean(self, dataset: Dataset, method: Method, clients: int) -> Spread | None:
        """Accuracy without attackers."""
        return self._main(plan.clean(self.scale, dataset, method, clients, seed) for seed in self.scale.seeds)

    def main(self, dataset: Dataset, method: Method, attackers: int, bound: float = plan.BOUND) -> Spread | None:
        """Main accuracy under the backdoor attack."""
        return self._main(self._attacked(dataset, method, attackers, bound))

    def backdoor(self, dataset: Dataset, method: Method, attackers: int, bound: float = plan.BOUND) -> Spread | None:
        """Backdoor accuracy."""
        return spread([row.final_backdoor for row in self.found(self._attacked(dataset, method, attackers, bound))])

    def times(self, dataset: Dataset, clients: int) -> list[float] | None:
        """Of a round: plain, LDP, PRECAD without and with validation."""
        found = self.found(plan.time_runs(self.scale, dataset, clients))
        return [row.round_seconds for row in found] if len(found) == 4 else None

    def noisy(self, protocol: Literal["ldp", "precad"]) -> list[Method]:
        """A protocol with the least and with the most noise."""
        return [Method(protocol, sigma) for sigma in (min(self.scale.sigmas), max(self.scale.sigmas))]

    def _attacked(self, dataset: Dataset, method: Method, attackers: int, bound: float) -> list[Experiment]:
        return [
            plan.attacked(
                self.scale, dataset, method, attackers, seed, bound if method.protocol == "precad" else plan.BOUND
            )
            for seed in self.scale.seeds
        ]

    def _main(self, experiments: Iterable[Experiment]) -> Spread | None:
        return spread([row.final_accuracy for row in self.found(experiments)])


def experiments(scale: Scale) -> list[Experiment]:
    """The runs that the claims ask for: those on backdoors first, and seed by seed."""
    asked = list[Experiment]()

    def ask(some: Iterable[Experiment]) -> list[Row]:
        asked.extend(some)
        return []

    _of_runs(Evidence(scale, ask))
    return sorted(asked, key=lambda run: (not run.config.malicious.clients, run.config.seed or 0))


def judge(scale: Scale, rows: RowFile, table: list[Measured]) -> list[Claim]:
    """All claims, in the order of the paper."""
    return [*_table_claims(table), _epsilon_claim(), *_of_runs(Evidence(scale, rows.found))]


def write(scale: Scale, claims: list[Claim], made: tuple[int, int], machine: str, path: Path) -> None:
    """As a table in Markdown; ``made`` runs of all."""
    word = " (quick)" if scale.quick else ""
    lines = [
        "# The paper's claims",
        "",
        f"{stamp(scale)}. {made[0]} of {made[1]} runs made. {machine}.",
        "Numbers are means over seeds with the standard deviation of one seed. A claim without runs is not tested.",
        "",
        "| the paper says | we find | it holds if | |",
        "|---|---|---|---|",
    ]
    for claim in claims:
        verdict = claim.verdict.value + (word if claim.verdict is not Verdict.UNTESTED else "")
        lines.append(f"| {claim.sentence} | {claim.ours} | {claim.rule} | **{verdict}** |")
    path.write_text("\n".join(lines) + "\n")


def _of_runs(evidence: Evidence) -> list[Claim]:
    datasets = evidence.scale.datasets
    claims = _utility(evidence) if "mnist" in datasets else []
    for dataset in datasets:
        claims += [*_by_clients(evidence, dataset), *_times(evidence, dataset)]
    for dataset in datasets:
        claims += _by_attackers(evidence, dataset)
    for dataset in datasets:
        claims += _by_bound(evidence, dataset)
    return claims


def _table_claims(table: list[Measured]) -> list[Claim]:
    return [
        Claim(
            f"Table 1: the noise in the aggregate of {row.name} has standard deviation {row.formula}",
            f"{row.std:.4f}, for {row.expected:.4f}",
            "within five standard errors",
            Verdict.HOLDS if row.holds else Verdict.FAILS,
        )
        for row in table
    ]


def _epsilon_claim() -> Claim:
    participations = round(CLIENT_RATE * PAPER_ROUNDS)
    found = []
    for sigma in PAPER_EPSILON:
        mechanism = record_mechanism(
            Adversary.SERVER, sigma=sigma, record_rate=RECORD_RATE, participations=participations
        )
        accountants = GdpAccountant(), PldAccountant(interval=1e-3)
        found.append([accountant.epsilon(mechanism, DELTA) for accountant in accountants])
    close = all(0 <= ours[0] - paper < 0.1 for ours, paper in zip(found, PAPER_EPSILON.values(), strict=True))
    return Claim(
        "ε = 6.8, 3.5, 2.4 correspond to σ = 1, 1.5, 2 (T = 5000)",
        "by the paper's accountant "
        + ", ".join(f"{paper:.2f}" for paper, _ in found)
        + "; rigorously "
        + ", ".join(f"{rigorous:.2f}" for _, rigorous in found),
        "the paper's accountant gives it, cut to one digit; the rigorous figure is larger",
        Verdict.HOLDS if close else Verdict.FAILS,
    )


def _utility(evidence: Evidence) -> list[Claim]:
    ends = [(method.label, evidence.clean("mnist", method, 100)) for method in evidence.noisy("precad")]
    return [_compared("mnist: a larger noise leads to less accuracy", ends, 0.0)]


def _by_clients(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    few, many = min(evidence.scale.clients), max(evidence.scale.clients)
    claims = []
    for method in (Method("plain"), *evidence.noisy("precad")):
        ends = [(f"n = {n}", evidence.clean(dataset, method, n)) for n in (many, few)]
        sentence = f"{dataset}: increasing n has no impact on the accuracy of {method.label}"
        claims.append(_compared(sentence, ends, -POINT))
    for method in evidence.noisy("ldp"):
        ends = [(f"n = {n}", evidence.clean(dataset, method, n)) for n in (few, many)]
        sentence = f"{dataset}: increasing n decreases the accuracy of {method.label} significantly"
        claims.append(_compared(sentence, ends, 2 * POINT))
    return claims


def _times(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    times = evidence.times(dataset, min(evidence.scale.clients))
    sentence = f"{dataset}: PRECAD's run time is approximately 7 times that of LDP"
    faster = f"{dataset}: the non-private setting has less run time than LDP"
    rules = "a ratio from 5 to 9", "its round is shorter"
    if times is None:
        return [Claim(text, "–", rule, Verdict.UNTESTED) for text, rule in zip((sentence, faster), rules, strict=True)]
    plain, ldp, none, proof = times
    ratio = f"{none / ldp:.2f} times without validation, as in the paper's comparison; {proof / ldp:.2f} with it"
    both = f"{1000 * plain:.0f} ms and {1000 * ldp:.0f} ms"
    return [
        Claim(sentence, ratio, rules[0], Verdict.HOLDS if 5 <= none / ldp <= 9 else Verdict.FAILS),
        Claim(faster, both, rules[1], Verdict.HOLDS if plain < ldp else Verdict.FAILS),
    ]


def _by_attackers(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    few = {"mnist": 4, "cifar10": 1}[dataset]
    most = max(evidence.scale.attackers[dataset])
    weak_precad, strong_precad = evidence.noisy("precad")
    weak_ldp, strong_ldp = evidence.noisy("ldp")
    claims = [
        _limit(
            f"{dataset}: {few} backdoor clients push the backdoor accuracy of {method.label} over 80 %",
            evidence.backdoor(dataset, method, few),
            ">",
            0.8,
        )
        for method in (Method("plain"), weak_ldp, strong_ldp)
    ]

    def backdoors(*methods: Method) -> list[tuple[str, Spread | None]]:
        return [(method.label, evidence.backdoor(dataset, method, most)) for method in methods]

    at = f"{dataset}, K = {most}:"
    for method in (Method("plain"), weak_ldp):
        sentence = f"{at} PRECAD is more robust than {method.label.split(',')[0]}"
        claims.append(_compared(sentence, backdoors(method, weak_precad), 0.0))
    sentence = f"{at} noise in PRECAD enhances robustness: more of it lowers the backdoor accuracy"
    claims.append(_compared(sentence, backdoors(weak_precad, strong_precad), 0.0))
    sentence = f"{at} noise in LDP reduces robustness: more of it does not lower the backdoor accuracy"
    claims.append(_compared(sentence, backdoors(strong_ldp, weak_ldp), -POINT))
    gains = {Method("plain"): (0.0, "slightly"), weak_precad: (0.0, "slightly"), strong_ldp: (2 * POINT, "much")}
    for method, (gain, word) in gains.items():
        ends = [(f"K = {k}", evidence.main(dataset, method, k)) for k in (most, 0)]
        sentence = f"{dataset}: more backdoor clients improve the main accuracy of {method.label} {word}"
        claims.append(_compared(sentence, ends, gain))
    return claims


def _by_bound(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    small, large = min(evidence.scale.bounds), max(evidence.scale.bounds)
    most = max(evidence.scale.bound_attackers[dataset])
    weak, strong = evidence.noisy("precad")
    ends = [(f"C = {c:g}", evidence.backdoor(dataset, weak, most, c)) for c in (large, small)]
    claims = [_compared(f"{dataset}, K = {most}: a smaller C results in higher robustness", ends, 0.0)]
    if dataset == "mnist":
        for attackers, limit, text in ((5, POINT, "0 %"), (10, 0.5, "less than 50 %")):
            sentence = f"mnist: with C = 20 the backdoor accuracy is {text} against K = {attackers}"
            claims.append(_limit(sentence, evidence.backdoor(dataset, weak, attackers, 20.0), "<", limit))
        mains = [(f"C = {c:g}", evidence.main(dataset, weak, most, c)) for c in (20.0, plan.BOUND)]
        sentence = f"mnist, K = {most}: C = 20 reduces the main accuracy by only 1 %"
        claims.append(_compared(sentence, mains, -1.5 * POINT))
    else:
        sentence = f"cifar10: the backdoor accuracy is below 30 % when K = 3 and C = 20 under {strong.label}"
        claims.append(_limit(sentence, evidence.backdoor(dataset, strong, 3, 20.0), "<", 0.3))
    mains = [(method.label, evidence.main(dataset, method, most, 20.0)) for method in (strong, weak)]
    sentence = f"{dataset}, K = {most}, C = 20: a smaller ε has very little impact on the main accuracy"
    return [*claims, _compared(sentence, mains, -3 * POINT)]


def _compared(sentence: str, pair: Sequence[tuple[str, Spread | None]], margin: float) -> Claim:
    """Holds if the first is at least the second plus a margin; without a margin, if it is above."""
    first, second = pair
    points = f"at least the second {'+' if margin > 0 else '−'} {abs(100 * margin):g} points"
    rule = f"the first is {points if margin else 'above the second'}"
    if first[1] is None or second[1] is None:
        return Claim(sentence, "–", rule, Verdict.UNTESTED)
    ours = f"{first[0]}: {first[1].percent()}; {second[0]}: {second[1].percent()}"
    lead = first[1].mean - second[1].mean
    holds = lead >= margin if margin else lead > 0
    return Claim(sentence, ours, rule, Verdict.HOLDS if holds else Verdict.FAILS)


def _limit(sentence: str, value: Spread | None, sign: str, limit: float) -> Claim:
    rule = f"{sign} {100 * limit:g} %"
    if value is None:
        return Claim(sentence, "–", rule, Verdict.UNTESTED)
    holds = value.mean > limit if sign == ">" else value.mean < limit
    return Claim(sentence, value.percent(), rule, Verdict.HOLDS if holds else Verdict.FAILS)
