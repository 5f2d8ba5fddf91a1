"""A number over seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The mean over some seeds, and how far they scatter."""

    mean: float
    std: float
    """The standard deviation of one seed; 0 if there is but one."""
    lowest: float
    highest: float
    count: int

    def percent(self) -> str:
        """For tables, as percentage points."""
        if self.count == 1:
            return f"{100 * self.mean:.1f} % (1 seed)"
        return f"{100 * self.mean:.1f} ± {100 * self.std:.1f} % ({self.count} seeds)"


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing."""
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), std, min(values), max(values), len(values))
