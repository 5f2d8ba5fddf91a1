"""Records that do not count: how many of each client, and why, told once before a run.

A record that cannot be read, that raises in the model or the loss, or whose gradient is not finite adds 0 to every sum
(PROTOCOL §7a). That keeps the guarantee, and may hide a mistake in the data.
"""

import logging
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from precad.data.faults import Faults, described
from precad.data.records import Records, read
from precad.errors import UnusableError
from precad.gradients.kinds import Kinds

LOG = logging.getLogger(__name__)
_AT_ONCE, _LINES = 1024, 10
PATIENCE = 2.0
"""The seconds after which a person is told that all records are being looked at."""


def uncounted(owners: Mapping[str, Records], kinds: Kinds, theta: NDArray[np.float64]) -> dict[str, Faults]:
    """Every owner's records that do not count at θ, by a pass over all records."""
    found: dict[str, Faults] = {}
    total, done, told = sum(len(records) for records in owners.values()), 0, time.monotonic()
    for name, records in owners.items():
        own: dict[int, str] = {}
        for start in range(0, len(records), _AT_ONCE):
            indices = np.arange(start, min(start + _AT_ONCE, len(records)))
            own |= {start + place: why for place, why in kinds.faults(read(records, indices), theta).items()}
            done += len(indices)
            if time.monotonic() - told > PATIENCE:
                LOG.warning("looking for records that do not count: %d of %d", done, total)
                told = time.monotonic()
        if own:
            found[name] = dict(sorted(own.items()))
    return found


def warn(found: Mapping[str, Faults], sizes: Mapping[str, int]) -> None:
    """One warning for all owners; refuse if no record of any of them counts."""
    if found:
        refuse_none(found, sizes)
        LOG.warning("some records do not count, and add 0 to every sum:\n%s", _table(found, sizes))


def refuse_none(found: Mapping[str, Faults], sizes: Mapping[str, int]) -> None:
    """Refuse if no record of any owner counts."""
    if all(len(found.get(name, {})) == size for name, size in sizes.items()):
        raise UnusableError(f"no record of any client counts:\n{_table(found, sizes)}")


def _table(found: Mapping[str, Faults], sizes: Mapping[str, int]) -> str:
    lines = [f"  {name}: {described(faults, sizes[name])}" for name, faults in found.items()]
    if len(lines) > _LINES:
        lines[_LINES:] = [f"  and {len(lines) - _LINES} more clients"]
    return "\n".join(lines)
