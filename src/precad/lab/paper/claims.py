"""What becomes of each sentence of the paper that has a number in it, or that a number can refute.

A sentence is judged by a rule that is written beside our number, from the means over the seeds that were run; without
any, it is not tested.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

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
from precad.lab.paper.plan import DATASETS, Dataset, Experiment, Method, Scale
from precad.lab.paper.rows import Row, RowFile, write_table
from precad.lab.paper.table1 import Measured
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary

PAPER_EPSILON = {1.0: 6.8, 1.5: 3.5, 2.0: 2.4}
FEW: Mapping[Dataset, int] = {"mnist": 4, "cifar10": 1}
"""Attackers that suffice, the paper says."""
PLAIN = Method("plain")


def experiments(scale: Scale) -> list[Experiment]:
    """The runs that the claims ask for, on the scale's data sets: those on backdoors first, and seed by seed."""
    asked = list[Experiment]()
    list(_of_runs(scale, asked.append))
    wanted = (run for run in asked if run.config.task.dataset in scale.datasets)
    return sorted(wanted, key=lambda run: (not run.config.malicious.clients, run.config.seed or 0))


def judge(scale: Scale, rows: RowFile, table: list[Measured]) -> list[Claim]:
    """All claims, in the order of the paper, on all data sets."""
    return [*map(_of_table, table), _epsilon_claim(), _adversaries_claim(), *_of_runs(scale, rows.get)]


def write(scale: Scale, claims: list[Claim], rows: RowFile, machine: str, path: Path) -> None:
    """Write the claims as a table in Markdown, and how it was made."""
    made = [_made(replace(scale, datasets=(dataset,)), dataset, rows) for dataset in DATASETS]
    text = [
        "# The paper's claims",
        "",
        *(["QUICK RUN, not the paper's length.", ""] if scale.quick else []),
        *(f"- {line}" for line in (*made, machine)),
        "",
        "Numbers are means over seeds with the standard deviation of one seed. The backdoor accuracy of a model whose "
        f"main accuracy is below {100 * LEARNT:g} % does not count: the model has not learnt. A claim without runs "
        "that count is not tested.",
    ]
    cells = [(claim.sentence, claim.ours, claim.rule, f"**{_verdict(scale, claim)}**") for claim in claims]
    write_table(path, text, ("the paper says", "we find", "it holds if", ""), cells)


def _made(scale: Scale, dataset: Dataset, rows: RowFile) -> str:
    every = plan.unique(experiments(scale))
    made = rows.found(every)
    hours = sum(row.seconds for row in made) / 3600
    return f"{dataset}: {len(made)} of {len(every)} runs of {scale.rounds[dataset]} rounds made, {hours:.1f} core hours"


def _verdict(scale: Scale, claim: Claim) -> str:
    if claim.dataset is None or claim.verdict is Verdict.UNTESTED or scale.rounds[claim.dataset] == plan.PAPER_ROUNDS:
        return claim.verdict.value
    return f"{claim.verdict.value} ({'quick' if scale.quick else f'{scale.rounds[claim.dataset]} rounds'})"


def _of_runs(scale: Scale, get: Callable[[Experiment], Row | None]) -> Iterator[Claim]:
    evidence = {dataset: Evidence(scale, dataset, get) for dataset in DATASETS}
    for part in (_utility, _by_clients, _times, _by_attackers, _by_bound):
        for dataset in DATASETS:
            for claim in part(evidence[dataset]):
                yield replace(claim, sentence=f"{dataset}{claim.sentence}", dataset=dataset)
    semantic, pattern = (
        (f"{dataset}, K = {FEW[dataset]}", evidence[dataset].backdoor(PLAIN, FEW[dataset]))
        for dataset in ("cifar10", "mnist")
    )
    sentence = "the semantic backdoor of cifar10 is stronger than the pixel pattern of mnist"
    claim = compared(f"non-private: {sentence}: one client does what four do", semantic, pattern, -10 * POINT)
    yield replace(claim, dataset="cifar10")


def _of_table(row: Measured) -> Claim:
    return Claim(
        f"Table 1: the noise in the aggregate of {row.name} has standard deviation {row.formula}",
        "within five standard errors",
        f"{row.std:.4f}, for {row.expected:.4f}",
        Verdict.of(row.holds),
    )


def _epsilon_claim() -> Claim:
    by_paper = [plan.paper_epsilon(Adversary.SERVER, sigma, plan.PAPER_ROUNDS) for sigma in PAPER_EPSILON]
    close = all(0 <= ours - paper < 0.1 for ours, paper in zip(by_paper, PAPER_EPSILON.values(), strict=True))
    return Claim(
        "ε = 6.8, 3.5, 2.4 correspond to σ = 1, 1.5, 2 (T = 5000)",
        "the paper's accountant gives it, cut to one digit",
        f"by the paper's accountant {_listed(by_paper)}; "
        "rigorously, for a client in q·T rounds, "
        f"{_listed(_rigorous(sigma, Adversary.SERVER) for sigma in PAPER_EPSILON)}",
        Verdict.of(close),
    )


def _adversaries_claim() -> Claim:
    """By the paper's accountant after every epoch, and rigorously at the end."""
    always = all(
        plan.paper_epsilon(Adversary.SERVER, sigma, rounds) > plan.paper_epsilon(Adversary.CLIENTS, sigma, rounds)
        for sigma in PAPER_EPSILON
        for rounds in range(plan.EPOCH, plan.PAPER_ROUNDS + 1, plan.EPOCH)
    )
    ends = [[_rigorous(sigma, adversary) for adversary in Adversary] for sigma in PAPER_EPSILON]
    return Claim(
        "ε is always larger against a server than against clients only",
        "after every epoch by the paper's accountant, and at the end rigorously",
        "rigorously, T = 5000 and q·T rounds of a client: "
        f"{'; '.join(f'{server:.2f} and {clients:.2f}' for server, clients in ends)}",
        Verdict.of(always and all(server > clients for server, clients in ends)),
    )


def _rigorous(sigma: float, adversary: Adversary) -> float:
    return epsilon(plan.terms(sigma), adversary, plan.participations(plan.PAPER_ROUNDS))


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _utility(evidence: Evidence) -> Iterator[Claim]:
    clients = min(evidence.scale.clients)
    for protocol in ("precad", "ldp"):
        few, much = ((method.label, evidence.clean(method, clients)) for method in evidence.noisy(protocol))
        yield compared(f": a larger noise leads to less accuracy, with {protocol.upper()}", few, much)


def _by_clients(evidence: Evidence) -> Iterator[Claim]:
    few, many = min(evidence.scale.clients), max(evidence.scale.clients)
    steady = (PLAIN, *evidence.noisy("precad"))

    def at(method: Method, clients: int) -> Named:
        return f"n = {clients}", evidence.clean(method, clients)

    for method in steady:
        sentence = f": increasing n does not lower the accuracy of {method.label}"
        yield compared(sentence, at(method, many), at(method, few), -POINT)
    for method in evidence.noisy("ldp"):
        sentence = f": increasing n decreases the accuracy of {method.label} significantly"
        yield compared(sentence, at(method, few), at(method, many), 2 * POINT)
    for method in steady if evidence.dataset == "cifar10" else ():
        sentence = f": with {few} clients the accuracy of {method.label} is slightly lower"
        yield compared(sentence, at(method, many), at(method, few))


def _times(evidence: Evidence) -> Iterable[Claim]:
    few, many = min(evidence.scale.clients), max(evidence.scale.clients)
    times, later = evidence.times(few), evidence.times(many)
    claims = (
        Claim(": PRECAD's run time is approximately 7 times that of LDP", "a ratio from 5 to 9"),
        Claim(": the non-private setting has less run time than LDP", "its round is shorter"),
        Claim(": the run time is increased for all approaches with an increased n", "every round is longer"),
    )
    if times is None or later is None:
        return claims
    plain, ldp, none, proof = times
    growth = [after / before for before, after in zip(times, later, strict=True)]
    ratio = f"{none / ldp:.2f} times without validation, as in the paper's comparison; {proof / ldp:.2f} with it"
    by_method = f"{_listed(growth)} times (non-private, LDP, PRECAD without and with validation)"
    found = (
        (ratio, 5 <= none / ldp <= 9),
        (f"{1000 * plain:.0f} ms and {1000 * ldp:.0f} ms", plain < ldp),
        (f"n = {many} by n = {few}: {by_method}", min(growth) > 1),
    )
    judged = zip(claims, found, strict=True)
    return [replace(claim, ours=ours, verdict=Verdict.of(holds)) for claim, (ours, holds) in judged]


def _by_attackers(evidence: Evidence) -> Iterator[Claim]:
    few, most = FEW[evidence.dataset], max(evidence.scale.attackers[evidence.dataset])
    precad, ldp = evidence.noisy("precad"), evidence.noisy("ldp")

    def backdoor(method: Method, attackers: int = most) -> Named:
        return method.label, evidence.backdoor(method, attackers)

    merely = f"merely {few} backdoor client{'s' * (few > 1)}"
    for method in (PLAIN, *ldp):
        sentence = f": {merely} can increase the backdoor accuracy of {method.label} from 0 % to more than 80 %"
        yield pushed(sentence, evidence.backdoor(method, few), evidence.backdoor(method, 0), 0.8)
    for method in (PLAIN, *ldp):
        first, second = ((f"K = {k}", evidence.backdoor(method, k)) for k in (most, few))
        yield backdoors_compared(f": a larger K increases the backdoor accuracy of {method.label}", first, second)
    for ours, theirs in zip(precad, ldp, strict=True):
        for other in (PLAIN, theirs):
            sentence = f", K = {most}: {ours.label} is more robust than {other.label}"
            yield backdoors_compared(sentence, backdoor(other), backdoor(ours))
    sentence = f", K = {most}: noise in PRECAD enhances robustness: more of it lowers the backdoor accuracy"
    yield backdoors_compared(sentence, *map(backdoor, precad))
    for attackers in (few, most):
        sentence = f", K = {attackers}: noise in LDP reduces robustness: more of it raises the backdoor accuracy"
        weak, strong = (backdoor(method, attackers) for method in ldp)
        yield backdoors_compared(sentence, strong, weak)
    for method, gain, word in ((PLAIN, 0.0, "slightly"), (precad[0], 0.0, "slightly"), (ldp[1], 2 * POINT, "much")):
        first, second = ((f"K = {k}", evidence.main(method, k)) for k in (most, 0))
        sentence = f": more backdoor clients improve the main accuracy of {method.label} {word}"
        yield compared(sentence, first, second, gain)


def _by_bound(evidence: Evidence) -> Iterator[Claim]:
    most = max(evidence.scale.bound_attackers[evidence.dataset])
    weak, strong = evidence.noisy("precad")

    def backdoor(method: Method, bound: float) -> Named:
        return f"C = {bound:g}, σ = {method.sigma:g}", evidence.backdoor(method, most, bound)

    def main(method: Method, bound: float) -> Named:
        return f"C = {bound:g}, σ = {method.sigma:g}", evidence.main(method, most, bound)

    at = f", K = {most}"
    ends = backdoor(weak, max(evidence.scale.bounds)), backdoor(weak, min(evidence.scale.bounds))
    yield backdoors_compared(f"{at}: a smaller C results in higher robustness", *ends)
    if evidence.dataset == "mnist":
        for attackers, limit, text in ((5, POINT, "0 %"), (10, 0.5, "less than 50 %")):
            sentence = f": with C = 20 the backdoor accuracy is {text} against K = {attackers}"
            yield limited(sentence, evidence.backdoor(weak, attackers, 20.0), limit)
        sentence = f"{at}: C = 20 reduces the main accuracy by only 1 %"
        yield compared(sentence, main(weak, 20.0), main(weak, plan.BOUND), -1.5 * POINT)
    else:
        sentence = f": the backdoor accuracy is below 30 % when K = 3 and C = 20 under {strong.label}"
        yield limited(sentence, evidence.backdoor(strong, 3, 20.0), 0.3)
        sentence = f"{at}: there the main accuracy does not reduce too much"
        yield compared(sentence, main(strong, 20.0), main(strong, plan.BOUND), -3 * POINT)
    sentence = f"{at}, C = 20: a smaller ε leads to lower backdoor accuracy"
    yield backdoors_compared(sentence, backdoor(weak, 20.0), backdoor(strong, 20.0))
    sentence = f"{at}, C = 20: a smaller ε has very little impact on the main accuracy"
    yield compared(sentence, main(strong, 20.0), main(weak, 20.0), -3 * POINT)
