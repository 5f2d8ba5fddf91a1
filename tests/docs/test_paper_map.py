"""The map from the paper to the code is whole, and every name on it exists."""

import re

import pytest

from tests.docs.pages import ROOT, defines

MAP = (ROOT / "docs/paper_map.md").read_text()
NAMES = re.findall(r"`([\w/]+\.py):([\w.]+)`", MAP)


def first_cells(heading: str) -> list[str]:
    """The first column of the table under a heading."""
    section = MAP.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]


def lines_of(heading: str) -> set[int]:
    return {int(number) for cell in first_cells(heading) for number in re.findall(r"\d+", cell)}


def test_every_line_of_both_algorithms() -> None:
    assert lines_of("Algorithm 1, PRECAD") == set(range(1, 8))
    assert lines_of("Algorithm 2, local update") == set(range(1, 9))


def test_every_theorem_lemma_table_and_figure() -> None:
    stated = [cell.split(",")[0] for cell in first_cells("Theorems, lemmas, definitions")]
    wanted = ["Definition 1", "Theorem 1", "Theorem 2", "Appendix A", *(f"Lemma {i}" for i in range(1, 9))]
    assert set(stated) == set(wanted)
    wanted = ["Table 1", "Table 2", *(f"Figure {i}" for i in range(1, 8))]
    assert first_cells("Tables and figures") == wanted


@pytest.mark.parametrize(("file", "dotted"), sorted(set(NAMES)))
def test_every_name_exists(file: str, dotted: str) -> None:
    folder = "tests" if file.split("/")[-1].startswith("test_") else "src/precad"
    assert (ROOT / folder / file).is_file()
    assert defines(ROOT / folder / file, dotted)


def test_every_line_of_the_map_names_code_and_a_test() -> None:
    for line in MAP.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[2] != "code":
            assert re.match(r"`[\w/]+\.py:\w", cells[2]), line
            assert re.match(r"`(\w+/)*test_\w+\.py:\w", cells[3]), line
