"""The page as a file."""

import os
from collections.abc import Sequence
from pathlib import Path

from precad.report.page import render
from precad.report.run import Run
from precad.report.setting import ReportError

NAME = "report.html"
"""Of the page in a run's own folder."""


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
