"""Statistical tests whose false-alarm probability is known exactly.

Every p-value here is valid for each sample size: bins are tested with the exact binomial law and combined by
the union bound, sums of squares with the exact χ² law. A test fails below ``ALPHA``; each comes with a wrong
law that it must reject, so that it cannot pass by being blind.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

ALPHA = 1e-6


def bins_p_value(counts: NDArray[np.integer], probabilities: NDArray[np.float64]) -> float:
    """Whether ``counts`` are multinomial with these probabilities: exact binomial tails, union bound."""
    n = int(counts.sum())
    lower = stats.binom.cdf(counts, n, probabilities)
    upper = stats.binom.sf(counts - 1, n, probabilities)
    return float(min(1.0, 2 * counts.size * np.minimum(lower, upper).min()))


def uniform_bins_p_value(values: NDArray[np.integer], bins: int) -> float:
    """Whether integers in [0, bins) are uniform."""
    counts = np.bincount(values.astype(np.int64), minlength=bins)
    return bins_p_value(counts, np.full(bins, 1 / bins))


def uniform_field_p_value(x: NDArray[np.uint64]) -> float:
    """Whether field elements are uniform: their top byte, and their low byte (p is 2^-61 from 2^61)."""
    high, low = x >> np.uint64(53), x & np.uint64(255)
    return min(1.0, 2 * min(uniform_bins_p_value(high, 256), uniform_bins_p_value(low, 256)))


def rounded_normal_p_value(k: NDArray[np.int64], std: float, generator: np.random.Generator) -> float:
    """Whether integers have the law of ⌊N(0, std²)⌉.

    Given k, a uniform point of [Φ((k − ½)/s), Φ((k + ½)/s)] is exactly uniform on [0, 1] under the law. Three
    looks: 64 bins; the sum of squares of its normal quantiles, exactly χ² with n degrees of freedom; and, where the
    law is wide enough for them to be uniform (to e^-2π²·16), the low four bits of k.
    """
    low, high = special.ndtr((k - 0.5) / std), special.ndtr((k + 0.5) / std)
    u = low + generator.random(k.size) * (high - low)
    squares = float(np.square(special.ndtri(np.clip(u, 1e-300, 1 - 2**-53))).sum())
    looks = [
        uniform_bins_p_value(np.minimum((64 * u).astype(np.int64), 63), 64),
        2 * min(stats.chi2.cdf(squares, k.size), stats.chi2.sf(squares, k.size)),
    ]
    if std >= 64:
        looks.append(uniform_bins_p_value(k & 15, 16))
    return float(min(1.0, len(looks) * min(looks)))
