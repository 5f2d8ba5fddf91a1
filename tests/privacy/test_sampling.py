"""Poisson samples."""

import numpy as np
import pytest
from scipy import stats

from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy.sampling import poisson_sample
from tests.messages import says
from tests.stat_tests import ALPHA


def stream(purpose: Purpose = Purpose.SAMPLE, round_: int = 0) -> Stream:
    return Stream(Secret(bytes(32)), purpose, Context(Digest(bytes(32)), round_, "client"))


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5, 0.999])
def test_each_index_is_picked_with_its_probability(rate: float) -> None:
    """The number picked of 10^6 is binomial: two-sided exact test at ALPHA; a rate 2 % off is rejected."""
    size = 1_000_000
    picked = len(poisson_sample(stream(), size, rate))
    assert stats.binomtest(picked, size, rate).pvalue > ALPHA
    if rate == 0.5:
        assert stats.binomtest(picked, size, 0.51).pvalue < ALPHA


def test_indices_are_picked_independently_of_each_other_and_of_the_round() -> None:
    """Neighbouring indices, and the same index in two rounds, are picked together with probability p²."""
    size, rate = 400_000, 0.3
    first, second = (np.zeros(size, bool) for _ in range(2))
    first[poisson_sample(stream(round_=0), size, rate)] = True
    second[poisson_sample(stream(round_=1), size, rate)] = True
    pairs = [(first & second), (first[::2] & first[1::2])]
    for both in pairs:
        assert stats.binomtest(int(both.sum()), both.size, rate**2).pvalue > ALPHA


def test_a_rate_of_one_picks_all_and_none_of_nothing() -> None:
    assert poisson_sample(stream(), 5, 1.0).tolist() == [0, 1, 2, 3, 4]
    assert poisson_sample(stream(), 0, 0.5).size == 0


def test_what_is_not_a_rate_or_not_a_stream_for_samples_is_refused() -> None:
    for rate in (0.0, -0.1, 1.2, float("nan")):
        with pytest.raises(ValueError, match=says("rate", "(0, 1]", rate)):
            poisson_sample(stream(), 5, rate)
    with pytest.raises(ValueError, match="a stream of their own"):
        poisson_sample(stream(Purpose.NOISE), 5, 0.5)
