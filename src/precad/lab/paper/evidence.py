"""What the rows say to a sentence of the paper, and the rules by which it holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from precad.lab.paper import plan
from precad.lab.paper.plan import Dataset, Experiment, Method, Scale
from precad.lab.paper.rows import Row, spread

Values = Mapping[int, float]
"""By seed: those that were run."""
Named = tuple[str, Values]

POINT = 0.01
FLOOR, CEILING = 5 * POINT, 95 * POINT
"""Two backdoors below the one, or above the other, have no order."""
ABSENT = 10 * POINT
"""A backdoor accuracy that a model without attackers may have: more, and it takes everything for their label."""
LEARNT = 30 * POINT
"""Three times chance. A model with less main accuracy takes most images for one or two labels, its backdoor too."""


class Verdict(Enum):
    """What we found of a sentence of the paper."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNTESTED = "not tested"

    @classmethod
    def of(cls, holds: bool | None) -> "Verdict":
        """The verdict on a sentence that holds, or does not; None if the numbers do not tell."""
        return {True: cls.HOLDS, False: cls.FAILS, None: cls.UNTESTED}[holds]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the rule by which it holds, and what we measured."""

    sentence: str
    rule: str
    ours: str = "–"
    verdict: Verdict = Verdict.UNTESTED
    dataset: Dataset | None = None
    """Of the runs that it was judged by; None if it needs none."""


@dataclass(frozen=True)
class Evidence:
    """The rows of one data set, by what they answer."""

    scale: Scale
    dataset: Dataset
    get: Callable[[Experiment], Row | None]

    def clean(self, method: Method, clients: int) -> Values:
        """The accuracy of the runs without attackers."""
        rows = self._by_seed(lambda seed: plan.clean(self.scale, self.dataset, method, clients, seed))
        return {seed: row.final_accuracy for seed, row in rows.items()}

    def main(self, method: Method, attackers: int, bound: float = plan.BOUND) -> Values:
        """The main accuracy under the backdoor attack."""
        return {seed: row.final_accuracy for seed, row in self._attacked(method, attackers, bound).items()}

    def backdoor(self, method: Method, attackers: int, bound: float = plan.BOUND) -> Values:
        """The backdoor accuracy of the models that have learnt."""
        rows = self._attacked(method, attackers, bound)
        return {seed: row.final_backdoor for seed, row in rows.items() if row.final_accuracy >= LEARNT}

    def times(self, clients: int) -> list[float] | None:
        """The seconds of a round: plain, LDP, PRECAD without and with validation."""
        rows = [self.get(run) for run in plan.time_runs(self.scale, self.dataset, clients)]
        found = [row.round_seconds for row in rows if row is not None]
        return found if len(found) == len(rows) else None

    def noisy(self, protocol: Literal["ldp", "precad"]) -> list[Method]:
        """A protocol with the least and with the most noise."""
        return [Method(protocol, sigma) for sigma in (min(self.scale.sigmas), max(self.scale.sigmas))]

    def _attacked(self, method: Method, attackers: int, bound: float) -> dict[int, Row]:
        return self._by_seed(lambda seed: plan.attacked(self.scale, self.dataset, method, attackers, seed, bound))

    def _by_seed(self, run: Callable[[int], Experiment]) -> dict[int, Row]:
        rows = {seed: self.get(run(seed)) for seed in self.scale.seeds}
        return {seed: row for seed, row in rows.items() if row is not None}


def compared(sentence: str, first: Named, second: Named, margin: float = 0.0) -> Claim:
    """Over the seeds of both: the first is at least the second plus a margin; without a margin, it is above."""
    points = f"at least the second {'+' if margin > 0 else '−'} {abs(100 * margin):g} points"
    rule = f"the first is {points if margin else 'above the second'}"
    return _judged(sentence, rule, first, second, lambda a, b: a - b >= margin if margin else a > b)


def backdoors_compared(sentence: str, first: Named, second: Named) -> Claim:
    """The first backdoor is above the second, if both are not absent or both complete."""
    limits = f"below {100 * FLOOR:g} % or above {100 * CEILING:g} %"
    rule = f"the first is above the second; not tested if both are {limits}"
    return _judged(
        sentence, rule, first, second, lambda a, b: None if max(a, b) < FLOOR or min(a, b) > CEILING else a > b
    )


def limited(sentence: str, values: Values, limit: float) -> Claim:
    """The mean is below a limit."""
    value, rule = spread([*values.values()]), f"< {100 * limit:g} %"
    if value is None:
        return Claim(sentence, rule)
    return Claim(sentence, rule, value.percent(), Verdict.of(value.mean < limit))


def pushed(sentence: str, attacked: Values, control: Values, limit: float) -> Claim:
    """The attackers bring the mean over a limit, where it is absent without them."""
    rule = f"> {100 * limit:g} %; not tested unless it is below {100 * ABSENT:g} % without attackers"
    value, without = spread([*attacked.values()]), spread([*control.values()])
    if value is None:
        return Claim(sentence, rule)
    ours = f"{value.percent()}; without attackers: {'–' if without is None else without.percent()}"
    tells = value.mean <= limit or (without is not None and without.mean < ABSENT)
    return Claim(sentence, rule, ours, Verdict.of(value.mean > limit if tells else None))


def _judged(
    sentence: str, rule: str, first: Named, second: Named, holds: Callable[[float, float], bool | None]
) -> Claim:
    """By the means over the seeds that both have."""
    seeds = sorted(first[1].keys() & second[1].keys())
    one, other = (spread([values[seed] for seed in seeds]) for _, values in (first, second))
    if one is None or other is None:
        return Claim(sentence, rule)
    ours = f"{first[0]}: {one.percent()}; {second[0]}: {other.percent()}"
    return Claim(sentence, rule, ours, Verdict.of(holds(one.mean, other.mean)))
