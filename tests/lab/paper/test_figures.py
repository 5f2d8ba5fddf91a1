from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from precad.lab.paper import figures, plan
from precad.lab.paper.plan import FULL, QUICK, Experiment, Method
from precad.lab.paper.reproduce import FIGURES
from precad.lab.paper.rows import Row, RowFile
from tests.lab.paper.fake_rows import fill, row

PNG = b"\x89PNG"


def make(experiment: Experiment) -> Row:
    backdoor = 0.3 if experiment.config.malicious.attack == "backdoor" else None
    return row(experiment, 0.9, backdoor)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures as they are saved."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *args: Any, **kwargs: Any) -> None:
        kept.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_the_paper_s_panels_and_say_that_they_are_quick(
    name: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    rows = RowFile(tmp_path)
    fill(rows, FIGURES[name].runs(QUICK), make)
    FIGURES[name].draw(QUICK, rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(PNG)
    (figure,) = drawn
    assert len(figure.axes) == (2 if name == "fig2" else 4)
    assert "QUICK RUN" in figure.get_suptitle()
    assert all(axes.lines for axes in figure.axes)


@pytest.mark.parametrize("name", FIGURES)
def test_what_was_not_run_is_named_so(name: str, tmp_path: Path, drawn: list[Figure]) -> None:
    FIGURES[name].draw(QUICK, RowFile(tmp_path), tmp_path / "figure.png")
    empty = drawn[0].axes[1]
    assert not empty.lines
    assert [text.get_text() for text in empty.texts] == ["not run"]


def test_bars_reach_from_the_lowest_seed_to_the_highest(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = RowFile(tmp_path)
    for seed, backdoor in ((1, 0.97), (2, 0.01), (3, 0.01)):
        rows.add(row(plan.attacked(FULL, "mnist", Method("precad"), 10, seed), 0.9, backdoor))
    figures.draw_figure_4(FULL, rows, tmp_path / "figure.png")
    ((_, lowest), (_, highest)) = drawn[0].axes[1].collections[0].get_segments()[0]  # type: ignore[attr-defined]
    assert (lowest, highest) == pytest.approx((1.0, 97.0))


def test_figure_2_shows_both_accountants(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.draw_figure_2(FULL, RowFile(tmp_path), tmp_path / "figure.png")
    ends = [float(line.get_ydata()[-1]) for line in drawn[0].axes[0].lines[:3]]  # type: ignore[index, arg-type]
    assert ends == pytest.approx([6.86, 1.07, 7.52], abs=0.02)
    assert "QUICK" not in drawn[0].get_suptitle()
    assert "mnist: 0 of 9 runs of 5000 rounds, 0 seeds" in drawn[0].get_suptitle()


def test_figure_2_takes_runs_that_ended_early(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = RowFile(tmp_path)
    first, second = (plan.clean(FULL, "mnist", Method("precad"), 100, seed) for seed in (1, 2))
    rows.add(replace(row(first), rounds=[200, 400], accuracy=[0.5, 0.6]))
    rows.add(replace(row(second), rounds=[400], accuracy=[0.1], diverged=300))
    figures.draw_figure_2(FULL, rows, tmp_path / "figure.png")
    curve = drawn[0].axes[1].lines[0].get_ydata()
    assert list(curve) == pytest.approx([50.0, 35.0])  # type: ignore[arg-type]


def test_seeds_that_agree_have_a_bar_of_no_length(tmp_path: Path, drawn: list[Figure]) -> None:
    """The mean of three times 0.173 is rounded to a little less."""
    rows = RowFile(tmp_path)
    for seed in FULL.seeds:
        rows.add(row(plan.attacked(FULL, "mnist", Method("precad"), 10, seed), 0.173, 0.173))
    figures.draw_figure_4(FULL, rows, tmp_path / "figure.png")
    assert list(drawn[0].axes[0].lines[0].get_ydata()) == pytest.approx([17.3])  # type: ignore[arg-type]
