"""Where a run stands, as its files alone tell."""

from html import escape

from precad.report.run import RoundFigures, Run


def state(run: Run) -> tuple[str, str]:
    """(kind, words): how far a run is, as far as its files alone tell."""
    if run.finished:
        return "finished", "finished"
    return "unfinished", f"not finished: {run.done:,} of {run.settings.rounds:,} rounds"


def warning(runs: list[Run]) -> str:
    """That the noise of some of these runs is not private; empty if all is."""
    seeded = [run.name for run in runs if run.settings.seed is not None]
    if not seeded:
        return ""
    which = "of this run" if len(runs) == 1 else f"of {', '.join(seeded)}"
    said = f"Repeatable by a seed, for research: the noise {which} is not private."
    return f"<p class='warning' role='note'>{escape(said)}</p>"


def last_figures(run: Run) -> RoundFigures | None:
    """The figures of the last round that has any."""
    return run.evaluated[-1] if run.evaluated else None
