import math

import numpy as np
import pytest

from precad.lab.attacks import model_poisoning as attacks
from precad.privacy import clipping
from tests.messages import says

RNG = np.random.default_rng(5)
UPDATE = RNG.normal(size=40)


def test_boost_keeps_the_direction_at_so_many_times_c() -> None:
    sent = attacks.boost(UPDATE, 3.0, 10.0)
    assert np.linalg.norm(sent) == pytest.approx(30.0)
    assert np.allclose(sent / np.linalg.norm(sent), UPDATE / np.linalg.norm(UPDATE))
    assert np.linalg.norm(attacks.boost(np.zeros(40), 3.0, 10.0)) == pytest.approx(30.0)


@pytest.mark.parametrize("attackers", [1, 3])
def test_replacement_makes_the_next_model_the_attackers(attackers: int) -> None:
    theta, target, eta, n = RNG.normal(size=40), RNG.normal(size=40), 0.1, 300.0
    sent = attacks.model_replacement(target, theta, eta, n, attackers)
    assert np.allclose(theta + eta / n * attackers * sent, target)


def test_sign_flip_and_inner_product_point_backwards() -> None:
    assert np.array_equal(attacks.sign_flip(UPDATE, 2.0), -2 * UPDATE)
    assert np.array_equal(attacks.inner_product_manipulation(UPDATE, 2.0), -2 * UPDATE)


def test_gaussian_has_the_length_asked_for() -> None:
    """‖x‖² is norm²·χ²_d/d: within six of its standard deviations, √(2/d)."""
    squared = float((attacks.gaussian(100_000, 7.0, np.random.default_rng(1)) ** 2).sum())
    assert abs(squared / 49 - 1) < 6 * math.sqrt(2 / 100_000)


def test_a_little_is_enough_stays_within_the_honest_spread() -> None:
    """50 clients, 12 attackers: the example of Baruch et al., s = 14, Φ(z) = 24/38."""
    mean, std = np.zeros(3), np.array([1.0, 2.0, 0.0])
    sent = attacks.a_little_is_enough(mean, std, 50, 12)
    z = -float(sent[0])
    assert 0.5 * (1 + math.erf(z / math.sqrt(2))) == pytest.approx(24 / 38)
    assert np.allclose(sent, [-z, -2 * z, 0])
    assert np.all(np.isfinite(attacks.a_little_is_enough(mean, std, 10, 9)))


@pytest.mark.parametrize("length", [0.5, 30.0, 1e9])
def test_clipped_is_what_the_protocol_just_admits(length: float) -> None:
    bound, f = 30.0, 16
    sent = attacks.clipped(UPDATE * (length / np.linalg.norm(UPDATE)), bound)
    assert np.linalg.norm(sent) == pytest.approx(min(length, bound))
    grid = np.trunc(np.ldexp(sent, f)).astype(np.int64)
    assert clipping.squared_norm(grid) <= int((bound * 2**f) ** 2)


def test_impossible_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=says("factor", 0)):
        attacks.boost(UPDATE, 3.0, 0)
    with pytest.raises(ValueError, match=says("attackers", 1, 0)):
        attacks.model_replacement(UPDATE, UPDATE, 0.1, 1.0, 0)
    with pytest.raises(ValueError, match=says("attackers", "[1, 4]", "5 clients", 5)):
        attacks.a_little_is_enough(UPDATE, UPDATE, 5, 5)
