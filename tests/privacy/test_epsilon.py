"""ε of participations: the sampler's share, what a budget pays for, and the σ for a wanted ε; all on the safe side."""

import math
from collections.abc import Callable
from dataclasses import replace

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from precad.privacy.accounting import PldAccountant, RdpAccountant
from precad.privacy.epsilon import bound, epsilon, least_sigma, most, most_participations, total
from precad.privacy.terms import Adversary, Composition, Mechanism, Spent, Terms
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
    assert bound(RdpAccountant(), [Spent(TERMS, 500)], Adversary.SERVER, TERMS.delta) > epsilon(
        TERMS, Adversary.SERVER, 500
    )
    assert bound(PldAccountant(), [Spent(TERMS, 500)], Adversary.SERVER, TERMS.delta) == epsilon(
        TERMS, Adversary.SERVER, 500
    )


def test_the_last_participation_within_the_budget_is_paid_for_and_the_next_is_not() -> None:
    three, four = (epsilon(TERMS, Adversary.SERVER, count) for count in (3, 4))
    assert three < four
    assert most_participations(TERMS, three, 100) == 3
    assert most_participations(TERMS, (three + four) / 2, 100) == 3
    assert most_participations(TERMS, four, 100) == 4
    assert most_participations(TERMS, four, 2) == 2
    assert most_participations(TERMS, epsilon(TERMS, Adversary.SERVER, 1) / 2, 100) == 0
    assert most_participations(replace(TERMS, sigma=0.0), 50.0, 100) == 0


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


OTHER = replace(TERMS, sigma=2.0, record_rate=0.01, dim=500)
WHOLE = replace(TERMS, sigma=9.0, record_rate=1.0)
RUNS = [Spent(TERMS, 300), Spent(OTHER, 2000), Spent(WHOLE, 40)]


@pytest.mark.parametrize("adversary", Adversary)
def test_a_total_is_below_the_sum_and_above_each(adversary: Adversary) -> None:
    each = [epsilon(run.terms, adversary, run.participations) for run in RUNS]
    together = total(RUNS, adversary, TERMS.delta)
    assert max(each) < together < sum(each)
    assert bound(RdpAccountant(), RUNS, adversary, TERMS.delta) > together
    for run, cost in zip(RUNS, each, strict=True):
        assert total([run], adversary, TERMS.delta) == cost, "of one run, its own figure to the last digit"
        assert total([run, Spent(OTHER, 0)], adversary, TERMS.delta) == cost


@pytest.mark.parametrize("adversary", Adversary)
def test_a_total_is_the_composition_by_hand(adversary: Adversary) -> None:
    """With Google's library alone, all on the grid of 5e-4; a finer one finds a little less."""

    def by_hand(grid: float) -> float:
        composed = pld.identity(value_discretization_interval=grid)
        for run in RUNS:
            once = pld.from_gaussian_mechanism(
                run.terms.sigma * (1 if adversary is Adversary.SERVER else math.sqrt(2)),
                value_discretization_interval=grid,
                sampling_prob=run.terms.record_rate,
                neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
            )
            composed = composed.compose(once.self_compose(run.participations))
        return float(composed.get_epsilon_for_delta(TERMS.delta * (1 - 1e-6)))

    found = total(RUNS, adversary, TERMS.delta)
    assert found == pytest.approx(by_hand(5e-4), rel=1e-9)
    assert by_hand(2e-4) <= found < by_hand(2e-4) * 1.001


def test_runs_under_the_same_terms_are_one_longer_run() -> None:
    parts = [Spent(TERMS, 120), Spent(OTHER, 7), Spent(TERMS, 380)]
    assert total(parts[::2], Adversary.SERVER, TERMS.delta) == epsilon(TERMS, Adversary.SERVER, 500)
    assert total(parts, Adversary.SERVER, TERMS.delta) > epsilon(TERMS, Adversary.SERVER, 500)


@settings(max_examples=20)
@given(st.permutations([*RUNS, Spent(replace(OTHER, dim=9, delta=1e-7), 3)]), st.sampled_from(Adversary))
def test_the_order_of_runs_does_not_matter(runs: list[Spent], adversary: Adversary) -> None:
    assert bound(PldAccountant(), runs, adversary, 1e-5) == total(reversed(runs), adversary, 1e-5)


def test_every_run_s_sampler_takes_its_share() -> None:
    large = [Spent(replace(TERMS, sigma=sigma, delta=0.5, dim=1 << 32), 250) for sigma in (1.5, 1.6)]
    found = total(large, Adversary.SERVER, 1e-7)
    shares = [run.terms.sampler_delta(Adversary.SERVER, 250, found) for run in large]
    without = total([Spent(replace(run.terms, dim=1), 250) for run in large], Adversary.SERVER, 1e-7)
    assert min(shares) > 0.02 * 1e-7
    assert found > without
    assert without == pytest.approx(
        total([large[0], Spent(replace(large[1].terms, dim=1), 250)], Adversary.SERVER, 1e-7), rel=0.02
    )
    assert math.isinf(total(large, Adversary.SERVER, 1e-15))


def test_hidden_rounds_are_hidden_in_each_run() -> None:
    """Two runs of T rounds, in which others cannot see who took part, are 2·T rounds at rate q."""
    hidden = replace(WHOLE, client_rate=0.1, hidden_rounds=100)
    twice = total([Spent(hidden, 10), Spent(hidden, 12)], Adversary.CLIENTS, 1e-5)
    assert twice == epsilon(replace(hidden, hidden_rounds=200), Adversary.CLIENTS, 22)
    assert twice > epsilon(hidden, Adversary.CLIENTS, 22)
    assert total([Spent(hidden, 10), Spent(hidden, 12)], Adversary.SERVER, 1e-5) == epsilon(WHOLE, Adversary.SERVER, 22)


def test_groups_over_runs() -> None:
    pair, other, whole = (replace(terms, group=2) for terms in (TERMS, OTHER, WHOLE))
    runs = [Spent(pair, 30), Spent(other, 200), Spent(whole, 4)]
    assert total(runs[:1], Adversary.SERVER, 1e-5) == epsilon(pair, Adversary.SERVER, 30)
    together = total(runs, Adversary.SERVER, 1e-5)
    single = total([Spent(replace(run.terms, group=1), run.participations) for run in runs], Adversary.SERVER, 1e-5)
    assert max(total([run], Adversary.SERVER, 1e-5) for run in runs) < together
    assert single < together < bound(RdpAccountant(), runs, Adversary.SERVER, 1e-5)
    with pytest.raises(ValueError, match=says(1, 2)):
        total([Spent(TERMS, 1), Spent(pair, 1)], Adversary.SERVER, 1e-5)


def test_one_run_without_noise_costs_everything() -> None:
    bare = Spent(replace(TERMS, sigma=0.0), 1)
    assert math.isinf(total([*RUNS, bare], Adversary.SERVER, 1e-5))
    assert math.isfinite(total([*RUNS, replace(bare, participations=0)], Adversary.SERVER, 1e-5))
    assert total([], Adversary.SERVER, 1e-5) == 0
    far = [Mechanism(sigma, 1.0, 50) for sigma in (0.2, 0.21)]
    assert all(math.isfinite(PldAccountant().epsilon(each, 1e-5)) for each in far)
    assert math.isinf(PldAccountant().epsilon(Composition.of(far), 1e-5)), "too far apart only together"
