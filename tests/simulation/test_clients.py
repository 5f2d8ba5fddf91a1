from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.simulation.problem import AttackContext
from precad.simulation.trainer import Trainer
from tests.messages import says
from tests.simulation.tiny import config, trainer

Floats = NDArray[np.float64]


def with_attack(run: Trainer, seen: list[AttackContext], sends: Floats | None = None) -> Trainer:
    """The same run, with its last two clients malicious, who note what they know."""

    def attack(context: AttackContext) -> Floats:
        seen.append(context)
        return context.update if sends is None else sends

    task = replace(run.task, attacks=dict.fromkeys(run.names[-2:], attack))
    return Trainer(task, run.hyperparameters, run.randomness)


@pytest.mark.parametrize("protocol", ["plain", "precad"])
def test_attackers_know_the_round(protocol: str) -> None:
    seen: list[AttackContext] = []
    run = with_attack(trainer(config(training={"protocol": protocol, "record_rate": 0.5})), seen)
    theta = run.progress.model.theta
    run.play()
    assert [context.client for context in seen] == ["client-05", "client-06"]
    first = seen[0]
    assert (first.selected, first.attackers, first.round.number, first.learning_rate) == (6, 2, 0, 0.5)
    assert first.theta is theta
    assert first.normaliser == pytest.approx(0.5 * 1437)
    assert first.rng.random() != seen[1].rng.random()


def test_attackers_know_mean_and_spread_of_what_honest_clients_send() -> None:
    seen: list[AttackContext] = []
    clean = trainer(config(training={"protocol": "plain"}))
    run = with_attack(clean, seen)
    run.play()
    sent = np.stack(
        [
            update
            for group in clean.clients.updates(seen[0].round, clean.names[:4], seen[0].theta)
            for update in group.raw.values()
        ]
    )
    assert np.allclose(seen[0].honest_mean, sent.mean(axis=0))
    assert np.allclose(seen[0].honest_std, sent.std(axis=0))


def test_an_honest_update_sent_by_a_malicious_client_changes_nothing() -> None:
    seen: list[AttackContext] = []
    plain = config(training={"protocol": "plain"})
    honest, run = trainer(plain), with_attack(trainer(plain), seen)
    honest.play()
    run.play()
    assert np.allclose(honest.progress.model.theta, run.progress.model.theta)


def test_a_vector_of_another_size_is_refused() -> None:
    run = with_attack(trainer(config()), [], np.zeros(3))
    with pytest.raises(PrecadError, match=says("attack of client-05", 2410, "(3,)")):
        run.play()
