"""Poisson samples, of clients and of records (paper, Algorithm 1, line 2, and Algorithm 2, line 1; PROTOCOL §2).

Amplification by sampling rests on the sample being unpredictable, so it is drawn like a secret: from the cryptographic
stream, not from a simulation's generator.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from precad.mpc.prg import Purpose, Stream
from precad.privacy.terms import SAMPLER_DISTANCE

SAMPLING = (Purpose.SELECTION, Purpose.SAMPLE)
_TAIL = SAMPLER_DISTANCE * (1 - 2.0**-20)
"""Less than η by more than the error of a computed tail."""


@dataclass(frozen=True)
class RecordTerms:
    """What a client needs of its task to make an update by record: R, p, f and |D_i|."""

    record_bound: float
    record_rate: float
    fractional_bits: int
    records: int
    """As the roster declares them."""
    look: float = 0.0
    """For how many seconds to look for records that do not count, for the client's log: before its first round."""


def poisson_sample(stream: Stream, size: int, rate: float) -> NDArray[np.int64]:
    """The indices below ``size`` that are picked, each independently with probability ``rate``, in order.

    An index is picked iff its word is below ⌊rate·2^64⌋: the probability is exact to 2^-64, and never above the rate.
    """
    return np.flatnonzero(_picked(stream, size, rate))


def filled_sample(stream: Stream, size: int, rate: float, declared: int) -> tuple[NDArray[np.int64], int]:
    """A sample as :func:`poisson_sample` draws it, and further indices that fill it up to a fixed number.

    Args:
        stream: Where to draw from.
        size: How many records there are: at least one.
        rate: The probability of each.
        declared: How many the roster says that there are, at least ``size``.

    Returns:
        The indices, and how many of them, at the beginning, are the sample. The others are records that were not
        picked, then all of them again. There are :func:`most_drawn` of them, whatever was picked, unless more were:
        none that was picked is left out. Each step takes as long whatever was picked.
    """
    picked = _picked(stream, size, rate)
    drawn, before = int(np.count_nonzero(picked)), np.cumsum(picked)
    places = np.where(picked, before - 1, drawn + np.arange(size) - before)
    indices = np.empty(size, np.int64)
    indices[places] = np.arange(size)
    return np.resize(indices, size if rate == 1 else max(drawn, most_drawn(declared, rate))), drawn


@lru_cache
def most_drawn(records: int, rate: float) -> int:
    """M, the least number that a sample of ``records`` exceeds with probability at most η = 2^-74 (PROTOCOL §7a)."""
    low, high = 0, records  # of the binomial law's tail, P[drawn > records] = 0 and P[drawn > -1] = 1
    while low < high:
        middle = (low + high) // 2
        if special.betainc(middle + 1, records - middle, rate) <= _TAIL:
            high = middle
        else:
            low = middle + 1
    return low


def _picked(stream: Stream, size: int, rate: float) -> NDArray[np.bool_]:
    if stream.purpose not in SAMPLING:
        raise ValueError(f"samples are drawn from a stream of their own, not from {stream.purpose}")
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate must be in (0, 1], got {rate}")
    if rate == 1:
        return np.ones(size, np.bool_)
    words = np.empty(size, np.uint64)
    stream.fill_words(words)
    return words < np.uint64(int(math.ldexp(rate, 64)))
