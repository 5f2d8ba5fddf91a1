"""What the rows say to a sentence of the paper, and the rules by which it holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from precad.lab.paper import plan
from precad.lab.paper.plan import Dataset, Experiment, Method, Scale
from precad.lab.paper.rows import Row, Spread, spread

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
    def of(cls, holds: bool) -> "Verdict":
        """Of a sentence that was tested."""
        return cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what we measured."""

    sentence: str
    ours: str
    rule: str
    verdict: Verdict
    dataset: Dataset | None = None
    """Of the runs that it was judged by; None if it needs none."""


@dataclass(frozen=True)
class Evidence:
    """The rows, by what they answer."""

    scale: Scale
    get: Callable[[Experiment], Row | None]

    def clean(self, dataset: Dataset, method: Method, clients: int) -> Values:
        """Accuracy without attackers."""
        return self._by_seed(lambda seed: plan.clean(self.scale, dataset, method, clients, seed), _accuracy)

    def main(self, dataset: Dataset, method: Method, attackers: int, bound: float = plan.BOUND) -> Values:
        """Main accuracy under the backdoor attack."""
        return self._attacked(dataset, method, attackers, bound, _accuracy)

    def backdoor(self, dataset: Dataset, method: Method, attackers: int, bound: float = plan.BOUND) -> Values:
        """Backdoor accuracy, of the models that have learnt."""
        main = self.main(dataset, method, attackers, bound)
        found = self._attacked(dataset, method, attackers, bound, lambda row: row.final_backdoor)
        return {seed: value for seed, value in found.items() if main[seed] >= LEARNT}

    def times(self, dataset: Dataset, clients: int) -> list[float] | None:
        """Of a round: plain, LDP, PRECAD without and with validation."""
        rows = [self.get(run) for run in plan.time_runs(self.scale, dataset, clients)]
        found = [row.round_seconds for row in rows if row is not None]
        return found if len(found) == len(rows) else None

    def noisy(self, protocol: Literal["ldp", "precad"]) -> list[Method]:
        """A protocol with the least and with the most noise."""
        return [Method(protocol, sigma) for sigma in (min(self.scale.sigmas), max(self.scale.sigmas))]

    def _attacked(
        self, dataset: Dataset, method: Method, attackers: int, bound: float, value: Callable[[Row], float]
    ) -> Values:
        return self._by_seed(lambda seed: plan.attacked(self.scale, dataset, method, attackers, seed, bound), value)

    def _by_seed(self, run: Callable[[int], Experiment], value: Callable[[Row], float]) -> Values:
        rows = {seed: self.get(run(seed)) for seed in self.scale.seeds}
        return {seed: value(row) for seed, row in rows.items() if row is not None}


def compared(sentence: str, first: Named, second: Named, margin: float = 0.0) -> Claim:
    """Over the seeds of both: the first is at least the second plus a margin; without a margin, it is above."""
    points = f"at least the second {'+' if margin > 0 else '−'} {abs(100 * margin):g} points"
    rule = f"the first is {points if margin else 'above the second'}"
    means = _of_common_seeds(first, second)
    if means is None:
        return Claim(sentence, "–", rule, Verdict.UNTESTED)
    lead = means[0].mean - means[1].mean
    return Claim(sentence, _both(first, second, means), rule, Verdict.of(lead >= margin if margin else lead > 0))


def backdoors_compared(sentence: str, first: Named, second: Named) -> Claim:
    """The first backdoor is above the second, if both are not absent or both complete."""
    limits = f"below {100 * FLOOR:g} % or above {100 * CEILING:g} %"
    rule = f"the first is above the second; not tested if both are {limits}"
    means = _of_common_seeds(first, second)
    if means is None:
        return Claim(sentence, "–", rule, Verdict.UNTESTED)
    low, high = sorted(value.mean for value in means)
    tells = not (high < FLOOR or low > CEILING)
    verdict = Verdict.of(means[0].mean > means[1].mean) if tells else Verdict.UNTESTED
    return Claim(sentence, _both(first, second, means), rule, verdict)


def limited(sentence: str, values: Values, limit: float) -> Claim:
    """The mean is below a limit."""
    value, rule = spread([*values.values()]), f"< {100 * limit:g} %"
    if value is None:
        return Claim(sentence, "–", rule, Verdict.UNTESTED)
    return Claim(sentence, value.percent(), rule, Verdict.of(value.mean < limit))


def pushed(sentence: str, attacked: Values, control: Values, limit: float) -> Claim:
    """The attackers bring the mean over a limit, where it is absent without them."""
    absent = f"{100 * ABSENT:g} %"
    rule = f"> {100 * limit:g} %; not tested unless it is below {absent} without attackers"
    value, without = spread([*attacked.values()]), spread([*control.values()])
    if value is None:
        return Claim(sentence, "–", rule, Verdict.UNTESTED)
    ours = f"{value.percent()}; without attackers: {'–' if without is None else without.percent()}"
    if value.mean <= limit:
        return Claim(sentence, ours, rule, Verdict.FAILS)
    return Claim(sentence, ours, rule, Verdict.HOLDS if without and without.mean < ABSENT else Verdict.UNTESTED)


def _of_common_seeds(first: Named, second: Named) -> tuple[Spread, Spread] | None:
    seeds = sorted(first[1].keys() & second[1].keys())
    one, other = (spread([values[seed] for seed in seeds]) for _, values in (first, second))
    return None if one is None or other is None else (one, other)


def _both(first: Named, second: Named, means: tuple[Spread, Spread]) -> str:
    return f"{first[0]}: {means[0].percent()}; {second[0]}: {means[1].percent()}"


def _accuracy(row: Row) -> float:
    return row.final_accuracy
