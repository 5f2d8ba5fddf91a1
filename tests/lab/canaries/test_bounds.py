"""A claim that is true is refuted as rarely as is said; one that is not, is refuted."""

import numpy as np
import pytest
from scipy import stats

from precad.lab.canaries.bounds import ByRun, Counted
from precad.lab.canaries.findings import Measured, judge
from precad.lab.canaries.scores import claimed_scores, doubled, passing, score, stretch, thresholds
from precad.privacy.terms import Adversary, Mechanism, Terms
from precad.privacy.trade_off import TradeOff, trade_off
from tests.stat_tests import ALPHA

TERMS = Terms(sigma=1.0, record_rate=0.5, delta=1e-5, dim=10)
LAW = TERMS.mechanism(Adversary.SERVER, 4)
CLAIM = trade_off(TERMS, Adversary.SERVER, 4)


def trials(rng: np.random.Generator, number: int, noise: float = 1.0) -> tuple[Counted, np.ndarray]:
    limits = thresholds(LAW, np.random.default_rng(0))
    out, inside = (claimed_scores(LAW, rng, present=present, noise=noise)[:number] for present in (False, True))
    return Counted(passing(out, limits), number, passing(inside, limits), number), limits


def test_false_alarms_are_as_rare_as_is_said() -> None:
    rng, repeats, level = np.random.default_rng(1), 100, 0.05
    alarms = 0
    for _ in range(repeats):
        counted, limits = trials(rng, 500)
        alarms += len(limits) * counted.p_values(CLAIM).min() <= level
    assert stats.binom.sf(alarms - 1, repeats, level) > ALPHA


def test_each_threshold_by_itself_is_as_rare_too() -> None:
    """At one threshold there is no union bound to hide behind: the worst case of a claim, on its curve."""
    rng, repeats, level = np.random.default_rng(2), 2000, 0.05
    alpha = 0.2
    power = float(CLAIM.power(np.array([alpha]))[0])
    out, inside = rng.binomial(200, alpha, repeats), rng.binomial(300, power, repeats)
    alarms = int((Counted(out, 200, inside, 300).p_values(CLAIM) <= level).sum())
    assert stats.binom.sf(alarms - 1, repeats, level) > ALPHA
    assert alarms > 0


def test_less_noise_is_refuted_as_foretold() -> None:
    counted, limits = trials(np.random.default_rng(3), 2000)
    measured = Measured("server", "test", 4000, limits, counted, CLAIM, 5.0, 1e-5, LAW)
    found = judge(measured, 1e-4, 1.0, np.random.default_rng(4))
    assert not found.caught
    assert found.would_catch is not None
    less, _ = trials(np.random.default_rng(5), 2000, noise=found.would_catch - 0.1)
    assert len(limits) * less.p_values(CLAIM).min() <= 1e-4


def test_bounds_hold_and_are_those_of_clopper_and_pearson() -> None:
    counted = Counted(np.array([0, 3, 10]), 10, np.array([0, 7, 10]), 10)
    most, least = counted.bounds(0.01)
    assert most == pytest.approx([stats.beta.ppf(0.99, 1, 10), stats.beta.ppf(0.99, 4, 7), 1.0])
    assert least == pytest.approx([0.0, stats.beta.ppf(0.01, 7, 4), stats.beta.ppf(0.01, 10, 1)])


@pytest.mark.parametrize("together", [False, True], ids=["independent", "all canaries of a run alike"])
def test_bets_hold_however_the_canaries_of_a_run_depend_on_each_other(together: bool) -> None:
    rng, repeats, level, canaries, runs = np.random.default_rng(6), 300, 0.05, 20, 40
    claim, alarms, outside = TradeOff(np.zeros(1), np.array([0.2])), 0, 0
    for _ in range(repeats):
        present = rng.random((runs, canaries)) < 0.5
        luck = rng.random((runs, 1 if together else canaries)) * np.ones((1, canaries))
        passed = luck < np.where(present, 0.5, 0.3)
        rates = ByRun((passed & ~present).mean(1)[:, None], (passed & present).mean(1)[:, None])
        alarms += int((rates.p_values(claim) <= level)[0])
        most, least = rates.bounds(level / 2)
        outside += bool(most[0] < 0.3 or least[0] > 0.5)
    assert stats.binom.sf(alarms - 1, repeats, level) > ALPHA
    assert stats.binom.sf(outside - 1, repeats, level) > ALPHA


def test_bets_refute_what_is_false() -> None:
    rng = np.random.default_rng(7)
    present = rng.random((60, 20)) < 0.5
    passed = rng.random((60, 20)) < np.where(present, 0.9, 0.1)
    rates = ByRun((passed & ~present).mean(1)[:, None], (passed & present).mean(1)[:, None])
    assert rates.p_values(TradeOff(np.zeros(1), np.array([0.2])))[0] < 1e-5
    assert rates.p_values(TradeOff(np.zeros(1), np.array([0.85])))[0] > 0.05


def test_scores_are_likelihood_ratios() -> None:
    z, law = np.array([-3.0, 0.0, 0.5, 4.0]), Mechanism(1.5, 0.3, 1)
    ratio = np.log(0.7 + 0.3 * stats.norm.pdf(z, 1, 1.5) / stats.norm.pdf(z, 0, 1.5))
    assert score(z, law) == pytest.approx(ratio - ratio[1])
    certain = Mechanism(1.5, 1.0, 1)
    assert score(z, certain) == pytest.approx(z / 1.5**2)
    assert doubled(law).noise_multiplier == pytest.approx(1.5 * 2**0.5)
    assert stretch(Mechanism(2.0, 0.2, 1)) == 23


def test_thresholds_are_the_same_for_the_same_claim_and_tell_apart_what_has_no_noise() -> None:
    first, again = (thresholds(LAW, np.random.default_rng(0)) for _ in range(2))
    assert (first == again).all()
    step = score(np.ones(1), LAW)[0]
    assert ((first > 0) & (first < step)).any()
