"""Records that do not count, in words."""

from collections import Counter
from collections.abc import Mapping

Faults = Mapping[int, str]
"""Record → why it does not count."""
_REASONS, _RECORDS = 3, 5
"""How many of them are named."""


def described(faults: Faults, size: int) -> str:
    """How many of an owner's ``size`` records do not count, why, and which are the first."""
    whole = f"NONE of {size} records counts" if len(faults) == size else f"{len(faults)} of {size} records"
    reasons = Counter(faults.values()).most_common(_REASONS)
    more = len(faults) - sum(count for _, count in reasons)
    others = [f"{more} for other reasons"] if more else []
    return "; ".join([whole, *(_reason(faults, why) for why, _ in reasons), *others])


def _reason(faults: Faults, why: str) -> str:
    indices = [index for index, reason in faults.items() if reason == why]
    shown = ", ".join(map(str, indices[:_RECORDS])) + (", …" if len(indices) > _RECORDS else "")
    return f"{len(indices)} because {why} (record {shown})"
