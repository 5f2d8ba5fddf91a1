"""Accountants: one suite for all of them, the figures of the paper and of the specification, independent checks."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from precad.privacy import accounting
from precad.privacy.accounting import (
    Accountant,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    paper_clients_epsilon,
)
from precad.privacy.terms import Adversary, Mechanism, Terms
from tests.messages import says

ACCOUNTANTS: list[Accountant] = [PldAccountant(interval=1e-3), RdpAccountant(), GdpAccountant()]
RIGOROUS = [accountant for accountant in ACCOUNTANTS if accountant.rigorous]
DELTA = 1e-5

FIGURES = {
    # σ: GDP server, GDP clients, PLD server, PLD clients, the paper's own clients figure, PLD server with REPLACE_ONE
    1.0: (6.858, 3.88, 7.524, 4.138, 1.069, 12.14),
    1.5: (3.564, 2.25, 3.785, 2.344, 0.632, 7.04),
    2.0: (2.426, 1.59, 2.532, 1.636, 0.450, 4.98),
}
"""T = 5000, q = 0.1, p = 0.05, δ = 1e-5, T_i = 500."""


def seen(adversary: Adversary, sigma: float) -> Mechanism:
    return Terms(sigma=sigma, record_rate=0.05, delta=DELTA, dim=1).mechanism(adversary, 500)


@pytest.mark.parametrize("sigma", FIGURES)
def test_the_figures_of_the_specification(sigma: float) -> None:
    gdp_server, gdp_clients, pld_server, pld_clients, paper, replaced = FIGURES[sigma]
    gdp, pld = GdpAccountant(), PldAccountant()
    assert gdp.epsilon(seen(Adversary.SERVER, sigma), DELTA) == pytest.approx(gdp_server, abs=5e-4)
    assert gdp.epsilon(seen(Adversary.CLIENTS, sigma), DELTA) == pytest.approx(gdp_clients, abs=5e-3)
    assert pld.epsilon(seen(Adversary.SERVER, sigma), DELTA) == pytest.approx(pld_server, abs=5e-4)
    assert pld.epsilon(seen(Adversary.CLIENTS, sigma), DELTA) == pytest.approx(pld_clients, abs=5e-4)
    claimed = paper_clients_epsilon(sigma=sigma, record_rate=0.05, client_rate=0.1, rounds=5000, delta=DELTA)
    assert claimed == pytest.approx(paper, abs=5e-4)
    exchanged = PldAccountant(replace_one=True).epsilon(seen(Adversary.SERVER, sigma), DELTA)
    assert exchanged == pytest.approx(replaced, abs=5e-3)


@pytest.mark.parametrize("sigma", FIGURES)
def test_the_central_limit_figure_is_too_small(sigma: float) -> None:
    """The paper's accountant lies below the rigorous one, and RDP above it."""
    for adversary in Adversary:
        mechanism = seen(adversary, sigma)
        gdp, pld, rdp = (a.epsilon(mechanism, DELTA) for a in (GdpAccountant(), PldAccountant(), RdpAccountant()))
        assert gdp < pld < rdp
    assert not GdpAccountant().rigorous


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: repr(a))
class TestEveryAccountant:
    def test_nothing_released_costs_nothing(self, accountant: Accountant) -> None:
        idle = Mechanism(1.0, 0.1, 0)
        assert accountant.epsilon(idle, DELTA) == 0
        assert accountant.delta(idle, 1.0) == 0

    @settings(max_examples=10)
    @given(st.floats(0.8, 5), st.floats(0.01, 0.5), st.integers(1, 200))
    def test_less_noise_more_records_more_rounds_cost_more(
        self, accountant: Accountant, sigma: float, rate: float, steps: int
    ) -> None:
        cost = accountant.epsilon(Mechanism(sigma, rate, steps), DELTA)
        slack = 1e-3 + 1e-3 * cost
        assert accountant.epsilon(Mechanism(sigma * 1.2, rate, steps), DELTA) <= cost + slack
        assert accountant.epsilon(Mechanism(sigma, rate / 2, steps), DELTA) <= cost + slack
        assert accountant.epsilon(Mechanism(sigma, rate, steps + 50), DELTA) >= cost - slack
        assert accountant.epsilon(Mechanism(sigma, rate, steps), DELTA / 10) >= cost - slack

    @settings(max_examples=10)
    @given(st.floats(0.8, 5), st.floats(0.01, 1.0), st.integers(1, 100))
    def test_epsilon_and_delta_agree(self, accountant: Accountant, sigma: float, rate: float, steps: int) -> None:
        mechanism = Mechanism(sigma, rate, steps)
        epsilon = accountant.epsilon(mechanism, DELTA)
        assert accountant.delta(mechanism, epsilon) <= DELTA * (1 + 1e-6)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
    def test_a_wrong_delta_is_named(self, accountant: Accountant, delta: float) -> None:
        with pytest.raises(ValueError, match=says("delta", "(0, 1)")):
            accountant.epsilon(Mechanism(1.0, 0.1, 10), delta)


@pytest.mark.parametrize("accountant", RIGOROUS, ids=lambda a: repr(a))
@pytest.mark.parametrize("steps", [1, 4, 100])
def test_at_rate_one_rigorous_accountants_bound_the_exact_gaussian(accountant: Accountant, steps: int) -> None:
    """T Gaussian mechanisms are one, of noise σ/√T, whose δ(ε) is known in closed form (μ = √T/σ)."""
    sigma = 4.0
    exact = accounting.gdp_delta(math.sqrt(steps) / sigma, 1.0)
    found = accountant.delta(Mechanism(sigma, 1.0, steps), 1.0)
    assert found >= exact * (1 - 1e-9)
    if isinstance(accountant, PldAccountant):
        assert found == pytest.approx(exact, rel=2e-2, abs=1e-9)


def hockey_stick(sigma: float, rate: float, epsilon: float) -> float:
    """δ(ε) of one subsampled Gaussian by numerical integration, the worse of both directions."""

    def mixture(x: float) -> float:
        return float((1 - rate) * stats.norm.pdf(x, 0, sigma) + rate * stats.norm.pdf(x, 1, sigma))

    def plain(x: float) -> float:
        return float(stats.norm.pdf(x, 0, sigma))

    reach = 12 * sigma
    directions = [(mixture, plain), (plain, mixture)]
    return max(  # type: ignore[no-any-return]
        integrate.quad(lambda x, p=p, q=q: max(0.0, p(x) - math.exp(epsilon) * q(x)), -reach, reach + 1, limit=500)[0]
        for p, q in directions
    )


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.05), (0.8, 0.3), (2.0, 0.5)])
def test_one_step_against_numerical_integration(sigma: float, rate: float, epsilon: float) -> None:
    exact = hockey_stick(sigma, rate, epsilon)
    found = PldAccountant().delta(Mechanism(sigma, rate, 1), epsilon)
    assert exact * (1 - 1e-6) <= found <= exact * 1.01 + 1e-9


def independent_delta(sigma: float, rate: float, steps: int, epsilon: float) -> tuple[float, float]:
    """δ(ε) of the composition by a second accountant of our own: privacy losses on a grid, convolved by FFT.

    Losses rounded down and rounded up, for the direction (mixture ‖ plain), which is the worse one: a lower and an
    upper bound.
    """
    width, count = 2e-4, 1 << 18
    x = np.linspace(-14 * sigma, 14 * sigma + 1, 2_000_001)
    edges = stats.norm.cdf(x, 0, sigma), stats.norm.cdf(x, 1, sigma)
    mass = (1 - rate) * np.diff(edges[0]) + rate * np.diff(edges[1])
    middle = (x[1:] + x[:-1]) / 2
    bounds = []
    for shift, round_ in ((-1, np.floor), (1, np.ceil)):
        ends = middle + shift * (x[1] - x[0]) / 2
        loss = np.log1p(rate * np.expm1((2 * ends - 1) / (2 * sigma**2)))
        cells = np.zeros(count)
        np.add.at(cells, round_(loss / width).astype(int) % count, mass)
        composed = np.fft.irfft(np.fft.rfft(cells) ** steps, count)
        values = width * (np.arange(count) - count * (np.arange(count) >= count // 2))
        above = values > epsilon
        bounds.append(float((composed[above] * -np.expm1(epsilon - values[above])).sum()))
    return bounds[0], bounds[1]


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.05, 20), (2.0, 0.1, 50), (1.5, 0.05, 500)])
def test_composition_against_an_independent_accountant(sigma: float, rate: float, steps: int) -> None:
    for epsilon in (0.5, 1.0, 2.0):
        low, high = independent_delta(sigma, rate, steps, epsilon)
        found = PldAccountant().delta(Mechanism(sigma, rate, steps), epsilon)
        assert low * (1 - 1e-3) - 1e-12 <= found <= high * 1.05 + 1e-12


def test_the_paper_claims_less_than_any_bound_allows() -> None:
    """Counterexample of §7a: C = 30, 599 other records that move the sum tell when the client took part."""
    claimed = paper_clients_epsilon(sigma=1.0, record_rate=0.05, client_rate=0.1, rounds=5000, delta=DELTA)
    assert claimed < 1.07
    assert PldAccountant().epsilon(seen(Adversary.CLIENTS, 1.0), DELTA) > 4.1


def test_a_hopeless_mechanism_has_no_epsilon_at_once() -> None:
    """The last one would keep the accountant busy for hours, and need gigabytes."""
    for mechanism in (Mechanism(1.0, 0.05, 10**8), Mechanism(0.05, 1.0, 10**6), Mechanism(1e3, 1e-4, 10**9)):
        assert math.isinf(PldAccountant().epsilon(mechanism, DELTA))
        assert PldAccountant().delta(mechanism, 1.0) == 1.0


def test_a_wider_grid_where_losses_are_large_is_still_a_bound() -> None:
    """At rate 1 the exact ε is known."""
    mechanism = Mechanism(0.1, 1.0, 2)
    exact = accounting.gdp_epsilon(math.sqrt(2) / 0.1, DELTA)
    assert exact <= PldAccountant().epsilon(mechanism, DELTA) < exact * 1.001
