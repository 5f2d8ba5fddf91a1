"""A run from its first round, or from where it was cut off, to its last."""

import logging
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from precad import __version__
from precad.errors import PrecadError
from precad.files import whole_file
from precad.privacy.terms import Adversary
from precad.report.manifest import PAGE
from precad.report.page import write_report
from precad.report.run import About, RoundFigures, Summary, read_run
from precad.settings import Hyperparameters, Protocol
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
from precad.simulation.run_folder import RunFolder
from precad.simulation.trainer import Outcome, Trainer
from precad.tables import finite

SAVE_SECONDS = 2.0
"""The most seconds between two checkpoints; the rounds after the last one are played again."""
PLAIN_ROUNDS, PLAIN_LONGEST = 3, 2.0
"""How many rounds of plain training are timed, and the seconds after which no further one is."""


@dataclass(frozen=True)
class Figures:
    """Where a run stands after a round."""

    round: int
    """Counted from 1."""
    accuracy: float | None
    """The part of the test set that the model gets right; None without a test set."""
    loss: float | None
    """The mean loss on the test set."""
    epsilon_server: float
    """What the run has cost the client that took part most often, against a server; of ``ddp``, any at most."""
    epsilon_clients: float
    """The same against the other clients."""


OnRound = Callable[[Outcome, Figures | None], None]
"""Called after every round, with figures where the test set was looked at."""


def play(trainer: Trainer, run: RunFolder | None, evaluate_every: int, on_round: OnRound) -> Figures:
    """Play the rounds that are left. A run that is stopped, by whatever, goes on from its last checkpoint."""
    saved, last = time.monotonic(), trainer.hyperparameters.rounds
    figures, written = None, trainer.progress
    if written.round == 0:
        trainer.tell_uncounted()
    if run is not None:
        run.describe(_about(trainer))
        trainer.repeat({line.round: line.fingerprint for line in run.rounds()})
    if run is not None and written.round == 0:
        run.save(written)  # the first weights: a round that is played again is the same round
    try:
        for outcome in trainer.rounds():
            looked = outcome.round % evaluate_every == 0 or outcome.round == last
            figures = measure(trainer) if looked else None
            if run is not None:
                run.append(_line(outcome, figures, trainer))
                written = trainer.progress
                if time.monotonic() - saved > SAVE_SECONDS:
                    run.save(written)
                    saved = time.monotonic()
            on_round(outcome, figures)
    except KeyboardInterrupt:
        if run is not None:
            run.save(written)
        raise
    finally:
        trainer.close_ledger()
    if run is not None:
        run.save(trainer.progress)
    return figures or measure(trainer)


def measure(trainer: Trainer) -> Figures:
    """The present figures."""
    score = trainer.score() if trainer.task.test is not None else None
    return Figures(
        trainer.progress.round,
        score.accuracy if score else None,
        score.loss if score else None,
        trainer.epsilon(Adversary.SERVER),
        trainer.epsilon(Adversary.CLIENTS),
    )


def finish(trainer: Trainer, run: RunFolder, figures: Figures) -> Summary:
    """Leave the model, the summary and the page in the folder. A page that fails takes nothing with it."""
    summary = summarise(trainer, run, figures)
    with whole_file(run.path / "model.pt") as out:  # torch itself would report a full disk as a bug of its own
        state = trainer.trained_model().state_dict()
        torch.save({name: _alone(value) for name, value in state.items()}, out)
    try:
        write_report([replace(read_run(run.path), summary=summary)], run.path / PAGE)
    except Exception as error:
        logging.getLogger(__name__).warning("the run is whole, but its page was not written: %s", error)
    run.finish(summary)
    return summary


def summarise(trainer: Trainer, run: RunFolder, figures: Figures) -> Summary:
    """The end of a run, in figures; an ε that does not exist is null."""
    seconds, rejected = Counter[str](), Counter[str]()
    for line in run.rounds():
        seconds.update(line.seconds)
        rejected.update(line.rejected.keys())
    counts = dict(zip(trainer.names, trainer.progress.participations.tolist(), strict=True))
    return Summary(
        run=run.path.resolve().name,
        version=__version__,
        protocol=trainer.hyperparameters.protocol.value,
        validation=trainer.hyperparameters.validation.value,
        rounds=figures.round,
        parameters=trainer.params.dim,
        clients=len(trainer.names),
        test_accuracy=figures.accuracy,
        test_loss=finite(figures.loss),
        backdoor_accuracy=None if trainer.task.backdoor is None else trainer.backdoor_score().accuracy,
        epsilon_server=finite(figures.epsilon_server),
        epsilon_clients=finite(figures.epsilon_clients),
        delta=trainer.hyperparameters.delta,
        participations=max(counts.values()),
        rejected={name: {"rejected": times, "sent": counts[name]} for name, times in sorted(rejected.items())},
        seconds=dict(seconds),
        plain_seconds=plain_seconds(trainer.task, trainer.hyperparameters, run.machine.device),
        seed=trainer.randomness.seed,
        randomness=trainer.randomness.said,
    )


def plain_seconds(task: Problem, hyperparameters: Hyperparameters, device: str) -> float | None:
    """How long a round of plain training takes, with which the cost of a run is compared.

    Returns:
        The median of some rounds with the same model, clients and rates: no clipping, shares, proofs, noise or
        attacks. Nothing of them is kept but their time. None for a run that is plain itself, or where they fail, as
        plain training may.
    """
    if hyperparameters.protocol is Protocol.PLAIN:
        return None
    plain = replace(
        hyperparameters,
        protocol=Protocol.PLAIN,
        rounds=1 + PLAIN_ROUNDS,
        budget=None,
        defence=None,
        clip_after_noise=False,
    )
    try:
        trainer = Trainer(replace(task, attacks={}), plain, Randomness.private(), device=device)
        trainer.play()  # loads what the next ones use
        begun, seconds = time.perf_counter(), list[float]()
        while len(seconds) < PLAIN_ROUNDS and (not seconds or time.perf_counter() - begun < PLAIN_LONGEST):
            seconds.append(sum(trainer.play().seconds.values()))
    except (PrecadError, ValueError):
        return None
    return statistics.median(seconds)


def _alone(value: object) -> object:
    """A tensor in memory of its own, in the usual order, so that ``precad audit`` finds the parameters in the file."""
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, Tensor) else value


def _about(trainer: Trainer) -> About:
    versions = {"Python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return About(
        version=__version__,
        versions=versions | {"machine": f"{platform.system()} {platform.machine()}"},
        parameters=trainer.params.dim,
        clients=trainer.names,
        records=tuple(trainer.records.values()),
    )


def _line(outcome: Outcome, figures: Figures | None, trainer: Trainer) -> RoundFigures:
    line = RoundFigures(
        round=outcome.round,
        selected=len(outcome.selected),
        rejected={name: rejected.reason.name.lower() for name, rejected in outcome.rejected.items()},
        update_norm=outcome.update_norm,
        noises=outcome.noises,
        fingerprint=outcome.fingerprint,
        seconds=outcome.seconds,
        private=trainer.randomness.seed is None,
        model=trainer.progress.model.digest.hex(),
        link=outcome.link,
    )
    if figures is None:
        return line
    return replace(
        line,
        test_accuracy=figures.accuracy,
        test_loss=finite(figures.loss),
        epsilon_server=finite(figures.epsilon_server),
        epsilon_clients=finite(figures.epsilon_clients),
    )
