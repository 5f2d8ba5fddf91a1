"""A run, or several, as one HTML file: no network, light and dark, on paper too. It holds its script and its style."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from precad import __version__
from precad.report import findings, sections, words
from precad.report.participation import rejections
from precad.report.run import RoundFigures, Run
from precad.report.setting import ReportError

MOST_RUNS = 8
"""More colours cannot be told apart."""


def render(runs: Sequence[Run], *, live: str | None = None) -> str:
    """The page. ``live`` is the stamp of its state where it is served and looks for later ones."""
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ReportError(f"a page shows 1 to {MOST_RUNS} runs, got {len(runs)}")
    head, body = _one(runs[0]) if len(runs) == 1 else _several(list(runs))
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


def policy(*, live: bool) -> str:
    """The content security policy: its own script and style, by their hashes, and nothing else."""
    connect = "connect-src 'self'; " if live else ""
    hashes = {name: f"'sha256-{_hash(_asset(name))}'" for name in ("report.js", "report.css")}
    return (
        f"default-src 'none'; script-src {hashes['report.js']}; style-src {hashes['report.css']}; "
        f"{connect}img-src data:; base-uri 'none'; form-action 'none'"
    )


def state(run: Run) -> tuple[str, str]:
    """(kind, words): how far a run is, as far as its files alone tell."""
    if run.finished:
        return "finished", "finished"
    return "unfinished", f"not finished: {run.done:,} of {run.setting.rounds:,} rounds"


def _one(run: Run) -> tuple[str, str]:
    kind, said = state(run)
    head = (
        f"<div class='head'><h1>{escape(run.name)}</h1>"
        f"<span class='pill {kind}' role='status' data-status>{escape(said)}</span></div>"
        f"<p class='lead'>{escape(_subtitle(run))}</p>{_warning([run])}{_tiles(run)}"
    )
    parts = (
        sections.learning,
        sections.privacy,
        sections.clients,
        sections.noise,
        sections.certificate,
        sections.cost,
        sections.configuration,
        sections.limits,
    )
    return head, "\n".join(part(run) for part in parts)


def _several(runs: list[Run]) -> tuple[str, str]:
    head = f"<h1>{len(runs)} runs compared</h1>{_warning(runs)}"
    certificates = [(escape(run.name), escape(findings.certificate(run).headline)) for run in runs]
    body = [
        words.section("side-by-side", "Side by side", _side_by_side(runs)),
        words.section("learning", "What the models learnt", f"<div class='pair'>{sections.learning_charts(runs)}</div>"),
        words.section(
            "privacy",
            "Privacy and noise",
            f"<div class='pair'>{sections.epsilon_chart(runs)}{sections.noise_chart(runs)}</div>",
        ),
        words.section("certificate", "What malicious clients can do", words.table(("run", "certificate"), certificates, "said")),
        words.section("configuration", "Where the configurations differ", _differences(runs)),
        sections.limits(next((run for run in runs if run.setting.seed is not None), runs[0])),
    ]
    return head, "\n".join(body)


def _subtitle(run: Run) -> str:
    setting, n = run.setting, findings.clients_of(run)
    parts = [
        setting.dataset or "own model and data",
        f"protocol {setting.protocol}" + (f", validation {setting.validation.value}" if setting.protocol == "precad" else ""),
        f"{n:,} clients" if n is not None else None,
        f"{run.about.parameters:,} parameters" if run.about.parameters is not None else None,
        f"{setting.malicious} malicious ({setting.attack})" if setting.malicious else None,
    ]
    return " · ".join(part for part in parts if part is not None)


def _warning(runs: list[Run]) -> str:
    seeded = [run.name for run in runs if run.setting.seed is not None]
    if not seeded:
        return ""
    which = "This run" if len(runs) == 1 else ", ".join(seeded)
    said = f"{which}: repeatable by a seed, for research. The noise is not private."
    return f"<p class='warning' role='note'>{escape(said)}</p>"


def last_figures(run: Run) -> RoundFigures | None:
    """The figures of the last round that has any."""
    return run.looked[-1] if run.looked else None


def _tiles(run: Run) -> str:
    last, bad, usual = last_figures(run), rejections(run).total(), findings.usual_round(run)
    sent, whole = sum(line.selected for line in run.rounds), sum(stage.total for stage in findings.stages(run))
    accuracy = last.accuracy if last else None
    tiles = [
        ("accuracy", "Test accuracy", accuracy, words.percent(accuracy), f"after round {last.round:,}" if last else ""),
        _epsilon_tile(run, "server", "ε against a server", last),
        _epsilon_tile(run, "clients", "ε against clients", last),
        ("rounds", "Rounds", run.done, f"{run.done:,}", f"of {run.setting.rounds:,}"),
        ("rejected", "Rejected updates", bad, f"{bad:,}", f"of {sent:,} that were sent"),
        ("time", "Time", whole, words.seconds(whole), f"usually {words.seconds(usual)} a round" if usual else ""),
    ]
    if run.setting.hidden:
        tiles = [tile for tile in tiles if tile[0] != "rejected"]
    shown = "".join(
        f"<div class='tile' id='tile-{key}'><dt>{name}</dt><dd class='big'>{words.data(value, text)}</dd>"
        f"<dd class='under'>{escape(under)}</dd></div>"
        for key, name, value, text, under in tiles
    )
    return f"<dl class='tiles'>{shown}</dl>"


def _epsilon_tile(run: Run, key: str, name: str, last: RoundFigures | None) -> tuple[str, str, float | None, str, str]:
    value = None if last is None else (last.epsilon_server if key == "server" else last.epsilon_clients)
    shown = "–" if last is None else words.epsilon(value)
    budget = f", budget {run.setting.budget:g}" if key == "server" and run.setting.budget is not None else ""
    under = "nothing protects against it" if last is not None and value is None else f"at δ = {run.setting.delta:g}{budget}"
    return f"epsilon-{key}", name, value, shown, under


def _side_by_side(runs: list[Run]) -> str:
    def row(name: str, cells: list[str]) -> tuple[str, ...]:
        return escape(name), *cells

    lasts = [last_figures(run) for run in runs]
    usual = [findings.usual_round(run) for run in runs]
    plain = next((time for run, time in zip(runs, usual, strict=True) if run.setting.protocol == "plain"), None)
    rows = [
        row("state", [escape(state(run)[1]) for run in runs]),
        row("protocol", [escape(run.setting.protocol) for run in runs]),
        row("test accuracy", [words.data(x and x.accuracy, words.percent(x and x.accuracy)) for x in lasts]),
        row("test loss", ["–" if x is None or x.loss is None else words.data(x.loss, f"{x.loss:.4f}") for x in lasts]),
        row("ε against a server", ["–" if x is None else words.data(x.epsilon_server, words.epsilon(x.epsilon_server)) for x in lasts]),
        row("ε against clients", ["–" if x is None else words.data(x.epsilon_clients, words.epsilon(x.epsilon_clients)) for x in lasts]),
        row("δ", [f"{run.setting.delta:g}" for run in runs]),
        row("rounds", [words.data(run.done, f"{run.done:,}") for run in runs]),
        row("rejected updates", ["hidden" if run.setting.hidden else words.data(rejections(run).total(), f"{rejections(run).total():,}") for run in runs]),
        row("usual round", ["–" if x is None else words.data(x, words.seconds(x)) for x in usual]),
        row("noise is", ["private" if run.setting.seed is None else "not private" for run in runs]),
    ]
    if plain:
        rows.insert(-1, row("times a plain round", ["–" if x is None else f"{x / plain:.2f}" for x in usual]))
    return words.table(("", *(run.name for run in runs)), rows)


def _differences(runs: list[Run]) -> str:
    tables = [{(name, key): value for name, key, value in run.setting.shown} for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = [
        (escape(f"{name}.{key}" if name != "run" else key), *(escape(table.get((name, key), "–")) for table in tables))
        for name, key in keys
        if len({table.get((name, key)) for table in tables}) > 1
    ]
    if not rows:
        return words.paragraph("Nowhere: the runs differ in their randomness alone.", "lead")
    return words.table(("key", *(run.name for run in runs)), rows)


@cache
def _asset(name: str) -> str:
    return (files("precad.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
