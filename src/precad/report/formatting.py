"""Numbers and small pieces of HTML, as people read them. Everything that comes from a run is escaped here."""

import re
from collections.abc import Iterable, Sequence
from html import escape


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


def data(value: float | int | None, shown: str) -> str:
    """A figure with its exact value, for machines."""
    return escape(shown) if value is None else f"<data value='{value!r}'>{escape(shown)}</data>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{f' class={kind!r}' if kind else ''}>{inline(text)}</p>"


def bullets(lines: Iterable[str]) -> str:
    """A list of plain texts."""
    return f"<ul>{''.join(f'<li>{inline(line)}</li>' for line in lines)}</ul>"


def inline(text: str) -> str:
    """Plain text; what stands between backticks is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "numbers") -> str:
    """A table; the first column names the row. ``rows`` are HTML, ``head`` is text."""
    top = "".join(f"<th scope='col'>{escape(name)}</th>" for name in head)
    lines = "".join(
        f"<tr><th scope='row'>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>" for row in rows
    )
    return (
        f"<div class='scroll' tabindex='0' role='group' aria-label='table'><table class='{kind}'>"
        f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def details(key: str, summary: str, content: str, *, opened: bool = False) -> str:
    """What can be folded away."""
    return f"<details id='{key}'{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"


def section(key: str, title: str, content: str) -> str:
    """A part of the page."""
    return (
        f"<section id='{key}' aria-labelledby='{key}-head'><h2 id='{key}-head'>{escape(title)}</h2>{content}</section>"
    )
