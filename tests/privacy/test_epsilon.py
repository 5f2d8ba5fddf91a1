"""ε of participations: the sampler's share, what a budget pays for, and the σ for a wanted ε; all on the safe side."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from precad.privacy.accounting import PldAccountant, RdpAccountant
from precad.privacy.epsilon import bound, epsilon, least_sigma, most, most_participations
from precad.privacy.terms import Adversary, Terms
from tests.messages import says

TERMS = Terms(sigma=1.0, record_rate=0.05, delta=1e-5, dim=26_010)


@pytest.mark.parametrize("adversary", Adversary)
def test_the_samplers_distance_is_part_of_the_figure(adversary: Adversary) -> None:
    mechanism = TERMS.mechanism(adversary, 500)
    plain, run = PldAccountant().epsilon(mechanism, TERMS.delta), epsilon(TERMS, adversary, 500)
    assert plain <= run < plain * (1 + 1e-6)
    sampler = TERMS.sampler_delta(adversary, 500, run)
    assert PldAccountant().delta(mechanism, run) + sampler <= TERMS.delta


@pytest.mark.parametrize("delta", [1e-7, 5e-8])
def test_a_samplers_share_that_is_large_is_taken_out_of_delta(delta: float) -> None:
    """Of the largest model there is, the sampler takes a tenth of δ and more."""
    terms = replace(TERMS, sigma=1.5, delta=delta, dim=1 << 32)
    run = epsilon(terms, Adversary.SERVER, 500)
    sampler = terms.sampler_delta(Adversary.SERVER, 500, run)
    assert sampler > 0.05 * delta
    assert PldAccountant().delta(terms.mechanism(Adversary.SERVER, 500), run) + sampler <= delta
    assert math.isinf(epsilon(replace(terms, delta=1e-15), Adversary.SERVER, 500))


def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    for sigma in (0.0, 0.01):
        assert epsilon(replace(TERMS, sigma=sigma), Adversary.SERVER, 0) == 0
        assert math.isinf(epsilon(replace(TERMS, sigma=sigma), Adversary.SERVER, 1))
    trusted = replace(TERMS, unknown_to_server=0, unknown_to_clients=1)
    assert math.isinf(epsilon(trusted, Adversary.SERVER, 1))
    assert epsilon(trusted, Adversary.CLIENTS, 9) == epsilon(TERMS, Adversary.SERVER, 9)


def test_another_accountant_finds_no_less() -> None:
    assert bound(RdpAccountant(), TERMS, Adversary.SERVER, 500) > epsilon(TERMS, Adversary.SERVER, 500)
    assert bound(PldAccountant(), TERMS, Adversary.SERVER, 500) == epsilon(TERMS, Adversary.SERVER, 500)


def test_the_last_participation_within_the_budget_is_paid_for_and_the_next_is_not() -> None:
    three, four = (epsilon(TERMS, Adversary.SERVER, count) for count in (3, 4))
    assert three < four
    assert most_participations(TERMS, three, 100) == 3
    assert most_participations(TERMS, (three + four) / 2, 100) == 3
    assert most_participations(TERMS, four, 100) == 4
    assert most_participations(TERMS, four, 2) == 2
    assert most_participations(TERMS, epsilon(TERMS, Adversary.SERVER, 1) / 2, 100) == 0


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 8, 100])
@pytest.mark.parametrize("budget", range(12))
def test_the_most_by_counting(budget: int, limit: int) -> None:
    expected = max((count for count in range(limit + 1) if count <= budget), default=0)
    assert most(lambda count: count <= budget, limit) == expected
    assert expected / 1.5 <= most(lambda count: count <= budget, limit, within=1.5) <= expected


def at_sigma(adversary: Adversary) -> Callable[[float], float]:
    return lambda sigma: epsilon(replace(TERMS, sigma=sigma), adversary, 500)


@pytest.mark.parametrize("adversary", Adversary)
@pytest.mark.parametrize("wanted", [0.5, 2.0, 8.0])
def test_the_found_sigma_keeps_the_promise_and_is_the_least(wanted: float, adversary: Adversary) -> None:
    cost = at_sigma(adversary)
    sigma = least_sigma(cost, wanted)
    assert cost(sigma) <= wanted < cost(sigma * (1 - 2e-4))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (-1.0, ("epsilon", "(0, 20]", -1.0)),
        (1e9, ("epsilon", "(0, 20]", 1e9)),
        (1e-9, ("sigma", 100000, "epsilon", 1e-09)),
    ],
)
def test_an_impossible_target_is_answered_in_words(wanted: float, words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        least_sigma(at_sigma(Adversary.SERVER), wanted)
