"""Poisson samples, of clients and of records (paper, Algorithm 1, line 2, and Algorithm 2, line 1; PROTOCOL §2).

Amplification by sampling rests on the sample being unpredictable, so it is drawn like a secret: from the cryptographic
stream, not from a simulation's generator.
"""

import math

import numpy as np
from numpy.typing import NDArray

from precad.mpc.prg import Purpose, Stream

SAMPLING = (Purpose.SELECTION, Purpose.SAMPLE)


def poisson_sample(stream: Stream, size: int, rate: float) -> NDArray[np.int64]:
    """The indices below ``size`` that are picked, each independently with probability ``rate``, in order.

    An index is picked iff its word is below ⌊rate·2^64⌋: the probability is exact to 2^-64, and never above the rate.
    """
    if stream.purpose not in SAMPLING:
        raise ValueError(f"samples are drawn from a stream of their own, not from {stream.purpose}")
    if not 0 < rate <= 1:
        raise ValueError(f"a sampling rate must be in (0, 1], got {rate}")
    if rate == 1:
        return np.arange(size)
    words = np.empty(size, np.uint64)
    stream.fill_words(words)
    return np.flatnonzero(words < np.uint64(int(math.ldexp(rate, 64))))
