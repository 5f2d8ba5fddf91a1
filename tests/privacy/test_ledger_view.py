"""A ledger that is only looked at."""

import json
from pathlib import Path

import pytest

from precad.privacy.ledger import Ledger, LedgerError
from precad.privacy.ledger_view import view
from precad.privacy.terms import Terms
from tests.messages import says

TERMS = Terms(sigma=1.0, record_rate=0.5, delta=1e-5, dim=10)


def test_it_sees_what_was_counted_while_the_counting_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "led ger?#.sqlite"
    ledger = Ledger(path, "ab", TERMS)
    assert view(path).rounds == ()
    assert view(path).last_link == ""
    entry = ledger.record(0, ["b", "a"])
    seen = view(path)
    assert (seen.terms, seen.last_link) == (TERMS, entry.link)
    assert [(number, json.loads(names)) for number, names in seen.rounds] == [(0, ["a", "b"])]
    ledger.record(1, ["a"])
    assert len(view(path).rounds) == 2


def test_what_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=says("no ledger", tmp_path / "none")):
        view(tmp_path / "none")
    (tmp_path / "text").write_text("not a ledger, but long enough to be read as a file of SQLite" * 20)
    with pytest.raises(LedgerError, match=says("not a ledger", tmp_path / "text")):
        view(tmp_path / "text")
