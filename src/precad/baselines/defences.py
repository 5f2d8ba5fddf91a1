"""Defences by name: from a round's updates to the mean that the model moves by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precad.baselines import bulyan, centred_clipping, coordinate_wise, krum, norm_clipping

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What a defence is told."""

    malicious: int
    """f: how many of the round's clients it takes for malicious, at most."""
    bound: float
    """C: the norm that it takes for honest."""


Defence = Callable[[Floats, Setting], Floats]
"""From a matrix with a row for each client to one vector in place of their mean."""


def named(name: str) -> Defence:
    """One of :data:`NAMES`."""
    if name not in NAMES:
        raise ValueError(f"the defence is {name!r}, expected one of {', '.join(NAMES)}, or module:function")
    return NAMES[name]


def _most(malicious: int, most: int) -> int:
    """f, or what the rule can bear with so few clients."""
    return max(0, min(malicious, most))


def _norm_clipping(updates: Floats, setting: Setting) -> Floats:
    return norm_clipping.norm_clipping(updates, setting.bound)


def _median(updates: Floats, setting: Setting) -> Floats:  # noqa: ARG001
    return coordinate_wise.median(updates)


def _trimmed_mean(updates: Floats, setting: Setting) -> Floats:
    return coordinate_wise.trimmed_mean(updates, _most(setting.malicious, (len(updates) - 1) // 2))


def _krum(updates: Floats, setting: Setting) -> Floats:
    if len(updates) < 3:
        return coordinate_wise.median(updates)
    return krum.krum(updates, _most(setting.malicious, (len(updates) - 3) // 2))


def _multi_krum(updates: Floats, setting: Setting) -> Floats:
    if len(updates) < 3:
        return coordinate_wise.median(updates)
    return krum.multi_krum(updates, _most(setting.malicious, (len(updates) - 3) // 2))


def _bulyan(updates: Floats, setting: Setting) -> Floats:
    if len(updates) < 3:
        return coordinate_wise.median(updates)
    return bulyan.bulyan(updates, _most(setting.malicious, (len(updates) - 3) // 4))


def _centred_clipping(updates: Floats, setting: Setting) -> Floats:
    return centred_clipping.centred_clipping(updates, setting.bound)


NAMES: dict[str, Defence] = {
    "norm_clipping": _norm_clipping,
    "median": _median,
    "trimmed_mean": _trimmed_mean,
    "krum": _krum,
    "multi_krum": _multi_krum,
    "bulyan": _bulyan,
    "centred_clipping": _centred_clipping,
}
"""Where a round has too few clients for f, the rule takes the largest f that it bears; Krum's family, with fewer than
three clients, is the median."""
