import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from precad.lab.paper import plan
from precad.lab.paper.plan import FULL, QUICK, Method, Scale
from precad.protocol.params import Normalise, Validation
from precad.settings import Protocol, from_table, to_toml
from tests.messages import says


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_every_run_is_a_valid_configuration_with_a_key_of_its_own(scale: Scale) -> None:
    figures = (plan.figure_2, plan.figure_3, plan.figure_4, plan.figure_5)
    runs = {run.key: run for figure in figures for run in figure(scale)}
    assert len({(to_toml(run.config), run.timed) for run in runs.values()}) == len(runs)
    for run in runs.values():
        assert run.config.training.normalise is Normalise.REALISED


def test_a_key_is_that_of_the_configuration() -> None:
    run = plan.clean(QUICK, "mnist", Method("precad", 2.0), 100, 1)
    again = plan.Experiment(from_table(tomllib.loads(to_toml(run.config))))
    assert again.key == run.key
    assert replace(run, timed=True).key != run.key
    assert plan.clean(QUICK, "mnist", Method("precad", 2.0), 100, 2).key != run.key


def test_figures_share_runs() -> None:
    third = {run.key for run in plan.figure_3(FULL)}
    assert {run.key for run in plan.figure_2(FULL)} <= third
    fourth = {run.key for run in plan.figure_4(FULL)}
    shared = fourth & {run.key for run in plan.figure_5(FULL)}
    assert len(shared) == 2 * 2 * 3 * len(FULL.seeds)


def test_the_paper_s_settings() -> None:
    clean = plan.clean(FULL, "mnist", Method("precad", 1.5), 100, 1).config.training
    assert (clean.rounds, clean.client_rate, clean.record_rate, clean.record_bound) == (5000, 0.1, 0.05, 2.0)
    assert (clean.learning_rate, clean.noise_multiplier, clean.validation) == (0.1, 1.5, Validation.NONE)
    attacked = plan.attacked(FULL, "cifar10", Method("precad"), 3, 1, 20.0).config
    assert (attacked.training.client_bound, attacked.training.validation) == (20.0, Validation.PROOF)
    assert (attacked.malicious.clients, attacked.malicious.attack, attacked.malicious.within_bound) == (
        3,
        "backdoor",
        True,
    )
    ldp = plan.attacked(FULL, "mnist", Method("ldp"), 4, 1).config.training
    assert (ldp.protocol, ldp.clip_after_noise, ldp.client_bound) == (Protocol.LDP, True, 30.0)
    assert not plan.attacked(FULL, "mnist", Method("plain"), 4, 1).config.malicious.within_bound


def test_no_sample_that_occurs_is_cut_where_clipping_is_off() -> None:
    """75 records of norm R; a client of n = 100 samples Binomial(600, 0.05): 8.4 standard deviations below 75."""
    assert plan.UNCLIPPED == 75 * 2.0
    assert (75 - 600 * 0.05) / (600 * 0.05 * 0.95) ** 0.5 > 8


def test_another_length() -> None:
    short = plan.with_rounds(FULL, plan.read_rounds(["10", "cifar10=500"]))
    assert short.rounds == {"mnist": 10, "cifar10": 500}
    assert short.evaluate_every == {"mnist": 2, "cifar10": 100}
    assert plan.with_rounds(FULL, {}) == FULL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", ("rounds", 1, "'0'")),
        ("-1", ("rounds", 1, "'-1'")),
        ("x", ("rounds", 1, "'x'")),
        ("mnist=", ("rounds", 1, "''")),
        ("digits=5", ("rounds", "'digits'", "mnist", "cifar10")),
    ],
)
def test_a_length_is_a_number(text: str, words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        plan.read_rounds([text])


def test_a_person_s_own_attack_is_another_one_when_its_module_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = set[str]()
    for text in ("def creep(context): return 0", "def creep(context): return 1"):
        (tmp_path / "mine_too.py").write_text(text)
        config = plan.attacked(FULL, "mnist", Method("plain"), 4, 1).config
        config = replace(config, malicious=replace(config.malicious, attack="mine_too:creep"))
        keys.add(plan.Experiment(config).key)
    assert len(keys) == 2
