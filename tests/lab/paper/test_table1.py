from pathlib import Path

from precad.lab.paper import table1


def test_every_mechanism_has_the_paper_s_noise(tmp_path: Path) -> None:
    """Five standard errors of a seeded measurement: it holds always or never."""
    measured = table1.measure(1)
    assert [row.name.split(",")[0] for row in measured] == ["CDP", "LDP", "DDP", "PRECAD", "PRECAD"]
    assert all(row.holds for row in measured)
    table1.write(measured, tmp_path / "table1.md")
    assert (tmp_path / "table1.md").read_text().count("| holds |") == 5


def test_another_noise_does_not_hold() -> None:
    assert not table1.Measured("CDP", "σ", 1.0, 1.03).holds
    assert not table1.Measured("CDP", "σ", 1.0, 0.97).holds
