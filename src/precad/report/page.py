"""A run, or several, as one HTML file: no network, light and dark, on paper too. It holds its script and its style.

The run that was read becomes :class:`~precad.report.figures.Figures` and charts, and ``templates/`` shows them: text
that comes from a run is escaped there, every time.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from precad import __version__
from precad.files import write_file
from precad.report import charts, formatting
from precad.report.figures import Figures
from precad.report.participation import Grid
from precad.report.run import ReportError, Run
from precad.settings import Protocol

MOST_RUNS = 8
"""More colours cannot be told apart."""
MOST_LINES = 60
"""Of the table of figures."""


def render(runs: Sequence[Run], *, live: str | None = None) -> str:
    """The page. ``live`` is the stamp of its state where it is served and looks for later ones."""
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ReportError(f"a page shows 1 to {MOST_RUNS} runs, got {len(runs)}")
    try:
        return _render(runs, live)
    except ArithmeticError as error:
        named = ", ".join(run.name for run in runs)
        raise ReportError(f"the figures of {named} cannot be shown: a number is impossible ({error})") from None


def _render(runs: Sequence[Run], live: str | None) -> str:
    every = [Figures(run) for run in runs]
    seeded = [run for run in runs if run.config.seed is not None]
    template, values = ("page.html", _of_one(every[0])) if len(runs) == 1 else ("compare.html", _of_several(every))
    return (
        templates()
        .get_template(template)
        .render(
            values,
            live=live,
            policy=policy(live=live is not None),
            style=Markup(_asset("report.css")),  # noqa: S704 - our own
            script=Markup(_asset("report.js")),  # noqa: S704 - our own
            version=__version__,
            runs=runs,
            run=(seeded or runs)[0],
            seeded=seeded,
            learning=charts.learning_charts(runs),
            epsilon=charts.epsilon_chart(runs),
            norms=charts.noise_chart(every),
        )
    )


def write_report(runs: Sequence[Run], place: Path) -> Path:
    """Write the page of these runs, whole or not at all; where that cannot be, a :class:`ReportError`.

    The page of a deployed run names its participants, and is for its owner alone.
    """
    page = render(runs)
    try:
        write_file(place, page, private=not all(run.simulated for run in runs))
    except OSError as error:
        raise ReportError(f"cannot write {place}: {error.strerror or error}") from None
    return place


def policy(*, live: bool) -> str:
    """The content security policy: its own script and style, by their hashes, and nothing else."""
    connect = "connect-src 'self'; " if live else ""
    script, style = (
        base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode()
        for name in ("report.js", "report.css")
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
        f"{connect}img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def templates() -> Environment:
    """The templates, with autoescape; a name that they do not get is an error."""
    found = Environment(
        loader=PackageLoader("precad.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    found.filters.update(formatting.FILTERS)
    return found


def _of_one(figures: Figures) -> dict[str, object]:
    """What ``page.html`` shows of one run."""
    evaluated, taken = figures.run.evaluated, figures.participation
    every = max(1, -(-len(evaluated) // MOST_LINES))
    return {
        "figures": figures,
        "settings": figures.run.config.training,
        "evaluated": evaluated[(len(evaluated) - 1) % every :: every],  # the last among them
        "clients": None if taken is None else Grid(taken),
    }


def _of_several(every: Sequence[Figures]) -> dict[str, object]:
    """What ``compare.html`` shows of several runs."""
    plain = (figures.usual_round for figures in every if figures.run.config.training.protocol is Protocol.PLAIN)
    keys = dict.fromkeys((table, key) for one in every for table, keys in one.run.entries.items() for key in keys)
    rows = [
        (key if table == "run" else f"{table}.{key}", [one.run.entries.get(table, {}).get(key, "–") for one in every])
        for table, key in keys
    ]
    return {
        "all": every,
        "plain_round": next(plain, None),
        "differences": [(key, values) for key, values in rows if len(set(values)) > 1],
    }


@cache
def _asset(name: str) -> str:
    return (files("precad.report") / "assets" / name).read_text(encoding="utf-8")
