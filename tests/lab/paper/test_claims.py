import re
from dataclasses import replace
from pathlib import Path

import pytest

from precad.lab.paper import claims, plan, table1
from precad.lab.paper.evidence import Claim, Verdict, backdoors_compared, compared, pushed
from precad.lab.paper.plan import FULL, QUICK, Experiment
from precad.lab.paper.rows import Row, RowFile, Spread, spread
from tests.lab.paper.fake_rows import fill, row

TABLE = [table1.Measured("CDP", "σ", 1.0, 1.001), table1.Measured("LDP", "√n·σ", 4.0, 5.0)]


def like_the_paper(experiment: Experiment) -> Row:
    """Numbers under which every sentence of the paper is true."""
    training, malicious = experiment.config.training, experiment.config.malicious
    sigma, protocol = training.noise_multiplier, training.protocol.value
    if experiment.timed:
        seconds = {"plain": 0.05, "ldp": 0.1, "precad": 0.7}[protocol]
        return row(experiment, seconds=seconds * experiment.config.task.clients / 100)
    clients = experiment.config.task.clients
    main = 0.95 - 0.01 * sigma
    main -= 0.1 + clients / 2000 if protocol == "ldp" else 0.5 / clients
    main += malicious.clients * (0.02 if protocol == "ldp" else 0.0001)
    if malicious.attack != "backdoor":
        return row(experiment, main)
    if protocol != "precad":
        return row(experiment, main, 0.8 + 0.01 * malicious.clients + 0.01 * sigma if malicious.clients else 0.0)
    bound = {10.0: 0.0, 20.0: 1.0, 30.0: 2.0, 50.0: 3.0}[training.client_bound]
    few = malicious.clients <= (5 if experiment.config.task.dataset == "mnist" else 1)
    return row(experiment, main, 0.0 if few and bound == 1 else 0.2 * bound / sigma)


def judged(tmp_path: Path, scale: plan.Scale = FULL) -> list[Claim]:
    rows = RowFile(tmp_path)
    for runs in (claims.experiments, plan.figure_2, plan.figure_3, plan.figure_4, plan.figure_5):
        fill(rows, runs(scale), like_the_paper)
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
    assert [claim.sentence[:9] for claim in tested] == ["Table 1: ", "Table 1: ", "ε = 6.8, ", "ε is alwa"]
    assert "6.86, 3.56, 2.43; rigorously, for a client in q·T rounds, 7.5" in tested[2].ours
    assert tested[3].verdict is Verdict.HOLDS


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


def test_runs_are_of_the_scale_s_data_sets_and_claims_of_all(tmp_path: Path) -> None:
    scale = replace(FULL, datasets=("cifar10",))
    assert {run.config.task.dataset for run in claims.experiments(scale)} == {"cifar10"}
    found = claims.judge(scale, RowFile(tmp_path), TABLE)
    assert {claim.dataset for claim in found} == {None, "mnist", "cifar10"}


def test_a_number_on_the_other_side_refutes(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    for figure in (plan.figure_4, plan.figure_5):
        fill(rows, figure(FULL), lambda run: row(run, 0.9, 0.6))
    verdicts = {claim.sentence: claim.verdict for claim in claims.judge(FULL, rows, TABLE)}
    assert verdicts["mnist: with C = 20 the backdoor accuracy is 0 % against K = 5"] is Verdict.FAILS
    merely = "merely 4 backdoor clients can increase the backdoor accuracy of non-private from 0 % to more than 80 %"
    assert verdicts[f"mnist: {merely}"] is Verdict.FAILS
    assert verdicts["mnist, K = 10: PRECAD, σ = 2 is more robust than LDP, σ = 2"] is Verdict.FAILS, "a tie is no lead"


def test_the_backdoor_of_a_model_that_has_not_learnt_does_not_count(tmp_path: Path) -> None:
    rows, ldp = RowFile(tmp_path), plan.Method("ldp", 1.0)
    rows.add(row(plan.attacked(FULL, "mnist", ldp, 0, 1), 0.9, 0.0))
    for seed, main, verdict in ((1, 0.2, Verdict.UNTESTED), (2, 0.9, Verdict.HOLDS)):
        rows.add(row(plan.attacked(FULL, "mnist", ldp, 4, seed), main, 1.0))
        found = {claim.sentence: claim for claim in claims.judge(FULL, rows, TABLE)}
        merely = "merely 4 backdoor clients can increase the backdoor accuracy of LDP, σ = 1 from 0 % to more than 80 %"
        claim = found[f"mnist: {merely}"]
        assert claim.verdict is verdict
    assert claim.ours == "100.0 % (1 seed); without attackers: 0.0 % (1 seed)", "the first still does not count"


def test_seeds_that_only_one_side_has_do_not_count() -> None:
    claim = compared("", ("a", {1: 0.9, 2: 0.1}), ("b", {1: 0.8, 3: 0.99}))
    assert claim.verdict is Verdict.HOLDS
    assert claim.ours == "a: 90.0 % (1 seed); b: 80.0 % (1 seed)"
    assert compared("", ("a", {1: 0.9}), ("b", {2: 0.1})).verdict is Verdict.UNTESTED
    assert compared("", ("a", {1: 0.9}), ("b", {1: 0.905}), -0.01).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (1.0, 0.96, Verdict.UNTESTED),
        (0.02, 0.01, Verdict.UNTESTED),
        (1.0, 0.9, Verdict.HOLDS),
        (0.01, 0.9, Verdict.FAILS),
    ],
)
def test_two_absent_or_complete_backdoors_have_no_order(first: float, second: float, verdict: Verdict) -> None:
    assert backdoors_compared("", ("a", {1: first}), ("b", {1: second})).verdict is verdict


@pytest.mark.parametrize(
    ("attacked", "control", "verdict"),
    [
        ({1: 0.9}, {1: 0.0}, Verdict.HOLDS),
        ({1: 0.9}, {1: 0.9}, Verdict.UNTESTED),
        ({1: 0.9}, {}, Verdict.UNTESTED),
        ({1: 0.5}, {}, Verdict.FAILS),
        ({}, {1: 0.0}, Verdict.UNTESTED),
    ],
)
def test_a_model_that_takes_all_for_the_attackers_label_is_no_success_of_theirs(
    attacked: dict[int, float], control: dict[int, float], verdict: Verdict
) -> None:
    assert pushed("", attacked, control, 0.8).verdict is verdict


def test_the_table_says_how_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "claims.md"
    claims.write(QUICK, judged(tmp_path, QUICK), RowFile(tmp_path), "2 cores", path)
    text = path.read_text()
    assert "QUICK RUN" in text
    assert re.search(r"- mnist: (\d+) of \1 runs of 200 rounds made, 0.0 core hours\n", text)
    assert "\n- 2 cores\n" in text
    assert "**holds (quick)**" in text
    assert "(1 seed)" in text


def test_another_length_than_the_paper_s_stands_by_the_verdict(tmp_path: Path) -> None:
    path, scale = tmp_path / "claims.md", plan.with_rounds(FULL, {"cifar10": 500})
    claims.write(scale, judged(tmp_path, scale), RowFile(tmp_path), "2 cores", path)
    lines = path.read_text().splitlines()
    assert all(line.endswith("**holds (500 rounds)** |") for line in lines if line.startswith("| cifar10"))
    assert all(line.endswith("**holds** |") for line in lines if line.startswith("| mnist"))


def test_spread() -> None:
    assert spread([]) is None
    assert spread([0.5]) == Spread(0.5, 0.0, 0.5, 0.5, 1)
    both = spread([0.4, 0.6])
    assert both is not None
    assert (both.mean, both.lowest, both.highest) == pytest.approx((0.5, 0.4, 0.6))
    assert both.percent() == "50.0 ± 14.1 % (2 seeds)"
