"""A run, or several, as one HTML file: no network, light and dark, on paper too. It holds its script and its style."""

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from precad import __version__
from precad.report import cost, figures, provenance, sections
from precad.report import formatting as fmt
from precad.report.compare import several
from precad.report.participation import rejections
from precad.report.run import RoundFigures, Run
from precad.report.settings import ReportError
from precad.report.standing import last_figures, state, warning

REPORT_NAME = "report.html"
"""Of the page in a run's own folder."""
MOST_RUNS = 8
"""More colours cannot be told apart."""


def render(runs: Sequence[Run], *, live: str | None = None) -> str:
    """The page. ``live`` is the stamp of its state where it is served and looks for later ones."""
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ReportError(f"a page shows 1 to {MOST_RUNS} runs, got {len(runs)}")
    head, body = _one(runs[0]) if len(runs) == 1 else several(list(runs))
    title = runs[0].name if len(runs) == 1 else " · ".join(run.name for run in runs)
    mark = "" if live is None else f" data-live='{escape(live)}'"
    return (
        f"<!doctype html>\n<html lang='en'{mark}><head><meta charset='utf-8'/>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{policy(live=live is not None)}\"/>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>"
        "<meta name='referrer' content='no-referrer'/><link rel='icon' href='data:,'/>"
        f"<title>{escape(title)} – precad</title><style>{_asset('report.css')}</style></head>\n<body>"
        f"<header class='page'>{head}</header>\n<main>{body}</main>\n"
        f"<footer class='page'><p>Written by precad {__version__} from the files of the run alone.</p></footer>"
        f"<script>{_asset('report.js')}</script></body></html>\n"
    )


def write_report(runs: Sequence[Run], place: Path) -> Path:
    """Write the page of these runs, whole or not at all; where that cannot be, a :class:`ReportError`."""
    page = render(runs)
    draft = place.with_name(f".{place.name}.{os.getpid()}.draft")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(place)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ReportError(f"cannot write {place}: {error.strerror or error}") from None
    return place


def policy(*, live: bool) -> str:
    """The content security policy: its own script and style, by their hashes, and nothing else."""
    connect = "connect-src 'self'; " if live else ""
    hashes = {name: f"'sha256-{_hash(_asset(name))}'" for name in ("report.js", "report.css")}
    return (
        f"default-src 'none'; script-src {hashes['report.js']}; style-src {hashes['report.css']}; "
        f"{connect}img-src data:; base-uri 'none'; form-action 'none'"
    )


def _one(run: Run) -> tuple[str, str]:
    kind, said = state(run)
    head = (
        f"<div class='head'><h1>{escape(run.name)}</h1>"
        f"<span class='pill {kind}' role='status' data-status>{escape(said)}</span></div>"
        f"<p class='lead'>{escape(_subtitle(run))}</p>{warning([run])}{_tiles(run)}"
    )
    parts = (
        sections.learning,
        sections.privacy,
        sections.clients,
        sections.noise,
        sections.certificate,
        cost.cost,
        provenance.configuration,
        provenance.limits,
    )
    return head, "\n".join(part(run) for part in parts)


def _subtitle(run: Run) -> str:
    settings, n = run.settings, figures.clients_of(run)
    parts = [
        settings.dataset or "own model and data",
        f"protocol {settings.protocol}"
        + (f", validation {settings.validation.value}" if settings.protocol == "precad" else ""),
        f"{n:,} clients" if n is not None else None,
        f"{run.about.parameters:,} parameters" if run.about.parameters is not None else None,
        f"{settings.malicious} malicious ({settings.attack})" if settings.malicious else None,
    ]
    return " · ".join(part for part in parts if part is not None)


def _tiles(run: Run) -> str:
    last, bad, usual = last_figures(run), rejections(run).total(), figures.usual_round(run)
    sent, whole = sum(line.selected for line in run.rounds), sum(stage.total for stage in figures.stages(run))
    accuracy = last.accuracy if last else None
    looked = "" if last is None else f"after round {last.round:,}" if run.simulated else "a server has no test set"
    pace = "not recorded" if usual is None else f"{fmt.seconds(usual)} a round"
    tiles = [
        ("accuracy", "Test accuracy", accuracy, fmt.percent(accuracy), looked),
        _epsilon_tile(run, "server", "ε against a server", last),
        _epsilon_tile(run, "clients", "ε against clients", last),
        ("rounds", "Rounds", run.done, f"{run.done:,}", f"of {run.settings.rounds:,}"),
        ("rejected", "Rejected updates", bad, f"{bad:,}", f"of {sent:,} sent"),
        ("time", "Time", None if usual is None else whole, "–" if usual is None else fmt.seconds(whole), pace),
    ]
    if run.settings.hidden:
        tiles = [tile for tile in tiles if tile[0] != "rejected"]
    shown = "".join(
        f"<div class='tile' id='tile-{key}'><dt>{name}</dt><dd class='big'>{fmt.data(value, text)}</dd>"
        f"<dd class='under'>{escape(under)}</dd></div>"
        for key, name, value, text, under in tiles
    )
    return f"<dl class='tiles'>{shown}</dl>"


def _epsilon_tile(run: Run, key: str, name: str, last: RoundFigures | None) -> tuple[str, str, float | None, str, str]:
    value = None if last is None else (last.epsilon_server if key == "server" else last.epsilon_clients)
    shown = "–" if last is None else fmt.epsilon(value)
    budget = f", budget {run.settings.budget:g}" if key == "server" and run.settings.budget is not None else ""
    under = (
        "nothing protects against it"
        if last is not None and value is None
        else f"at δ = {fmt.small(run.settings.delta)}{budget}"
    )
    return f"epsilon-{key}", name, value, shown, under


@cache
def _asset(name: str) -> str:
    return (files("precad.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
