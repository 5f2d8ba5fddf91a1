"""What becomes of each sentence of the paper that has a number in it, or that a number can refute.

A sentence is judged by a rule that is written beside our number, from the means over the seeds that were run; without
any, it is not tested.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from precad.files import write_file
from precad.lab.paper import plan
from precad.lab.paper.evidence import (
    LEARNT,
    POINT,
    Claim,
    Evidence,
    Named,
    Verdict,
    backdoors_compared,
    compared,
    limited,
    pushed,
)
from precad.lab.paper.plan import CLIENT_RATE, DATASETS, DELTA, RECORD_RATE, Dataset, Experiment, Method, Scale
from precad.lab.paper.rows import RowFile
from precad.lab.paper.table1 import Measured
from precad.privacy.accounting import GdpAccountant, paper_clients_epsilon
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary

PAPER_EPSILON = {1.0: 6.8, 1.5: 3.5, 2.0: 2.4}
FEW: Mapping[Dataset, int] = {"mnist": 4, "cifar10": 1}
"""Attackers that suffice, the paper says."""


def experiments(scale: Scale) -> list[Experiment]:
    """The runs that the claims ask for, on the scale's data sets: those on backdoors first, and seed by seed."""
    asked = list[Experiment]()
    _of_runs(Evidence(scale, asked.append))
    wanted = (run for run in asked if run.config.task.dataset in scale.datasets)
    return sorted(wanted, key=lambda run: (not run.config.malicious.clients, run.config.seed or 0))


def judge(scale: Scale, rows: RowFile, table: list[Measured]) -> list[Claim]:
    """All claims, in the order of the paper, on all data sets."""
    return [*_table_claims(table), _epsilon_claim(), _adversaries_claim(), *_of_runs(Evidence(scale, rows.get))]


def write(scale: Scale, claims: list[Claim], rows: RowFile, machine: str, path: Path) -> None:
    """As a table in Markdown, and how it was made."""
    lines = ["# The paper's claims", ""]
    if scale.quick:
        lines += ["QUICK RUN, not the paper's length.", ""]
    lines += [f"- {_made(replace(scale, datasets=(dataset,)), dataset, rows)}" for dataset in DATASETS]
    lines += [
        f"- {machine}",
        "",
        "Numbers are means over seeds with the standard deviation of one seed. The backdoor accuracy of a model whose "
        f"main accuracy is below {100 * LEARNT:g} % does not count: the model has not learnt. A claim without runs "
        "that count is not tested.",
        "",
        "| the paper says | we find | it holds if | |",
        "|---|---|---|---|",
    ]
    lines += [f"| {claim.sentence} | {claim.ours} | {claim.rule} | **{_verdict(scale, claim)}** |" for claim in claims]
    write_file(path, "\n".join(lines) + "\n")


def _made(scale: Scale, dataset: Dataset, rows: RowFile) -> str:
    every = plan.unique(experiments(scale))
    made = rows.found(every)
    hours = sum(row.seconds for row in made) / 3600
    return f"{dataset}: {len(made)} of {len(every)} runs of {scale.rounds[dataset]} rounds made, {hours:.1f} core hours"


def _verdict(scale: Scale, claim: Claim) -> str:
    if claim.dataset is None or claim.verdict is Verdict.UNTESTED or scale.rounds[claim.dataset] == plan.PAPER_ROUNDS:
        return claim.verdict.value
    return f"{claim.verdict.value} ({'quick' if scale.quick else f'{scale.rounds[claim.dataset]} rounds'})"


def _of_runs(evidence: Evidence) -> list[Claim]:
    parts = (_utility, _by_clients, _times, _by_attackers, _by_bound)
    found = [
        replace(claim, sentence=f"{dataset}{claim.sentence}", dataset=dataset)
        for part in parts
        for dataset in DATASETS
        for claim in part(evidence, dataset)
    ]
    return [*found, _of_both_backdoors(evidence)]


def _table_claims(table: list[Measured]) -> list[Claim]:
    return [
        Claim(
            f"Table 1: the noise in the aggregate of {row.name} has standard deviation {row.formula}",
            f"{row.std:.4f}, for {row.expected:.4f}",
            "within five standard errors",
            Verdict.of(row.holds),
        )
        for row in table
    ]


def _epsilon_claim() -> Claim:
    by_paper = [_by_the_paper(sigma, plan.PAPER_ROUNDS) for sigma in PAPER_EPSILON]
    close = all(0 <= ours - paper < 0.1 for ours, paper in zip(by_paper, PAPER_EPSILON.values(), strict=True))
    return Claim(
        "ε = 6.8, 3.5, 2.4 correspond to σ = 1, 1.5, 2 (T = 5000)",
        f"by the paper's accountant {_listed(by_paper)}; "
        f"rigorously {_listed(_rigorous(sigma, Adversary.SERVER) for sigma in PAPER_EPSILON)}",
        "the paper's accountant gives it, cut to one digit",
        Verdict.of(close),
    )


def _adversaries_claim() -> Claim:
    """By the paper's accountant after every epoch, and rigorously at the end."""
    always = all(
        _by_the_paper(sigma, rounds)
        > paper_clients_epsilon(
            sigma=sigma, record_rate=RECORD_RATE, client_rate=CLIENT_RATE, rounds=rounds, delta=DELTA
        )
        for sigma in PAPER_EPSILON
        for rounds in range(plan.EPOCH, plan.PAPER_ROUNDS + 1, plan.EPOCH)
    )
    ends = [[_rigorous(sigma, adversary) for adversary in Adversary] for sigma in PAPER_EPSILON]
    return Claim(
        "ε is always larger against a server than against clients only",
        f"rigorously, T = 5000: {'; '.join(f'{server:.2f} and {clients:.2f}' for server, clients in ends)}",
        "after every epoch by the paper's accountant, and at the end rigorously",
        Verdict.of(always and all(server > clients for server, clients in ends)),
    )


def _by_the_paper(sigma: float, rounds: int) -> float:
    """Against a server, by the central limit theorem."""
    mechanism = plan.terms(sigma).mechanism(Adversary.SERVER, plan.participations(rounds))
    return GdpAccountant().epsilon(mechanism, DELTA)


def _rigorous(sigma: float, adversary: Adversary) -> float:
    return epsilon(plan.terms(sigma), adversary, plan.participations(plan.PAPER_ROUNDS))


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _utility(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    clients = min(evidence.scale.clients)
    claims = []
    for protocol in ("precad", "ldp"):
        few, much = ((method.label, evidence.clean(dataset, method, clients)) for method in evidence.noisy(protocol))
        claims.append(compared(f": a larger noise leads to less accuracy, with {protocol.upper()}", few, much))
    return claims


def _by_clients(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    few, many = min(evidence.scale.clients), max(evidence.scale.clients)

    def at(method: Method, clients: int) -> Named:
        return f"n = {clients}", evidence.clean(dataset, method, clients)

    claims = []
    for method in (Method("plain"), *evidence.noisy("precad")):
        sentence = f": increasing n does not lower the accuracy of {method.label}"
        claims.append(compared(sentence, at(method, many), at(method, few), -POINT))
    for method in evidence.noisy("ldp"):
        sentence = f": increasing n decreases the accuracy of {method.label} significantly"
        claims.append(compared(sentence, at(method, few), at(method, many), 2 * POINT))
    if dataset == "cifar10":
        for method in (Method("plain"), *evidence.noisy("precad")):
            sentence = f": with {few} clients the accuracy of {method.label} is slightly lower"
            claims.append(compared(sentence, at(method, many), at(method, few)))
    return claims


def _times(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    few, many = min(evidence.scale.clients), max(evidence.scale.clients)
    times, later = evidence.times(dataset, few), evidence.times(dataset, many)
    sentences = (
        ": PRECAD's run time is approximately 7 times that of LDP",
        ": the non-private setting has less run time than LDP",
        ": the run time is increased for all approaches with an increased n",
    )
    rules = "a ratio from 5 to 9", "its round is shorter", "every round is longer"
    if times is None or later is None:
        return [Claim(text, "–", rule, Verdict.UNTESTED) for text, rule in zip(sentences, rules, strict=True)]
    plain, ldp, none, proof = times
    ratio = f"{none / ldp:.2f} times without validation, as in the paper's comparison; {proof / ldp:.2f} with it"
    growth = ", ".join(f"{after / before:.2f}" for before, after in zip(times, later, strict=True))
    ours = (
        (ratio, 5 <= none / ldp <= 9),
        (f"{1000 * plain:.0f} ms and {1000 * ldp:.0f} ms", plain < ldp),
        (
            f"n = {many} by n = {few}: {growth} times (non-private, LDP, PRECAD without and with validation)",
            all(before < after for before, after in zip(times, later, strict=True)),
        ),
    )
    return [
        Claim(text, number, rule, Verdict.of(holds))
        for text, (number, holds), rule in zip(sentences, ours, rules, strict=True)
    ]


def _by_attackers(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    few, most = FEW[dataset], max(evidence.scale.attackers[dataset])
    plain, precad, ldp = Method("plain"), evidence.noisy("precad"), evidence.noisy("ldp")

    def backdoor(method: Method, attackers: int = most) -> Named:
        return method.label, evidence.backdoor(dataset, method, attackers)

    merely = f"merely {few} backdoor client{'s' * (few > 1)}"
    claims = [
        pushed(
            f": {merely} can increase the backdoor accuracy of {method.label} from 0 % to more than 80 %",
            evidence.backdoor(dataset, method, few),
            evidence.backdoor(dataset, method, 0),
            0.8,
        )
        for method in (plain, *ldp)
    ]
    for method in (plain, *ldp):
        first, second = ((f"K = {k}", evidence.backdoor(dataset, method, k)) for k in (most, few))
        sentence = f": a larger K increases the backdoor accuracy of {method.label}"
        claims.append(backdoors_compared(sentence, first, second))
    for ours, theirs in zip(precad, ldp, strict=True):
        for other in (plain, theirs):
            sentence = f", K = {most}: {ours.label} is more robust than {other.label}"
            claims.append(backdoors_compared(sentence, backdoor(other), backdoor(ours)))
    sentence = f", K = {most}: noise in PRECAD enhances robustness: more of it lowers the backdoor accuracy"
    claims.append(backdoors_compared(sentence, *map(backdoor, precad)))
    for attackers in (few, most):
        sentence = f", K = {attackers}: noise in LDP reduces robustness: more of it raises the backdoor accuracy"
        weak, strong = (backdoor(method, attackers) for method in ldp)
        claims.append(backdoors_compared(sentence, strong, weak))
    for method, gain, word in ((plain, 0.0, "slightly"), (precad[0], 0.0, "slightly"), (ldp[1], 2 * POINT, "much")):
        first, second = ((f"K = {k}", evidence.main(dataset, method, k)) for k in (most, 0))
        sentence = f": more backdoor clients improve the main accuracy of {method.label} {word}"
        claims.append(compared(sentence, first, second, gain))
    return claims


def _by_bound(evidence: Evidence, dataset: Dataset) -> list[Claim]:
    most = max(evidence.scale.bound_attackers[dataset])
    weak, strong = evidence.noisy("precad")

    def backdoor(method: Method, bound: float) -> Named:
        return f"C = {bound:g}, σ = {method.sigma:g}", evidence.backdoor(dataset, method, most, bound)

    def main(method: Method, bound: float) -> Named:
        return f"C = {bound:g}, σ = {method.sigma:g}", evidence.main(dataset, method, most, bound)

    at = f", K = {most}"
    ends = backdoor(weak, max(evidence.scale.bounds)), backdoor(weak, min(evidence.scale.bounds))
    claims = [backdoors_compared(f"{at}: a smaller C results in higher robustness", *ends)]
    if dataset == "mnist":
        for attackers, limit, text in ((5, POINT, "0 %"), (10, 0.5, "less than 50 %")):
            sentence = f": with C = 20 the backdoor accuracy is {text} against K = {attackers}"
            claims.append(limited(sentence, evidence.backdoor(dataset, weak, attackers, 20.0), limit))
        sentence = f"{at}: C = 20 reduces the main accuracy by only 1 %"
        claims.append(compared(sentence, main(weak, 20.0), main(weak, plan.BOUND), -1.5 * POINT))
    else:
        sentence = f": the backdoor accuracy is below 30 % when K = 3 and C = 20 under {strong.label}"
        claims.append(limited(sentence, evidence.backdoor(dataset, strong, 3, 20.0), 0.3))
        sentence = f"{at}: there the main accuracy does not reduce too much"
        claims.append(compared(sentence, main(strong, 20.0), main(strong, plan.BOUND), -3 * POINT))
    sentence = f"{at}, C = 20: a smaller ε leads to lower backdoor accuracy"
    claims.append(backdoors_compared(sentence, backdoor(weak, 20.0), backdoor(strong, 20.0)))
    sentence = f"{at}, C = 20: a smaller ε has very little impact on the main accuracy"
    return [*claims, compared(sentence, main(strong, 20.0), main(weak, 20.0), -3 * POINT)]


def _of_both_backdoors(evidence: Evidence) -> Claim:
    """Compared where the paper says that either suffices."""
    semantic, pattern = (
        (f"{dataset}, K = {FEW[dataset]}", evidence.backdoor(dataset, Method("plain"), FEW[dataset]))
        for dataset in ("cifar10", "mnist")
    )
    sentence = (
        "the semantic backdoor of cifar10 is stronger than the pixel pattern of mnist: one client does what four do"
    )
    claim = compared(f"non-private: {sentence}", semantic, pattern, -10 * POINT)
    return replace(claim, dataset="cifar10")
