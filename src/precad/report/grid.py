"""The grid of clients × rounds as inline SVG, and the table beside it."""

from html import escape

import numpy as np

from precad.report.chart import as_json
from precad.report.participation import Participation

MOST_ROWS = 100
"""The grid shows so many clients, the rejected ones first; the table shows all."""

_WIDTH, _LEFT, _BOTTOM = 1040, 150, 26
_LEVELS = 4


def draw_grid(taken: Participation) -> str:
    """Accepted in shades by how many of a column's rounds a client took part in; any rejection in its own colour."""
    rows = _chosen(taken)
    columns = taken.took_part.shape[1]
    height = 16 if len(rows) <= 30 else 9 if len(rows) <= 60 else 6
    cell = (_WIDTH - _LEFT) / columns
    levels = _levels(taken)[rows]
    paths = []
    for level in (*range(1, _LEVELS + 1), -1):
        runs = [
            f"M{_LEFT + start * cell:.2f} {row * height}"
            f"h{(end - start) * cell:.2f}v{height - 1}h{(start - end) * cell:.2f}z"
            for row, line in enumerate(levels)
            for start, end in _runs(line == level)
        ]
        if runs:
            kind = "rejected" if level < 0 else f"accepted a{level}"
            paths.append(f"<path class='{kind}' d='{''.join(runs)}'/>")
    sent, bad = int(taken.took_part.sum()), int(taken.rejected.sum())
    said = f"{len(taken.clients):,} clients over {taken.rounds:,} rounds: {sent:,} updates, {bad:,} rejected"
    body = len(rows) * height
    return (
        f"<figure class='grid' id='grid'><figcaption id='grid-title'>{_caption(taken)}</figcaption><div class='wide'>"
        f"<svg viewBox='0 0 {_WIDTH} {body + _BOTTOM}' role='img' tabindex='0' aria-labelledby='grid-title grid-said'>"
        f"<desc id='grid-said'>{escape(said)}</desc>"
        f"{''.join(paths)}{_names(taken, rows, height)}{_rounds(taken, body, cell)}</svg></div>"
        f"{_legend(taken)}{_left_out(taken, rows)}"
        f"<script type='application/json'>{_data(taken, rows, cell, height)}</script></figure>"
    )


def client_table(taken: Participation) -> str:
    """Every client: how often it took part, and how often it was rejected."""
    took, rejected = taken.took_part.sum(axis=1).tolist(), taken.rejected.sum(axis=1).tolist()
    lines = "".join(
        f"<tr class='{'bad' if bad else 'good'}'><th scope='row'>{escape(name)}</th>"
        f"<td>{sent:,}</td><td>{sent - bad:,}</td><td>{bad:,}</td></tr>"
        for name, sent, bad in zip(taken.clients, took, rejected, strict=True)
    )
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("client", "sent", "accepted", "rejected"))
    return f"<table class='numbers clients'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _chosen(taken: Participation) -> list[int]:
    """The rows that are shown, in the order of the names."""
    if len(taken.clients) <= MOST_ROWS:
        return list(range(len(taken.clients)))
    worst = np.argsort(-taken.rejected.sum(axis=1), kind="stable")[:MOST_ROWS]
    return sorted(worst.tolist())


def _levels(taken: Participation) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """0 absent, 1 to 4 by the share of the rounds, −1 where anything was rejected."""
    sizes = np.array([last - first + 1 for first, last in map(taken.span, range(taken.took_part.shape[1]))])
    shares = np.ceil(_LEVELS * taken.took_part / sizes).astype(np.int64)
    if taken.width > 1 and shares.size:  # against the fullest cell: with q = 0.1 all would be pale
        fullest = max(1e-9, float((taken.took_part / sizes).max()))
        shares = np.ceil(_LEVELS * taken.took_part / sizes / fullest).astype(np.int64)
    return np.where(taken.rejected > 0, -1, shares)


def _runs(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _caption(taken: Participation) -> str:
    each = "one round" if taken.width == 1 else f"{taken.width:,} rounds"
    return f"Clients × rounds: a row is a client, a column {each}"


def _legend(taken: Participation) -> str:
    def key(kind: str, words: str) -> str:
        square = f"<rect class='{kind}' width='12' height='12'/>"
        return (
            f"<span class='key'><svg class='square' viewBox='0 0 12 12' aria-hidden='true'>{square}</svg>{words}</span>"
        )

    shades = (
        [key("accepted a4", "accepted")]
        if taken.width == 1
        else [key("accepted a1", "accepted, in few rounds of the column"), key("accepted a4", "in the most")]
    )
    others = [
        key("rejected", "rejected" if taken.width == 1 else "rejected at least once"),
        key("absent", "took no part"),
    ]
    return f"<div class='legend'>{''.join(shades + others)}</div>"


def _left_out(taken: Participation, rows: list[int]) -> str:
    left = len(taken.clients) - len(rows)
    if not left:
        return ""
    bad = int((taken.rejected.sum(axis=1) > 0).sum()) - int((taken.rejected[rows].sum(axis=1) > 0).sum())
    of_them = f"{bad:,} of them were rejected at some time" if bad else "none of them was ever rejected"
    return f"<p class='note'>{left:,} more clients are in the table only; {of_them}.</p>"


def _names(taken: Participation, rows: list[int], height: int) -> str:
    every = 1 if height >= 12 else -(-16 // height)
    return "".join(
        f"<text class='tick y' x='{_LEFT - 8}' y='{place * height + height / 2 + 4:.0f}'>"
        f"{escape(_cut(taken.clients[row]))}</text>"
        for place, row in enumerate(rows)
        if place % every == 0
    )


def _rounds(taken: Participation, top: int, cell: float) -> str:
    columns = taken.took_part.shape[1]
    marks = sorted({0, columns // 4, columns // 2, 3 * columns // 4, columns - 1})
    return "".join(
        f"<text class='tick x' x='{_LEFT + (column + 0.5) * cell:.1f}' y='{top + 16}'>{taken.span(column)[0]:,}</text>"
        for column in marks
    )


def _data(taken: Participation, rows: list[int], cell: float, height: int) -> str:
    values = {
        "left": _LEFT, "cell": cell, "height": height, "width": taken.width, "rounds": taken.rounds,
        "names": [taken.clients[row] for row in rows],
        "sent": taken.took_part[rows].tolist(), "bad": taken.rejected[rows].tolist(),
    }  # fmt: skip
    return as_json(values)


def _cut(name: str) -> str:
    return name if len(name) <= 20 else name[:19] + "…"
