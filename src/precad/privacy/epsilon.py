"""ε: what participations cost, and how many a budget pays for (PROTOCOL §7, §7a).

Every ε that is printed, stored or enforced is :func:`epsilon` of the same terms, and so the same to the last digit;
:func:`total` is the same over several runs.
The accountant is loaded when the first figure is asked for: a client that only counts starts in half the time.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

from precad.privacy.terms import MIN_SIGMA, Adversary, Composition, Spent, Terms

if TYPE_CHECKING:
    from precad.privacy.accounting import Accountant

_SET_ASIDE = 1e-6  # of δ, for the noise sampler; enough up to ε ≈ 9 at d = 26,010 and T = 500
_TOLERANCE = 1e-4
_SIGMAS = (0.2, 1e5)
_MAX_EPSILON = 20


def epsilon(terms: Terms, adversary: Adversary, participations: int) -> float:
    """What taking part so often costs at the terms' δ.

    It is a proven bound, by privacy loss distributions on the grid of ``PldAccountant``, and includes the distance of
    the noise sampler from its law.

    Returns:
        ε; infinite where no ε holds at this δ: without noise, and where the sampler's share exceeds δ (from ε ≈ 20 on).
    """
    return total([Spent(terms, participations)], adversary, terms.delta)


def total(spent: Iterable[Spent], adversary: Adversary, delta: float) -> float:
    """What several runs on the same data cost together, at one δ: of a single run, its :func:`epsilon`.

    The privacy loss distributions of all runs are composed, which costs less than the sum of their ε. The order does
    not matter, to the last digit. It holds for runs one after the other, of which each may depend on what the ones
    before it showed, but for its terms: they must not be chosen by what was seen of the data.

    Args:
        spent: All that the record, or client, took part in, each with the terms of its run. Their δ is not used.
        adversary: Who sees all of the runs.
        delta: The δ of the total.

    Returns:
        ε; infinite where no ε holds at this δ.
    """
    return _total(tuple(sorted((each for each in spent if each.participations), key=repr)), adversary, delta)


@cache
def _total(spent: tuple[Spent, ...], adversary: Adversary, delta: float) -> float:
    from precad.privacy.accounting import PldAccountant

    return bound(PldAccountant(), spent, adversary, delta)


def bound(accountant: "Accountant", spent: Iterable[Spent], adversary: Adversary, delta: float) -> float:
    """The same by another rigorous accountant, for comparison."""
    from precad.privacy.groups import group_epsilon

    runs = [each for each in spent if each.participations]
    if not runs or any(run.terms.sigma_seen(adversary) < MIN_SIGMA for run in runs):
        return math.inf if runs else 0.0
    sizes = {run.terms.group for run in runs}
    if len(sizes) > 1:
        raise ValueError(f"a total is of groups of one size, got {', '.join(map(str, sorted(sizes)))}")
    seen = [run.terms.mechanism(adversary, run.participations) for run in runs]
    mechanism, size = Composition.of(seen), sizes.pop()
    left = delta * (1 - _SET_ASIDE)
    for _ in range(100):
        if left <= 0:
            return math.inf
        found = group_epsilon(accountant, mechanism, size, left)
        shares = (run.terms.sampler_delta(adversary, each.steps, found) for run, each in zip(runs, seen, strict=True))
        taken = math.fsum(shares)
        if left + taken <= delta:
            return found
        left = delta - 1.01 * taken  # a little more than was taken: what is left decides what will be
    return math.inf


def most_participations(terms: Terms, budget: float, limit: int) -> int:
    """How many participations a budget pays for against a server: at most ``limit``, and 0 if not even one."""
    return most(lambda count: epsilon(terms, Adversary.SERVER, count) <= budget, limit)


def most(keeps: Callable[[int], bool], limit: int, within: float = 1.0) -> int:
    """The largest number up to ``limit`` that ``keeps`` a promise, or one near it; 0 if none does.

    Args:
        keeps: Whether a number does; if it does, so do all smaller ones. Small ones are asked first: they cost least.
        limit: The largest number that is of interest.
        within: The largest number that keeps the promise, over the one that is returned, is at most this.
    """
    low, high = 0, 1
    while high <= limit and keeps(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1 and high > low * within:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def least_sigma(cost: Callable[[float], float], wanted: float) -> float:
    """The least σ ≥ 0.2, to four digits, at which ``cost``, an ε that falls as σ grows, is at most ``wanted``.

    Raises:
        ValueError: ``wanted`` is out of range, or no σ keeps it.
    """
    check_target(wanted)
    low, high = _SIGMAS
    if (at_most := cost(high)) > wanted:
        raise ValueError(
            f"no sigma up to {high:g} keeps epsilon at {wanted:g}: it would be {at_most:.2g}; "
            "allow a larger epsilon, or fewer rounds"
        )
    if cost(low) <= wanted:
        return low
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= wanted else (middle, high)
    return high


def check_target(wanted: float) -> None:
    """Refuse an ε that nobody can aim at."""
    if not 0 < wanted <= _MAX_EPSILON:
        raise ValueError(f"epsilon must be in (0, {_MAX_EPSILON}], got {wanted}")
