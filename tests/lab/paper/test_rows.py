import json
from dataclasses import asdict
from pathlib import Path

import pytest

from precad.errors import PrecadError
from precad.lab.paper import plan
from precad.lab.paper.plan import QUICK, Method
from precad.lab.paper.rows import RowFile
from tests.lab.paper.fake_rows import row
from tests.messages import says

FIRST, SECOND = (plan.clean(QUICK, "mnist", Method("plain"), 100, seed) for seed in (1, 2))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    rows.add(row(FIRST, 0.7))
    again = RowFile(tmp_path)
    assert again.get(FIRST) == rows.get(FIRST) == row(FIRST, 0.7)
    assert again.get(SECOND) is None
    assert again.found([FIRST, SECOND]) == [row(FIRST, 0.7)]


def test_a_line_that_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    rows.add(row(FIRST))
    rows.add(row(SECOND))
    rows.path.write_text(rows.path.read_text()[:-20])
    again = RowFile(tmp_path)
    assert again.get(FIRST) is not None
    assert again.get(SECOND) is None
    assert rows.path.read_bytes()[-1:] != b"\n", "whoever only looks changes nothing"
    again.add(row(SECOND))
    assert RowFile(tmp_path).found([FIRST, SECOND]) == [row(FIRST), row(SECOND)]


def test_what_was_written_before_the_lock_is_seen(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    RowFile(tmp_path).add(row(FIRST))
    with rows.locked():
        assert rows.get(FIRST) is not None
        rows.add(row(SECOND))
        with pytest.raises(PrecadError, match=says("another process", tmp_path)), RowFile(tmp_path).locked():
            pass
    assert RowFile(tmp_path).found([FIRST, SECOND]) == [row(FIRST), row(SECOND)]


GOOD = json.dumps(asdict(row(FIRST))).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"{]",
        b'{"key": "a"}',
        b"3",
        b"",
        b"\xff",
        GOOD.replace(b"[0.5, 0.9]", b"[]"),
        GOOD.replace(b"[0.5, 0.9]", b'["much"]'),
        GOOD.replace(b"[0.5, 0.9]", b"[NaN]"),
    ],
)
def test_damage_is_named_by_its_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(GOOD + b"\n" + line + b"\n")
    with pytest.raises(PrecadError, match=says("line 2", "rows.jsonl", "damaged")):
        RowFile(tmp_path)


def test_a_run_without_a_backdoor_has_no_backdoor_accuracy() -> None:
    assert row(FIRST, 0.7).final_accuracy == 0.7
    with pytest.raises(ValueError, match="has no backdoor"):
        _ = row(FIRST).final_backdoor
