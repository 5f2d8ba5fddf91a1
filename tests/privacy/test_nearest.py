"""Where a certificate begins to mean something: each answer keeps the bound, and a little further does not."""

from dataclasses import replace

import pytest

from precad.privacy.certificate import Threat, rigorous
from precad.privacy.nearest import attacked_loss, nearest

WANTED = 0.525


def upper(threat: Threat) -> float:
    return rigorous(threat, 0.05).upper


@pytest.mark.parametrize(
    "threat",
    [
        Threat(malicious=1, rounds=5000, client_rate=0.1, noise=0.0943),
        Threat(malicious=1, rounds=2000, client_rate=0.1, noise=1.0),
        Threat(malicious=30, rounds=16, client_rate=1.0, noise=20.0),
    ],
)
def test_each_parameter_by_itself(threat: Threat) -> None:
    near = nearest(threat, 30.0, 0.05, WANTED)
    assert near.noise is not None
    assert near.client_bound == pytest.approx(30 * threat.noise / near.noise)
    assert upper(replace(threat, noise=near.noise)) < WANTED <= upper(replace(threat, noise=near.noise / 1.01))
    if near.rounds is not None:
        assert upper(replace(threat, rounds=near.rounds)) < WANTED
        assert upper(replace(threat, rounds=int(1.06 * near.rounds) + 1)) >= WANTED
    if near.client_rate is not None:
        assert upper(replace(threat, client_rate=near.client_rate)) < WANTED
        assert upper(replace(threat, client_rate=min(1.0, 1.06 * near.client_rate))) >= WANTED
    if near.malicious is not None:
        assert upper(replace(threat, malicious=near.malicious)) < WANTED
        assert upper(replace(threat, malicious=int(1.06 * near.malicious) + 1)) >= WANTED


def test_where_no_value_helps() -> None:
    """One attacker is already too many, and so is one round."""
    near = nearest(Threat(malicious=1, rounds=50, client_rate=1.0, noise=0.1), 1.0, 0.05, WANTED)
    assert near.malicious is None
    assert near.rounds is None


@pytest.mark.parametrize("noise", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("malicious", [1, 4])
def test_the_simple_attacks_stay_below_the_bound(noise: float, malicious: int) -> None:
    for rounds, rate in ((1, 1.0), (10, 0.3), (100, 0.01)):
        threat = Threat(malicious=malicious, rounds=rounds, client_rate=rate, noise=noise)
        for loss in (0.0, 0.05, 0.2, 1.0):
            assert attacked_loss(threat, loss) <= rigorous(threat, loss).upper + 1e-9
