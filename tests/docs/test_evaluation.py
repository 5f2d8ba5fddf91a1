"""The committed claims are what the committed rows say."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from precad.lab.paper import claims, plan, table1
from precad.lab.paper.reproduce import TABLE_SEED
from precad.lab.paper.rows import RowFile

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "evaluation"
CIFAR_ROUNDS = 500
"""That was affordable."""


def test_the_claims_are_those_of_the_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes((FOLDER / "rows.jsonl").read_bytes())
    scale, found = plan.with_rounds(plan.FULL, {"cifar10": CIFAR_ROUNDS}), RowFile(tmp_path)
    claims.write(scale, claims.judge(scale, found, table1.measure(TABLE_SEED)), found, "", tmp_path / "claims.md")
    written, committed = (folder / "claims.md" for folder in (tmp_path, FOLDER))
    rows = [[line for line in path.read_text().splitlines() if line.startswith("|")] for path in (written, committed)]
    assert rows[0] == rows[1]


def test_the_page_has_the_table_of_the_rows() -> None:
    command = [sys.executable, str(ROOT / "scripts/backdoor_table.py"), str(FOLDER)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed in (ROOT / "docs" / "results.md").read_text()
