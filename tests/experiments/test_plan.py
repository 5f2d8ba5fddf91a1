import tomllib
from dataclasses import replace

import pytest

from precad.experiments import plan
from precad.experiments.plan import FULL, QUICK, Method, Scale
from precad.learning.config import from_table, to_toml
from precad.learning.hyperparameters import Protocol
from precad.params import Normalise, Validation


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
    short = plan.with_rounds(FULL, 10)
    assert short.rounds == {"mnist": 10, "cifar10": 10}
    assert short.evaluate_every["mnist"] == 2
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        plan.with_rounds(FULL, 0)
