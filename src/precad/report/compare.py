"""The page of several runs: overlays, and a table side by side."""

from collections.abc import Callable
from html import escape

from precad.report import figures, provenance, sections
from precad.report import formatting as fmt
from precad.report.participation import rejections
from precad.report.run import RoundFigures, Run
from precad.report.standing import last_figures, state, warning


def several(runs: list[Run]) -> tuple[str, str]:
    """Head and body of the page."""
    head = f"<h1>{len(runs)} runs compared</h1>{warning(runs)}"
    certificates = [(escape(run.name), escape(figures.certificate(run).headline)) for run in runs]
    body = [
        fmt.section("side-by-side", "Side by side", _side_by_side(runs)),
        fmt.section("learning", "What the models learnt", f"<div class='pair'>{sections.learning_charts(runs)}</div>"),
        fmt.section(
            "privacy",
            "Privacy and noise",
            f"<div class='pair'>{sections.epsilon_chart(runs)}{sections.noise_chart(runs)}</div>",
        ),
        fmt.section(
            "certificate",
            "What malicious clients can do",
            fmt.table(("run", "certificate"), certificates, "said"),
        ),
        fmt.section("configuration", "Where the configurations differ", _differences(runs)),
        provenance.limits(next((run for run in runs if run.settings.seed is not None), runs[0])),
    ]
    return head, "\n".join(body)


def _side_by_side(runs: list[Run]) -> str:
    def row(name: str, cells: list[str]) -> tuple[str, ...]:
        return escape(name), *cells

    lasts = [last_figures(run) for run in runs]
    usual = [figures.usual_round(run) for run in runs]
    plain = next((time for run, time in zip(runs, usual, strict=True) if run.settings.protocol == "plain"), None)
    rows = [
        row("state", [escape(state(run)[1]) for run in runs]),
        row("protocol", [escape(run.settings.protocol) for run in runs]),
        row("test accuracy", [_figure(x, "accuracy", fmt.percent) for x in lasts]),
        row("test loss", [_figure(x, "loss", fmt.loss) for x in lasts]),
        row("ε against a server", [_figure(x, "epsilon_server", fmt.epsilon) for x in lasts]),
        row("ε against clients", [_figure(x, "epsilon_clients", fmt.epsilon) for x in lasts]),
        row("δ", [fmt.small(run.settings.delta) for run in runs]),
        row("rounds", [fmt.data(run.done, f"{run.done:,}") for run in runs]),
        row("rejected updates", [_rejected(run) for run in runs]),
        row("usual round", ["–" if x is None else fmt.data(x, fmt.seconds(x)) for x in usual]),
        row("noise is", ["private" if run.settings.seed is None else "not private" for run in runs]),
    ]
    if plain:
        rows.insert(-1, row("times a plain round", ["–" if x is None else f"{x / plain:.2f}" for x in usual]))
    return fmt.table(("", *(run.name for run in runs)), rows)


def _figure(last: RoundFigures | None, name: str, shown: Callable[[float | None], str]) -> str:
    if last is None:
        return "–"
    value: float | None = getattr(last, name)
    return fmt.data(value, shown(value))


def _rejected(run: Run) -> str:
    total = rejections(run).total()
    return "hidden" if run.settings.hidden else fmt.data(total, f"{total:,}")


def _differences(runs: list[Run]) -> str:
    tables = [{(name, key): value for name, key, value in run.settings.entries} for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = [
        (escape(f"{name}.{key}" if name != "run" else key), *(escape(table.get((name, key), "–")) for table in tables))
        for name, key in keys
        if len({table.get((name, key)) for table in tables}) > 1
    ]
    if not rows:
        return fmt.paragraph("Nowhere: the runs differ in their randomness alone.", "lead")
    return fmt.table(("key", *(run.name for run in runs)), rows)
