"""Terms: what each adversary sees (PROTOCOL §7a), the sampler's share of δ, and what is refused."""

import math
from dataclasses import replace

import pytest

from precad.privacy import noise, terms
from precad.privacy.terms import Adversary, Mechanism, Terms
from tests.messages import says

TERMS = Terms(sigma=1.0, record_rate=0.05, delta=1e-5, dim=26_010)


def test_the_sampling_of_clients_does_not_amplify_a_record() -> None:
    """PROTOCOL §7a: a client's other records show when it took part. Only T_i matters."""
    for adversary in Adversary:
        assert TERMS.mechanism(adversary, 500).rate == 0.05
        assert TERMS.mechanism(adversary, 500).steps == 500


def test_the_client_unit() -> None:
    """Server (1, T_i, σ); clients (q, T, √2·σ) if participation is hidden, else (1, T_i, √2·σ)."""
    seen = replace(TERMS, record_rate=1.0)
    hidden = replace(seen, client_rate=0.1, hidden_rounds=50)
    assert hidden.mechanism(Adversary.SERVER, 5) == Mechanism(1.0, 1.0, 5)
    assert seen.mechanism(Adversary.CLIENTS, 5) == Mechanism(math.sqrt(2), 1.0, 5)
    assert hidden.mechanism(Adversary.CLIENTS, 5) == Mechanism(math.sqrt(2), 0.1, 50)


def test_whom_the_noise_is_for_sees_sigma() -> None:
    """Paper, Table 1: σ each, or σ/√2 each."""
    for whom in Adversary:
        weakest = replace(TERMS, sigma=whom.noise_of_each(2.0))
        assert weakest.sigma_seen(whom) == pytest.approx(2.0, rel=1e-15)
    assert Adversary.CLIENTS.noise_of_each(2.0) == 2.0 / math.sqrt(2)


def test_every_number_of_an_unknown_noise_is_in_the_samplers_share() -> None:
    """And one more against a server, that more records are drawn than a client computes on at all times."""
    assert terms.SAMPLER_DISTANCE == noise.DISTANCE
    all_drawn = replace(TERMS, record_rate=1.0)
    for given, server in ((TERMS, 26_011), (all_drawn, 26_010)):
        for adversary, draws in ((Adversary.SERVER, server), (Adversary.CLIENTS, 2 * 26_010)):
            expected = (1 + math.e) * 500 * draws * noise.DISTANCE
            assert given.sampler_delta(adversary, 500, 1.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sigma": "x"}, ("terms", "x")),
        ({"dim": 1.5}, ("terms", 1.5)),
        ({"sigma": -1.0}, ("sigma", 0, -1.0)),
        ({"sigma": math.inf}, ("sigma", 0, math.inf)),
        ({"record_rate": 0.0}, ("record_rate", "(0, 1]", 0.0)),
        ({"delta": 0}, ("delta", "(0, 1)", 0)),
        ({"dim": 0}, ("dim", 1, 0)),
    ],
)
def test_terms_out_of_range_are_refused(changed: dict[str, float], words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        replace(TERMS, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0.0, 0.1, 10), ("sigma", 0.05, 0.0)),
        ((1.0, 1.2, 10), ("rate", "(0, 1]", 1.2)),
        ((1.0, 0.0, 10), ("rate", "(0, 1]", 0.0)),
        ((1.0, 0.1, -3), ("rounds", 0, -3)),
        ((1.0, 0.1, 2.5), ("rounds", 0, 2.5)),
    ],
)
def test_a_wrong_mechanism_is_named(values: tuple[float, float, int], words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        Mechanism(*values)
