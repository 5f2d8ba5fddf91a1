"""Which σ, T, q, p, ε or δ, given the other five: by bisection on the rigorous accountant.

The answer is always on the safe side: with it, the rigorous accountant finds at most the ε asked for. The sampler's
term in δ is not in :func:`solve`; the functions that take an ``epsilon`` count what it counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from precad.privacy.accounting import Adversary, Mechanism, PldAccountant, expected_cap, record_mechanism

_ACCOUNTANT = PldAccountant(interval=1e-3)
_TOLERANCE = 1e-4
_SIGMAS = (0.2, 1e5)
_MAX_ROUNDS = 10_000_000
_MAX_EPSILON = 20


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A run, as its planner sees it; exactly one number is None: the one to find.

    A client takes part in at most ⌈q·T⌉ rounds: that cap, and not the expectation, is what the figures hold for.
    """

    adversary: Adversary
    epsilon: float | None = None
    delta: float | None = 1e-5
    sigma: float | None = None
    rounds: int | None = None
    client_rate: float | None = None
    record_rate: float | None = None

    def __post_init__(self) -> None:
        missing = [name for name in UNKNOWNS if getattr(self, name) is None]
        if len(missing) != 1:
            raise ValueError(f"give all but one of {', '.join(UNKNOWNS)}; missing: {', '.join(missing) or 'none'}")

    @property
    def unknown(self) -> str:
        """The name of the number to find."""
        return next(name for name in UNKNOWNS if getattr(self, name) is None)


UNKNOWNS = ("epsilon", "delta", "sigma", "rounds", "client_rate", "record_rate")


def solve(setting: Setting) -> float:
    """The missing number: the least σ or δ or ε, the largest T, q or p, that keeps the promise."""
    if setting.unknown == "epsilon":
        return _epsilon(setting)
    if setting.unknown == "delta":
        _check_epsilon(_given(setting.epsilon))
        return _ACCOUNTANT.delta(_mechanism(setting), _given(setting.epsilon))
    wanted = _given(setting.epsilon)
    if setting.unknown == "sigma":
        return least_sigma(lambda sigma: _epsilon(replace(setting, sigma=sigma, epsilon=None)), wanted)
    if setting.unknown == "rounds":
        return most_rounds(lambda rounds: _epsilon(replace(setting, rounds=rounds, epsilon=None)), wanted)
    _check_epsilon(wanted)

    def keeps(value: float) -> bool:
        filled = replace(setting, **{setting.unknown: value, "epsilon": None})  # type: ignore[arg-type]
        return _epsilon(filled) <= wanted

    return _largest(keeps, setting)


def least_sigma(epsilon: Callable[[float], float], wanted: float) -> float:
    """The least σ ≥ 0.2, to four digits, at which ``epsilon``, which falls as σ grows, is at most ``wanted``."""
    _check_epsilon(wanted)
    low, high = _SIGMAS
    if (at_most := epsilon(high)) > wanted:
        raise ValueError(
            f"no sigma up to {high:g} keeps epsilon at {wanted:g}: it would be {at_most:.2g}; "
            "allow a larger epsilon, or fewer rounds"
        )
    if epsilon(low) <= wanted:
        return low
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle) <= wanted else (middle, high)
    return high


def most_rounds(epsilon: Callable[[int], float], wanted: float) -> int:
    """The largest number of rounds at which ``epsilon``, which grows with them, is at most ``wanted``."""
    _check_epsilon(wanted)
    if (single := epsilon(1)) > wanted:
        raise ValueError(f"epsilon must be at least {single:.4g}, what a single round costs; got {wanted}")
    low, high = 1, 2
    while epsilon(high) <= wanted:
        low, high = high, 2 * high
        if high > _MAX_ROUNDS:
            raise ValueError(f"more than {_MAX_ROUNDS:,} rounds keep this promise: sigma is larger than it need be")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(middle) <= wanted else (low, middle)
    return low


def _epsilon(setting: Setting) -> float:
    return _ACCOUNTANT.epsilon(_mechanism(setting), _given(setting.delta))


def _mechanism(setting: Setting) -> Mechanism:
    rounds, rate = int(_given(setting.rounds)), _given(setting.client_rate)
    if not 0 < rate <= 1:
        raise ValueError(f"client_rate q must be in (0, 1], got {rate}")
    return record_mechanism(
        setting.adversary,
        sigma=_given(setting.sigma),
        record_rate=_given(setting.record_rate),
        participations=expected_cap(rate, rounds),
    )


def _largest(keeps: Callable[[float], bool], setting: Setting) -> float:
    """The largest rate for which the promise is kept."""
    if keeps(1.0):
        return 1.0
    low, high = 1e-9, 1.0
    if not keeps(low):
        raise ValueError(f"no {setting.unknown} keeps this promise: one round alone costs more than {setting.epsilon}")
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _given(value: float | None) -> float:
    if value is None:
        raise ValueError("only one number can be missing")
    return value


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon <= _MAX_EPSILON:
        raise ValueError(f"epsilon must be in (0, {_MAX_EPSILON}], got {epsilon}")
