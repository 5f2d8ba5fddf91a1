"""ε by epoch, for several σ and both adversaries: the paper's Figure 2, left, by the rigorous accountant.

Beside each line stands GDP, the paper's accountant, of the same mechanism. The paper's own line against clients is not
drawn: it is not valid.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from precad.privacy.plan import Plan
from precad.privacy.terms import Adversary
from precad.tables import finite

POINTS = 200
"""In all lines together."""
PAPER_SIGMAS = (1.0, 1.5, 2.0)

_WIDTH, _HEIGHT = 64, 20
_MARKS = {Adversary.SERVER: "●▲■◆", Adversary.CLIENTS: "○△□◇"}


@dataclass(frozen=True)
class Point:
    """After ``rounds`` rounds."""

    epoch: float
    rounds: int
    pld: float
    """The bound; infinite where there is none."""
    gdp: float
    """As in the paper: asymptotic and too small."""


@dataclass(frozen=True)
class CurveLine:
    """One σ and one adversary; ε after ever more rounds."""

    sigma: float
    adversary: Adversary
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Curve:
    """All lines, servers first for each σ."""

    delta: float
    rounds_per_epoch: float
    """1/(p·q): the number of rounds in which each record is used once, on average."""
    lines: tuple[CurveLine, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines: every point; ``null`` where there is no ε."""
        curves = [
            {
                "sigma": line.sigma,
                "adversary": line.adversary.value,
                "points": [asdict(point) | {"pld": finite(point.pld)} for point in line.points],
            }
            for line in self.lines
        ]
        return {"delta": self.delta, "rounds_per_epoch": self.rounds_per_epoch, "curves": curves}

    def as_text(self) -> str:
        """For a terminal: the bounds as characters, ε upwards, epochs to the right."""
        found = [p.pld for line in self.lines for p in line.points if math.isfinite(p.pld)]
        top, last = max(found, default=1.0) or 1.0, self.lines[0].points[-1].epoch
        canvas = [[" "] * _WIDTH for _ in range(_HEIGHT)]
        key = []
        for number, line in enumerate(self.lines):
            mark = _MARKS[line.adversary][number // 2 % 4]
            end = line.points[-1]
            bound = f"{end.pld:.3f}" if math.isfinite(end.pld) else "none"
            key.append(f"  {mark} σ = {line.sigma:g}, {line.adversary.value}: {bound} (as in the paper: {end.gdp:.3f})")
            for p in line.points:
                if math.isfinite(p.pld):
                    row = _HEIGHT - 1 - round(p.pld / top * (_HEIGHT - 1))
                    canvas[row][round(p.epoch / last * (_WIDTH - 1))] = mark
        rows = [f"{top * (_HEIGHT - 1 - i) / (_HEIGHT - 1):7.2f} ┤{''.join(row)}" for i, row in enumerate(canvas)]
        axis = [f"        └{'─' * _WIDTH}", f"         0{f'{last:g} epochs':>{_WIDTH - 1}}"]
        title = f"ε at δ = {self.delta:g} by epoch ({self.rounds_per_epoch:g} rounds), PLD; at the end:"
        return "\n".join([title, *key, "", *rows, *axis])


def privacy_curve(plan: Plan, sigmas: Sequence[float]) -> Curve:
    """:data:`POINTS` points at most, evenly spaced up to T: one an epoch, if that many suffice."""
    epoch = round(1 / (plan.client_rate * plan.record_rate), 9)
    count, epochs = POINTS // (2 * len(sigmas)), round(plan.rounds / epoch)
    if count // 2 <= epochs < count:
        count = epochs
    stops = sorted({max(1, round(plan.rounds * i / count)) for i in range(1, count + 1)})
    lines = [
        CurveLine(sigma, adversary, tuple(_point(plan, sigma, adversary, stop, epoch) for stop in stops))
        for sigma in sigmas
        for adversary in Adversary
    ]
    return Curve(plan.delta, epoch, tuple(lines))


def _point(plan: Plan, sigma: float, adversary: Adversary, rounds: int, epoch: float) -> Point:
    """A client that takes part T_i times in T rounds has done so ⌈T_i·t/T⌉ times after t of them."""
    so_far = replace(plan, rounds=rounds, participations=-(-plan.cap * rounds // plan.rounds))
    return Point(rounds / epoch, rounds, so_far.epsilon(adversary, sigma), so_far.gdp(adversary, sigma))
