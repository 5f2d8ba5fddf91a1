"""The ε of ``ddp`` is that of the noise that was in its rounds."""

import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray

from precad.privacy.terms import Adversary
from precad.settings import Protocol
from precad.simulation.problem import Attack, AttackContext
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from tests.messages import says
from tests.simulation.small import hyperparameters, task

SETTINGS = hyperparameters(
    rounds=30, client_rate=0.5, honest_clients=3, noise_multiplier=2.0, protocol=Protocol.DDP, record_rate=0.1
)


def silent(context: AttackContext) -> NDArray[np.float64]:
    return np.zeros_like(context.theta)


MALICIOUS: dict[str, Attack] = {"client-0": silent, "client-5": silent}


def played(attacks: bool, rounds: int = 30) -> tuple[Trainer, dict[str, Counter[int]]]:
    """A run, and how many of each honest client's rounds had how many noises, counted from what it shows."""
    run = Trainer(task(MALICIOUS if attacks else {}), SETTINGS, Randomness.repeatable(4))
    seen: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for _ in range(rounds):
        outcome = run.play()
        honest = [name for name in outcome.selected if not attacks or name not in MALICIOUS]
        assert outcome.noises == len(honest)
        for name in honest:
            seen[name][min(3, len(honest))] += 1
    return run, seen


def exact(counts: Counter[int]) -> float:
    """Each round with its own noise, composed by Google's library."""
    parts = [
        pld.from_gaussian_mechanism(
            2.0 * math.sqrt(noises / 3), sampling_prob=0.1, value_discretization_interval=1e-3, use_connect_dots=True
        ).self_compose(rounds)
        for noises, rounds in counts.items()
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return float(whole.get_epsilon_for_delta(SETTINGS.delta))


@pytest.mark.parametrize("attacks", [False, True])
def test_rounds_of_fewer_noises_cost_more(attacks: bool) -> None:
    run, seen = played(attacks)
    assert {noises for counts in seen.values() for noises in counts} >= {1, 2, 3}
    true = max(exact(counts) for counts in seen.values())
    dim, most = run.params.dim, int(run.progress.participations.max())
    promised = SETTINGS.epsilon(Adversary.SERVER, most, dim)
    assert promised < 0.9 * true
    for adversary in Adversary:
        assert true <= run.epsilon(adversary) + 1e-3
        assert run.epsilon(adversary) < 1.1 * true


def test_with_tau_noises_in_every_round_it_is_what_was_promised() -> None:
    settings = hyperparameters(rounds=3, client_rate=1.0, honest_clients=6, protocol=Protocol.DDP)
    run = Trainer(task(), settings, Randomness.private())
    for _ in run.rounds():
        pass
    promised = settings.epsilon(Adversary.SERVER, 3, run.params.dim)
    assert [run.epsilon(adversary) for adversary in Adversary] == pytest.approx([promised] * 2, rel=1e-6)


def test_a_resumed_run_knows_the_noises_of_all_its_rounds() -> None:
    run, _ = played(attacks=True, rounds=12)
    again = Trainer(task(MALICIOUS), SETTINGS, Randomness.repeatable(4), progress=run.progress)
    assert again.epsilon(Adversary.SERVER) == run.epsilon(Adversary.SERVER)
    with pytest.raises(ValueError, match="participations"):
        Trainer(task(MALICIOUS), SETTINGS, Randomness.repeatable(5), progress=run.progress)


def test_a_budget_holds_even_in_rounds_with_one_noise() -> None:
    budget = exact(Counter({1: 3}))
    run = Trainer(task(MALICIOUS), replace(SETTINGS, budget=budget), Randomness.repeatable(4))
    for _ in run.rounds():
        pass
    assert 0 < run.epsilon(Adversary.SERVER) <= budget
    assert 2 <= run.progress.participations.max() <= 3


def test_each_clients_share_of_the_noise_is_a_gaussian_on_the_grid() -> None:
    few = hyperparameters(noise_multiplier=1e-3, protocol=Protocol.DDP, honest_clients=10_000)
    with pytest.raises(ValueError, match=says("honest_clients", 10000, "grid units", 8)):
        few.params(10, 10_000)


def test_the_noise_in_the_sum_is_that_of_the_honest_clients() -> None:
    settings = hyperparameters(client_rate=1.0, honest_clients=2, noise_multiplier=500.0, protocol=Protocol.DDP)
    run = Trainer(task({f"client-{i}": silent for i in range(4)}), settings, Randomness.private())
    outcome = run.play()
    assert outcome.noises == 2
    expected = 500.0 * run.params.sensitivity * math.sqrt(run.params.dim)
    assert outcome.update_norm / expected == pytest.approx(1, abs=6 / math.sqrt(2 * run.params.dim))
