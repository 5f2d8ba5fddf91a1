from pathlib import Path

import pytest

from precad.lab.paper import heatmap
from precad.lab.paper.heatmap import ATTACKS, DEFENCES, Board
from precad.lab.paper.plan import Experiment
from precad.lab.paper.rows import Row, RowFile
from precad.settings import Protocol
from tests.lab.paper.fake_rows import fill, row
from tests.messages import says


def make(experiment: Experiment) -> Row:
    """Under precad the backdoor within C is the worst, elsewhere ipm."""
    malicious = experiment.config.malicious
    backdoor = None
    if malicious.attack == "backdoor":
        precad = experiment.config.training.protocol is Protocol.PRECAD
        backdoor = 0.97 if malicious.within_bound and precad else 0.1
    return row(experiment, 0.2 if malicious.attack == "ipm" else 0.8, backdoor)


def test_the_worst_case_of_each_defence_is_marked(tmp_path: Path) -> None:
    board, rows = Board("digits", 2, 4, (1, 2), quick=True), RowFile(tmp_path)
    assert len(board.experiments()) == 2 * len(ATTACKS) * len(DEFENCES)
    fill(rows, board.experiments(), make)
    assert board.worst(rows, "precad") == "backdoor ≤ C"
    assert board.worst(rows, "median") == "ipm"
    heatmap.draw(board, rows, tmp_path / "map.png")
    heatmap.write(board, rows, tmp_path / "map.md")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "map.md").read_text()
    assert "QUICK RUN" in text
    assert "| backdoor ≤ C | 80.0 | 80.0 | 80.0 | 80.0 | **3.0** |" in text
    assert "| none | 80.0 |" in text


def test_what_was_not_run_is_a_dash(tmp_path: Path) -> None:
    board, rows = Board("digits", 2, 4, (1,), ("none", "ipm"), ("precad",)), RowFile(tmp_path)
    heatmap.draw(board, rows, tmp_path / "map.png")
    heatmap.write(board, rows, tmp_path / "map.md")
    assert board.worst(rows, "precad") is None
    assert "| ipm | – |" in (tmp_path / "map.md").read_text()


def test_the_user_s_own_are_loaded_before_the_first_run() -> None:
    with pytest.raises(ValueError, match=says("attack", "'no_such:thing'")):
        Board("digits", 2, 4, (1,), attacks=("no_such:thing",))
    with pytest.raises(ValueError, match=says("defence", "'no_such:thing'")):
        Board("digits", 2, 4, (1,), defences=("no_such:thing",))
    with pytest.raises(ValueError, match=says("attack", "'creeep'", "boost")):
        Board("digits", 2, 4, (1,), attacks=("creeep",))
    with pytest.raises(ValueError, match=says("defence", "'hope'", "plain", "ldp")):
        Board("digits", 2, 4, (1,), defences=("hope",))
