"""The costs of a plan: units, groups, noise modes, the sampler's term, and what is refused."""

import json
import math
import re

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.privacy.epsilon import epsilon
from precad.privacy.plan import Plan, costs
from precad.privacy.terms import SAMPLER_DISTANCE, Adversary
from tests.messages import says

run = CliRunner().invoke


def plan(**changes: object) -> Plan:
    known = {"rounds": 5000, "client_rate": 0.1, "record_rate": 0.05, "delta": 1e-5}
    return Plan(**(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sigma", "server", "clients"), [(1.0, 7.524, 4.138), (1.5, 3.785, 2.344), (2.0, 2.532, 1.636)]
)
def test_the_figures_that_are_quoted(sigma: float, server: float, clients: float) -> None:
    figures = costs(plan(), sigma, None).figures
    assert round(figures[Adversary.SERVER]["pld"], 3) == server
    assert round(figures[Adversary.CLIENTS]["pld"], 3) == clients


def test_the_noise_mode_against_clients_is_weaker_by_the_root_of_two() -> None:
    """Each server adds σ/√2: a server then sees what it would see of σ/√2, and clients see σ."""
    weaker = costs(plan(noise=Adversary.CLIENTS), 1.0, None).figures
    assert weaker[Adversary.CLIENTS]["pld"] == pytest.approx(7.524, abs=5e-4)
    assert weaker[Adversary.SERVER]["pld"] > 10
    assert weaker[Adversary.CLIENTS]["paper_invalid"] > 1.069


def test_the_unit_client() -> None:
    known = {"unit": "client", "rounds": 50}
    figures = costs(plan(**known), 10.0, None).figures
    hidden = costs(plan(hidden=True, **known), 10.0, None).figures
    assert hidden[Adversary.SERVER] == figures[Adversary.SERVER]
    assert hidden[Adversary.CLIENTS]["pld"] < figures[Adversary.CLIENTS]["pld"] < figures[Adversary.SERVER]["pld"]
    assert "paper_invalid" not in figures[Adversary.CLIENTS]


def test_a_group_costs_more_and_in_the_end_everything() -> None:
    one, two = (costs(plan(group=size), 4.0, None).figures[Adversary.SERVER] for size in (1, 2))
    assert all(one[key] < two[key] for key in ("pld", "rdp", "gdp"))
    found = costs(plan(group=50), 1.0, None)
    assert found.as_json()["server"]["pld"] is None
    json.dumps(found.as_json(), allow_nan=False)
    assert "no ε holds at this δ" in found.notes()


def test_the_samplers_term_is_shown_and_twice_against_clients() -> None:
    figures = costs(plan(dim=1000), 2.0, None).figures
    for adversary, draws in ((Adversary.SERVER, 1000), (Adversary.CLIENTS, 2000)):
        expected = (1 + math.exp(figures[adversary]["pld"])) * 500 * draws * SAMPLER_DISTANCE
        assert figures[adversary]["sampler_delta"] == pytest.approx(expected)


def test_a_target_is_met_by_whom_the_noise_is_for() -> None:
    for noise in Adversary:
        found = costs(plan(noise=noise), None, 2.0)
        assert 1.99 < found.figures[noise]["pld"] <= 2.0
    grouped = costs(plan(group=2), None, 2.0)
    assert epsilon(plan().terms(grouped.sigma), Adversary.SERVER, 500) < 1
    assert grouped.figures[Adversary.SERVER]["pld"] <= 2.0


def test_sigma_and_a_target_give_the_rounds() -> None:
    found = costs(plan(), 2.0, 2.532)
    assert found.plan.rounds == pytest.approx(5000, rel=5e-3)
    assert found.figures[Adversary.SERVER]["pld"] <= 2.532
    assert found.as_json()["rounds"] == found.plan.rounds


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sigma", "1", "--record-rate", "1.2"], ("--record-rate", "(0, 1]", 1.2)),
        (["--sigma", "1", "--client-rate", "0"], ("--client-rate", "(0, 1]", 0.0)),
        (["--sigma", "1", "--delta", "0"], ("--delta", 0.0)),
        (["--sigma", "1", "--group", "0"], ("--group", "[1, 1000]", 0)),
        (["--sigma", "1", "--dim", "0"], ("--dim", "[1, 2^32]", 0)),
        (["--sigma", "1", "--hidden"], ("--hidden", "--unit client")),
        (["--sigma", "1", "--target-epsilon", "0.1"], ("epsilon", 0.1)),
        (["--sigma", "1", "--target-epsilon", "3", "--participations", "9"], ("--participations", "⌈q·T⌉")),
        (["--sigma", "nan"], ("sigma", "nan")),
        (["--target-epsilon", "-2"], ("epsilon", "(0, 20]", -2.0)),
        (["--target-epsilon", "1e-7"], ("epsilon", "sigma")),
        (["--sigma", "1", "--unit", "dog"], ("--unit", "dog")),
    ],
)
def test_nonsense_is_answered_with_the_range(options: list[str], words: tuple[object, ...]) -> None:
    result = run(app, ["privacy", *options])
    assert result.exit_code == 2
    assert re.search(says(*words), " ".join(result.output.split()))
    assert "Traceback" not in result.output
