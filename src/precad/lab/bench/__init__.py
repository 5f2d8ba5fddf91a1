"""Benchmarks: every figure is a ratio of two things timed in the same run, since machines are noisy."""

import statistics
import time
from collections.abc import Callable, Mapping


def medians(cases: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of each case: the median of ``repeats`` turns, the cases taking turns with each other."""
    for case in cases.values():
        case()  # compile, and fill the caches
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            samples[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in samples.items()}
