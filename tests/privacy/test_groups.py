"""Groups: limits that are known exactly, both bounds, and what is refused."""

import math

import numpy as np
import pytest

from precad.privacy.accounting import GdpAccountant, PldAccountant, RdpAccountant, gdp_delta
from precad.privacy.groups import MAX_GROUP, direct_delta, generic_delta, group_epsilon
from precad.privacy.terms import Mechanism
from tests.messages import says

PLD = PldAccountant()


def test_a_group_of_one_is_one() -> None:
    mechanism = Mechanism(1.0, 0.05, 500)
    assert group_epsilon(PLD, mechanism, 1, 1e-5) == PLD.epsilon(mechanism, 1e-5)


@pytest.mark.parametrize("size", [2, 5])
def test_at_rate_one_a_group_is_a_larger_step(size: int) -> None:
    """K members move each sum by K: μ = K·√T/σ exactly."""
    found = direct_delta(Mechanism(20.0, 1.0, 16), size, 1e-3)
    for epsilon in (0.0, 0.5, 2.0):
        exact = gdp_delta(size * 4 / 20, epsilon)
        assert exact * (1 - 1e-9) <= found(epsilon) <= exact * 1.02 + 1e-9


def test_direct_accounting_bounds_the_mixture_it_stands_for() -> None:
    """One round, two members at rate 0.3: the hockey-stick divergence by summation over a fine grid."""
    sigma, rate, epsilon = 1.5, 0.3, 0.4
    x = np.linspace(-20, 25, 200_001)

    def density(shift: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.exp(-((x - shift) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))

    plain = density(0)
    mixed = (1 - rate) ** 2 * plain + 2 * rate * (1 - rate) * density(1) + rate**2 * density(2)
    width = x[1] - x[0]
    exact = max(
        float(np.maximum(0, mixed - math.exp(epsilon) * plain).sum() * width),
        float(np.maximum(0, plain - math.exp(epsilon) * mixed).sum() * width),
    )
    found = direct_delta(Mechanism(sigma, rate, 1), 2, 5e-3)(epsilon)
    assert exact * (1 - 1e-6) <= found <= exact * 1.01


def test_the_smaller_bound_counts_and_grows_with_the_group() -> None:
    mechanism = Mechanism(4.0, 0.05, 200)
    costs = [group_epsilon(PLD, mechanism, size, 1e-5) for size in (1, 2, 4)]
    assert costs[0] < costs[1] < costs[2]
    generic = generic_delta(lambda epsilon: PLD.delta(mechanism, epsilon), 4)
    assert generic(costs[2]) > 1e-5  # direct accounting is better here
    assert costs[2] <= group_epsilon(RdpAccountant(), mechanism, 4, 1e-5)


def test_where_nothing_is_left_the_cost_is_infinite() -> None:
    assert Mechanism(1.0, 1.0, 5000).hopeless(5)
    assert group_epsilon(PLD, Mechanism(1.0, 1.0, 5000), 5, 1e-5) == math.inf
    assert group_epsilon(PLD, Mechanism(1.0, 1.0, 0), 5, 1e-5) == 0


def test_refusals() -> None:
    mechanism = Mechanism(1.0, 0.1, 10)
    with pytest.raises(ValueError, match=says("gdp")):
        group_epsilon(GdpAccountant(), mechanism, 2, 1e-5)
    for size in (0, MAX_GROUP + 1):
        with pytest.raises(ValueError, match=says("K", f"[1, {MAX_GROUP}]", size)):
            group_epsilon(PLD, mechanism, size, 1e-5)
