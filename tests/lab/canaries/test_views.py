"""Each adversary sees noise of the law that is claimed for it, and nothing that it does not know."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from precad.lab.canaries.axes import Axes
from precad.lab.canaries.views import Listening, View, views
from precad.protocol.states import Role
from precad.settings import Protocol
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from tests.lab.canaries import small
from tests.stat_tests import ALPHA


def played(*, ideal: bool = False, **changes: Any) -> Listening:
    settings, randomness, problem = small.settings(**changes), Randomness.repeatable(3), small.problem(6)
    trainer = Trainer(problem, settings, randomness, ideal=ideal)
    trainer.aggregator = listening = Listening(settings, randomness, 6, ideal=ideal)
    trainer.play()
    return listening


def noise(listening: Listening, view: View) -> np.ndarray:
    """All of it: along every axis, as if each had a canary of the same client."""
    dim = listening.round.params.dim
    axes = Axes([(next(iter(listening.sent)), place) for place in range(dim)], np.eye(dim), {})
    return np.array(list(listening.noise(view, axes).values()))


@pytest.mark.parametrize("protocol", [protocol for protocol in Protocol if protocol is not Protocol.PLAIN])
def test_the_noise_has_the_claimed_law(protocol: Protocol) -> None:
    listening = played(protocol=protocol.value)
    terms = small.settings(protocol=protocol.value).terms(82)
    for view in views(protocol):
        std = terms.sigma_seen(view.against) * listening.round.params.sensitivity
        squares = float(np.square(noise(listening, view) / std).sum())
        assert ALPHA < stats.chi2.cdf(squares, 82) < 1 - ALPHA


def test_a_server_knows_its_own_noise_and_sees_the_other_s() -> None:
    listening = played()
    a, b, clients = views(Protocol.PRECAD)
    assert noise(listening, a) == pytest.approx(listening.own_noise(Role.B))
    assert noise(listening, b) == pytest.approx(listening.own_noise(Role.A))
    assert noise(listening, clients) == pytest.approx(listening.own_noise(Role.A) + listening.own_noise(Role.B))


def test_the_ideal_form_shows_the_same() -> None:
    whole, ideal = played(), played(ideal=True)
    for view in views(Protocol.PRECAD):
        assert (noise(whole, view) == noise(ideal, view)).all()
