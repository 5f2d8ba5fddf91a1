from dataclasses import replace
from pathlib import Path

import pytest

from precad.experiments import claims, plan, table1
from precad.experiments.claims import Claim, Verdict
from precad.experiments.plan import FULL, QUICK, Experiment
from precad.experiments.rows import Row, RowFile
from precad.experiments.spread import Spread, spread
from tests.experiments.fake_rows import fill, row

TABLE = [table1.Measured("CDP", "σ", 1.0, 1.001), table1.Measured("LDP", "√n·σ", 4.0, 5.0)]


def like_the_paper(experiment: Experiment) -> Row:
    """Numbers under which every sentence of the paper is true."""
    training, malicious = experiment.config.training, experiment.config.malicious
    sigma, protocol = training.noise_multiplier, training.protocol.value
    if experiment.timed:
        return row(experiment, seconds={"plain": 0.05, "ldp": 0.1, "precad": 0.7}[protocol])
    main = 0.95 - 0.01 * sigma
    if protocol == "ldp":
        main -= 0.1 + experiment.config.task.clients / 2000
    main += malicious.clients * (0.02 if protocol == "ldp" else 0.0001)
    if malicious.attack != "backdoor":
        return row(experiment, main)
    if protocol != "precad":
        return row(experiment, main, 0.9 + 0.01 * sigma if malicious.clients else 0.0)
    backdoor = 0.001 * malicious.clients * training.client_bound / 20 / sigma
    return row(experiment, main, 0.0 if malicious.clients == 0 else backdoor)


def judged(tmp_path: Path, scale: plan.Scale = FULL) -> list[Claim]:
    rows = RowFile(tmp_path)
    for figure in (plan.figure_2, plan.figure_3, plan.figure_4, plan.figure_5):
        fill(rows, figure(scale), like_the_paper)
    return claims.judge(scale, rows, TABLE)


def test_numbers_like_the_paper_s_hold(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert [claim.sentence for claim in found if claim.verdict is not Verdict.HOLDS] == [
        "Table 1: the noise in the aggregate of LDP has standard deviation √n·σ"
    ]
    assert len(found) > 30


def test_without_runs_only_what_is_computed_is_judged(tmp_path: Path) -> None:
    found = claims.judge(FULL, RowFile(tmp_path), TABLE)
    tested = [claim for claim in found if claim.verdict is not Verdict.UNTESTED]
    assert [claim.sentence[:9] for claim in tested] == ["Table 1: ", "Table 1: ", "ε = 6.8, "]
    assert "6.86, 3.56, 2.43; rigorously 7.5" in tested[-1].ours


def test_its_runs_decide_every_claim_and_are_part_of_the_figures(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    fill(rows, claims.experiments(FULL), like_the_paper)
    assert Verdict.UNTESTED not in [claim.verdict for claim in claims.judge(FULL, rows, TABLE)]
    drawn = {run.key for figure in (plan.figure_2, plan.figure_3, plan.figure_4, plan.figure_5) for run in figure(FULL)}
    assert {run.key for run in claims.experiments(FULL)} <= drawn


def test_runs_on_backdoors_come_first_seed_by_seed() -> None:
    runs = claims.experiments(FULL)
    attacked = [run.config.malicious.clients > 0 for run in runs]
    assert attacked == sorted(attacked, reverse=True)
    seeds = [run.config.seed for run in runs if run.config.malicious.clients]
    assert seeds == sorted(seeds, key=lambda seed: seed or 0)


def test_only_the_data_sets_of_the_scale_are_judged(tmp_path: Path) -> None:
    found = claims.judge(replace(FULL, datasets=("cifar10",)), RowFile(tmp_path), TABLE)
    assert not [claim for claim in found if "mnist" in claim.sentence]


def test_a_number_on_the_other_side_refutes(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    for figure in (plan.figure_4, plan.figure_5):
        fill(rows, figure(FULL), lambda run: row(run, 0.9, 0.6))
    verdicts = {claim.sentence: claim.verdict for claim in claims.judge(FULL, rows, TABLE)}
    assert verdicts["mnist: with C = 20 the backdoor accuracy is 0 % against K = 5"] is Verdict.FAILS
    assert verdicts["mnist: 4 backdoor clients push the backdoor accuracy of non-private over 80 %"] is Verdict.FAILS
    assert verdicts["mnist, K = 10: PRECAD is more robust than LDP"] is Verdict.FAILS, "a tie is no lead"


def test_the_table_says_how_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "claims.md"
    claims.write(QUICK, judged(tmp_path, QUICK), (3, 7), "2 cores", path)
    text = path.read_text()
    assert "QUICK RUN" in text
    assert "3 of 7 runs made. 2 cores." in text
    assert "**holds (quick)**" in text
    assert "(1 seed)" in text


def test_spread() -> None:
    assert spread([]) is None
    assert spread([0.5]) == Spread(0.5, 0.0, 1)
    both = spread([0.4, 0.6])
    assert both is not None
    assert both.mean == pytest.approx(0.5)
    assert both.percent() == "50.0 ± 14.1 % (2 seeds)"
