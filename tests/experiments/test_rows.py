from pathlib import Path

import pytest

from precad.errors import PrecadError
from precad.experiments import plan
from precad.experiments.plan import QUICK, Method
from precad.experiments.rows import RowFile
from tests.experiments.fake_rows import row

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
    again.add(row(SECOND))
    assert RowFile(tmp_path).get(SECOND) is not None


@pytest.mark.parametrize("line", ["{]\n", '{"key": "a"}\n', "3\n"])
def test_damage_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "rows.jsonl").write_text(line)
    with pytest.raises(PrecadError, match=r"line 1 of .*rows.jsonl is damaged"):
        RowFile(tmp_path)


def test_a_run_without_a_backdoor_has_no_backdoor_accuracy() -> None:
    assert row(FIRST, 0.7).final_accuracy == 0.7
    with pytest.raises(ValueError, match="has no backdoor"):
        _ = row(FIRST).final_backdoor
