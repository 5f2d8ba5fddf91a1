"""Numbers as people read them; the templates know each function as a filter."""

import re


def number(value: int) -> str:
    """A count."""
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """So many of something: 1 round, 2 rounds."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def tenth(value: float) -> str:
    """A place in a picture."""
    return f"{value:.1f}"


def percent(fraction: float | None) -> str:
    """A fraction."""
    return "–" if fraction is None else f"{100 * fraction:.2f}\u00a0%"


def loss(value: float | None) -> str:
    """A loss."""
    return "–" if value is None else f"{value:.4f}"


def epsilon(value: float | None) -> str:
    """An ε; None is that there is none."""
    return "none" if value is None else f"{value:.3f}"


def small(value: float) -> str:
    """A δ: 1e-5, not 1e-05."""
    return re.sub(r"e-0+", "e-", f"{value:g}")


def seconds(value: float) -> str:
    """A duration."""
    if value < 1:
        return f"{1000 * value:.3g}\u00a0ms"
    if value < 120:
        return f"{value:.3g}\u00a0s"
    return f"{value / 60:,.1f}\u00a0min" if value < 7200 else f"{value / 3600:,.1f}\u00a0h"


def size(count: float) -> str:
    """A number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g}\u00a0{unit}"
        count /= 1000
    return f"{count:,.3g}\u00a0TB"


FILTERS = {each.__name__: each for each in (number, tenth, percent, loss, epsilon, small, seconds, size)}
