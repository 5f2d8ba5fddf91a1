"""The page as a file."""

import os
from collections.abc import Sequence
from pathlib import Path

from precad.report.page import render
from precad.report.run import read_run
from precad.report.setting import ReportError

NAME = "report.html"
"""Of the page in a run's own folder."""


def write_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of these runs, whole or not at all; where it is. A single run's page is in its folder by default.

    What cannot be read or written is a :class:`ReportError` of one sentence.
    """
    page = render([read_run(path) for path in runs])
    place = out if out is not None else runs[0] / NAME if len(runs) == 1 else Path(NAME)
    draft = place.with_name(f".{place.name}.{os.getpid()}.draft")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(place)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ReportError(f"cannot write {place}: {error.strerror or error}") from None
    return place
