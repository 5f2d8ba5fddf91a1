"""The claimed trade-off curve is that of the mechanism, from above."""

import numpy as np
import pytest
from scipy import stats

from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary, Terms
from precad.privacy.trade_off import trade_off

ALPHAS = np.array([1e-4, 0.01, 0.1, 0.3, 0.5, 0.9])


def terms(sigma: float, rate: float) -> Terms:
    return Terms(sigma=sigma, record_rate=rate, delta=1e-5, dim=100)


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 1), (2.0, 1), (3.0, 9)])
def test_without_sampling_it_is_the_gaussian_curve(sigma: float, rounds: int) -> None:
    exact = stats.norm.cdf(stats.norm.ppf(ALPHAS) + rounds**0.5 / sigma)
    found = trade_off(terms(sigma, 1.0), Adversary.SERVER, rounds).power(ALPHAS)
    assert (found >= exact).all()
    assert found == pytest.approx(exact, abs=2e-3)


def test_with_sampling_it_is_above_the_best_test_s_and_near_it_where_few_are_wrongly_accused() -> None:
    sigma, rate = 1.0, 0.2
    exact = (1 - rate) * ALPHAS + rate * stats.norm.cdf(stats.norm.ppf(ALPHAS) + 1 / sigma)
    found = trade_off(terms(sigma, rate), Adversary.SERVER, 1).power(ALPHAS)
    assert (found >= exact).all()
    assert found[:3] == pytest.approx(exact[:3], abs=2e-3)


def test_the_printed_epsilon_is_a_point_of_it() -> None:
    claim = trade_off(terms(2.0, 0.2), Adversary.SERVER, 50)
    cost = epsilon(terms(2.0, 0.2), Adversary.SERVER, 50)
    assert np.interp(cost, claim.epsilons, claim.deltas) == pytest.approx(1e-5, rel=0.1)


def test_clients_see_less() -> None:
    server, clients = (trade_off(terms(1.0, 0.2), adversary, 10).power(ALPHAS) for adversary in Adversary)
    assert (clients < server).all()


def test_no_participation_tells_nothing_and_no_noise_promises_nothing() -> None:
    assert trade_off(terms(1.0, 0.2), Adversary.SERVER, 0).power(ALPHAS) == pytest.approx(ALPHAS)
    assert (trade_off(terms(0.0, 0.2), Adversary.SERVER, 5).power(ALPHAS) == 1).all()
