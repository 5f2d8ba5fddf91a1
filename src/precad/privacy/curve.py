"""ε by epoch, for several σ and both adversaries: the paper's Figure 2, left, by the rigorous accountant.

Beside each line stands GDP, the paper's accountant, of the same mechanism. The paper's own line against clients is not
drawn: it is not valid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from precad.privacy.accounting import GdpAccountant, gdp_epsilon
from precad.privacy.plan import Plan
from precad.privacy.terms import Adversary

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
    """One σ and one adversary."""

    sigma: float
    adversary: Adversary
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Curve:
    """All lines, servers first for each σ."""

    delta: float
    rounds_per_epoch: float
    """1/(p·q): after so many rounds each record was used once, on average."""
    lines: tuple[CurveLine, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines: every point; ``null`` where there is no ε."""
        return {
            "delta": self.delta,
            "rounds_per_epoch": self.rounds_per_epoch,
            "curves": [
                {
                    "sigma": line.sigma,
                    "adversary": line.adversary.value,
                    "points": [
                        {"epoch": p.epoch, "rounds": p.rounds, "pld": _finite(p.pld), "gdp": p.gdp} for p in line.points
                    ],
                }
                for line in self.lines
            ],
        }

    def as_text(self) -> str:
        """For a terminal: the bounds as characters, ε upwards, epochs to the right."""
        top = max((p.pld for line in self.lines for p in line.points if math.isfinite(p.pld)), default=1.0) or 1.0
        last = max(p.epoch for line in self.lines for p in line.points)
        canvas = [[" "] * _WIDTH for _ in range(_HEIGHT)]
        sigmas = list(dict.fromkeys(line.sigma for line in self.lines))
        for line in self.lines:
            for p in line.points:
                if math.isfinite(p.pld):
                    row = _HEIGHT - 1 - round(p.pld / top * (_HEIGHT - 1))
                    canvas[row][round(p.epoch / last * (_WIDTH - 1))] = _mark(line, sigmas)
        rows = [f"{top * (_HEIGHT - 1 - i) / (_HEIGHT - 1):7.2f} ┤{''.join(row)}" for i, row in enumerate(canvas)]
        axis = [f"        └{'─' * _WIDTH}", f"         0{f'{last:g} epochs':>{_WIDTH - 1}}"]
        key = [
            f"  {_mark(line, sigmas)} σ = {line.sigma:g}, {line.adversary.value}: {_shown(line.points[-1])}"
            for line in self.lines
        ]
        title = f"ε at δ = {self.delta:g} by epoch ({self.rounds_per_epoch:g} rounds), PLD; at the end:"
        return "\n".join([title, *key, "", *rows, *axis])


def privacy_curve(plan: Plan, sigmas: Sequence[float]) -> Curve:
    """:data:`POINTS` points at most, evenly spaced up to T: one an epoch, if that many suffice."""
    epoch = round(1 / (plan.client_rate * plan.record_rate), 9)
    count, epochs = POINTS // (2 * len(sigmas)), round(plan.rounds / epoch)
    if count // 2 <= epochs < count:
        count = epochs
    stops = sorted({max(1, round(plan.rounds * i / count)) for i in range(1, count + 1)})
    return Curve(
        plan.delta,
        epoch,
        tuple(
            CurveLine(sigma, adversary, tuple(_point(plan, sigma, adversary, stop, epoch) for stop in stops))
            for sigma in sigmas
            for adversary in Adversary
        ),
    )


def _point(plan: Plan, sigma: float, adversary: Adversary, rounds: int, epoch: float) -> Point:
    """A client that takes part T_i times in T rounds has done so ⌈T_i·t/T⌉ times after t of them."""
    so_far = replace(plan, rounds=rounds, participations=-(-plan.cap * rounds // plan.rounds))
    mechanism = so_far.terms(sigma).mechanism(adversary, so_far.cap)
    gdp = gdp_epsilon(plan.group * GdpAccountant().mu(mechanism), plan.delta)
    return Point(rounds / epoch, rounds, so_far.epsilon(adversary, sigma), gdp)


def _mark(line: CurveLine, sigmas: list[float]) -> str:
    marks = _MARKS[line.adversary]
    return marks[sigmas.index(line.sigma) % len(marks)]


def _shown(point: Point) -> str:
    bound = f"{point.pld:.3f}" if math.isfinite(point.pld) else "none"
    return f"{bound} (as in the paper: {point.gdp:.3f})"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
