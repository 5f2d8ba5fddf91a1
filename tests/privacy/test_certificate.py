"""The certificate: the trial figures, its limits, and that it bounds what an attack can do."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from precad.privacy import certificate
from precad.privacy.certificate import Threat, as_in_the_paper, certified_accuracy, check_applies, rigorous
from precad.privacy.nearest import least_noise
from tests.messages import says


@pytest.mark.parametrize(
    ("malicious", "rounds", "noise"), [(1, 500, 1.486), (1, 100, 0.795), (5, 500, 6.83), (5, 100, 3.10)]
)
def test_the_least_noise_for_a_bound_of_one_half(malicious: int, rounds: int, noise: float) -> None:
    """Clean error 0.05, q = 0.1."""
    threat = Threat(malicious=malicious, rounds=rounds, client_rate=0.1, noise=1.0)
    assert least_noise(threat, 0.05, 0.5) == pytest.approx(noise, rel=5e-3)


def test_at_the_papers_settings_the_certificate_is_vacuous() -> None:
    """σ = 1, R = 2, C = 30, T = 5000, q = 0.1: the paper's Theorem 2 says nothing there, and neither do we."""
    threat = Threat(malicious=1, rounds=5000, client_rate=0.1, noise=math.sqrt(2) * 2 / 30)
    for bounds in (rigorous(threat, 0.05), as_in_the_paper(threat, 0.05)):
        assert bounds.vacuous
        assert (bounds.lower, bounds.upper) == (0.0, 1.0)


def exact_upper(mu: float, loss: float) -> float:
    """The largest probability of an event under N(μ, 1) that has probability L under N(0, 1) (Neyman-Pearson)."""
    return float(stats.norm.cdf(stats.norm.ppf(loss) + mu))


@pytest.mark.parametrize("noise", [2.0, 5.0, 20.0])
@pytest.mark.parametrize("malicious", [1, 3])
def test_with_all_clients_it_is_the_trade_off_function_of_a_gaussian(noise: float, malicious: int) -> None:
    """q = 1: K attackers shift T Gaussians by K each; μ = K·√T/σ̃ exactly, and the best attack is known."""
    threat = Threat(malicious=malicious, rounds=4, client_rate=1.0, noise=noise)
    exact = exact_upper(malicious * 2 / noise, 0.05)
    found = rigorous(threat, 0.05).upper
    assert exact * (1 - 1e-6) <= found <= exact * 1.02 + 1e-3


def test_an_attack_stays_below_the_bound() -> None:
    """A simulated worst case: the sum is shifted by C whenever the attacker is selected, and a threshold is tested."""
    threat = Threat(malicious=1, rounds=20, client_rate=0.3, noise=2.0)
    generator = np.random.default_rng(0)
    runs = 200_000
    clean = generator.standard_normal(runs) * 2.0 * math.sqrt(20)
    attacked = clean + generator.binomial(20, 0.3, runs)
    for loss in (0.01, 0.05, 0.2):
        threshold = np.quantile(clean, 1 - loss)
        bounds = rigorous(threat, loss)
        assert float((attacked > threshold).mean()) <= bounds.upper + 0.005
        assert bounds.lower <= loss <= bounds.upper


@settings(max_examples=5)
@given(st.floats(2.0, 20.0), st.floats(0.0, 1.0), st.integers(1, 3))
def test_bounds_contain_the_clean_loss_and_grow_with_the_attackers(noise: float, loss: float, malicious: int) -> None:
    threat = Threat(malicious=malicious, rounds=10, client_rate=0.5, noise=noise)
    more = Threat(malicious=malicious + 2, rounds=10, client_rate=0.5, noise=noise)
    bounds, worse = rigorous(threat, loss), rigorous(more, loss)
    assert 0 <= bounds.lower <= loss <= bounds.upper + 1e-12 <= 1 + 1e-9
    assert worse.upper >= bounds.upper - 1e-3


def test_a_larger_loss_scales_the_bounds() -> None:
    threat = Threat(malicious=1, rounds=10, client_rate=0.5, noise=5.0)
    one, ten = rigorous(threat, 0.05), rigorous(threat, 0.5, largest_loss=10.0)
    assert ten.upper == pytest.approx(10 * one.upper)
    assert ten.lower == pytest.approx(10 * one.lower)


def test_forged_proofs_are_part_of_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    threat = Threat(malicious=1, rounds=10, client_rate=1.0, noise=50.0)
    before = rigorous(threat, 0.05).upper
    monkeypatch.setattr(certificate, "FORGERY", 1e-3)
    assert rigorous(threat, 0.05).upper > before + 0.005


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"malicious": 0}, ("K", "[1, 1000]", 0)),
        ({"client_rate": 1.5}, ("(0, 1]", 1.5)),
        ({"noise": -1.0}, ("noise", 0, -1.0)),
    ],
)
def test_a_wrong_threat_is_named(changes: dict[str, float], words: tuple[object, ...]) -> None:
    known = {"malicious": 1, "rounds": 10, "client_rate": 0.1, "noise": 1.0}
    with pytest.raises(ValueError, match=says(*words)):
        Threat(**(known | changes))  # type: ignore[arg-type]


def test_a_wrong_loss_is_named() -> None:
    threat = Threat(malicious=1, rounds=10, client_rate=0.1, noise=1.0)
    with pytest.raises(ValueError, match=says("clean loss", "[0, 1.0]", 1.5)):
        rigorous(threat, 1.5)
    with pytest.raises(ValueError, match=says("clean loss", 0.01)):
        least_noise(threat, 0.05, 0.01)


class TestCertifiedAccuracy:
    THREAT = Threat(malicious=5, rounds=10, client_rate=1.0, noise=50.0)

    def test_what_is_certified_by_hand(self) -> None:
        """300 runs, worst error 0.2: P(error > 0.2) ≤ 1 − 0.01^(1/300), and μ = 5·√10/50."""
        found = certified_accuracy(self.THREAT, [0.1] * 299 + [0.2], 0.99)
        attacked = exact_upper(5 * math.sqrt(10) / 50, 1 - 0.01 ** (1 / 300))
        assert found.accuracy_kept == 0.8
        assert found.probability == pytest.approx(1 - attacked, abs=2e-3)
        assert found.expected_accuracy == pytest.approx(0.8 * found.probability)

    def test_more_runs_say_more_and_more_attackers_leave_less(self) -> None:
        few, many = (certified_accuracy(self.THREAT, [0.1] * runs, 0.99).expected_accuracy for runs in (10, 1000))
        assert few < many < 0.9
        worse = certified_accuracy(replace(self.THREAT, malicious=10), [0.1] * 1000, 0.99)
        assert worse.expected_accuracy < many

    def test_the_confidence_is_kept(self) -> None:
        """Errors uniform on [0, 1], where P(error > x) = 1 − x is known; 90 % confidence, 20 runs, 20,000 trials."""
        trials = 20_000
        worst = np.random.default_rng(0).random((trials, 20)).max(axis=1)
        failures = int((1 - worst > 1 - 0.1 ** (1 / 20)).sum())
        assert stats.binom.sf(failures - 1, trials, 0.1) > 1e-6
        assert stats.binom.cdf(failures, trials, 0.1) > 1e-6

    @pytest.mark.parametrize(
        ("errors", "confidence", "words"),
        [
            ([], 0.99, ("clean run",)),
            ([0.1, 1.2], 0.99, ("error", "[0, 1]", 1.2)),
            ([0.1], 1.0, ("confidence", "(0, 1)", 1.0)),
        ],
    )
    def test_refusals(self, errors: list[float], confidence: float, words: tuple[object, ...]) -> None:
        with pytest.raises(ValueError, match=says(*words)):
            certified_accuracy(self.THREAT, errors, confidence)


def test_a_run_without_a_certificate_is_refused_with_the_reason() -> None:
    check_applies(normalise="constant", validation="triples")
    with pytest.raises(ValueError, match=says("validation", "none", "proof", "triples")):
        check_applies(normalise="constant", validation="none")
    with pytest.raises(ValueError, match=says("normalise", "realised", "constant")):
        check_applies(normalise="realised", validation="proof")


def test_who_is_never_selected_does_no_harm() -> None:
    """With next to no noise, an attack is what happens when one is selected: L' ≤ L + B·(1 − (1 − q)^(K·T))."""
    for noise in (1e-300, 0.094):
        threat = certificate.Threat(malicious=5, rounds=1, client_rate=0.1, noise=noise)
        assert certificate.rigorous(threat, 0.05).upper == pytest.approx(0.05 + 1 - 0.9**5, abs=1e-9)
        assert certificate.as_in_the_paper(threat, 0.05).vacuous


@pytest.mark.parametrize("largest", [float("nan"), float("inf"), 0.0, -1.0])
def test_the_largest_loss_is_a_number(largest: float) -> None:
    threat = certificate.Threat(malicious=1, rounds=1, client_rate=0.1, noise=1.0)
    with pytest.raises(ValueError, match="largest loss must be"):
        certificate.rigorous(threat, 0.0, largest)
