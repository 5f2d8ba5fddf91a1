"""Poisson samples."""

from math import comb

import numpy as np
import pytest
from scipy import stats

from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy.sampling import filled_sample, most_drawn, poisson_sample
from precad.privacy.terms import SAMPLER_DISTANCE
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


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.05, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("records", [1, 2, 6, 20, 57, 200, 1500])
def test_the_most_that_is_drawn_is_the_least_number_with_so_small_a_tail(records: int, rate: float) -> None:
    """The tail of the binomial law in whole numbers, over a common denominator; M is as small as that allows."""
    (of, whole), most = rate.as_integer_ratio(), most_drawn(records, rate)
    law = [comb(records, most) * of**most * (whole - of) ** (records - most)]
    for k in range(most, records):
        law.append(law[-1] * (records - k) * of // ((k + 1) * (whole - of)))
    one = int(SAMPLER_DISTANCE * 2**74) * whole**records
    assert sum(law[1:]) << 74 <= one < sum(law) << 74


def test_the_most_that_is_drawn_of_many() -> None:
    assert most_drawn(60_000, 0.01) == 854
    assert most_drawn(10**9, 1e-3) < 1_010_500


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.9, 1.0])
@pytest.mark.parametrize(("size", "declared"), [(1, 1), (6, 6), (5, 20), (200, 200), (1, 300)])
def test_a_filled_sample_is_the_sample_and_a_fixed_number(size: int, declared: int, rate: float) -> None:
    for round_ in range(50):
        indices, drawn = filled_sample(stream(round_=round_), size, rate, declared)
        assert indices[:drawn].tolist() == poisson_sample(stream(round_=round_), size, rate).tolist()
        assert len(indices) == (size if rate == 1 else most_drawn(declared, rate))
        assert set(indices[:size].tolist()) <= set(range(size))
        assert len(set(indices[:size].tolist())) == min(size, len(indices))


def test_no_record_that_was_drawn_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With probability η more are drawn than M: the sum is exact all the same."""
    monkeypatch.setattr("precad.privacy.sampling.most_drawn", lambda _records, _rate: 3)
    indices, drawn = filled_sample(stream(), 200, 0.5, 200)
    assert drawn == len(indices) > 3
    assert indices.tolist() == poisson_sample(stream(), 200, 0.5).tolist()
