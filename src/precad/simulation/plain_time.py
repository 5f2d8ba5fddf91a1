"""How long a round of plain training takes: what the cost of a run is compared with."""

import statistics
import time
from dataclasses import replace

from precad.errors import PrecadError
from precad.simulation.hyperparameters import Hyperparameters, Protocol
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer

ROUNDS = 3
LONGEST = 2.0
"""Seconds after which no further round is timed."""


def plain_seconds(task: Problem, hyperparameters: Hyperparameters, device: str) -> float | None:
    """The median of some rounds with the same model, clients and rates: no clipping, shares, proofs, noise or attacks.

    Nothing of them is kept but their time. None where they fail, as plain training may.
    """
    plain = replace(
        hyperparameters, protocol=Protocol.PLAIN, rounds=1 + ROUNDS, budget=None, defence=None, clip_after_noise=False
    )
    try:
        trainer = Trainer(replace(task, attacks={}), plain, Randomness.private(), device=device)
        trainer.play()  # loads what the next ones use
        begun, seconds = time.perf_counter(), list[float]()
        while len(seconds) < ROUNDS and (not seconds or time.perf_counter() - begun < LONGEST):
            seconds.append(sum(trainer.play().seconds.values()))
    except (PrecadError, ValueError):
        return None
    return statistics.median(seconds)
