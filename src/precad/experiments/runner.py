"""Makes the runs of a grid that were not made yet, several at a time, each with one torch thread."""

import multiprocessing
import signal
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import torch

from precad import __version__
from precad.errors import PrecadError
from precad.experiments.plan import Experiment
from precad.experiments.rows import Row, RowFile
from precad.learning import catalogue
from precad.learning.config import to_toml
from precad.learning.randomness import Randomness
from precad.learning.training import DivergedError, Outcome, Trainer

WARM_UP = 2
"""Rounds whose time is not counted: kernels are compiled in the first."""
CLASSES = 10

OnRow = Callable[[Experiment, Row], None]


def missing(experiments: Iterable[Experiment], rows: RowFile) -> list[Experiment]:
    """What is still to be made, each once, timed runs last."""
    unique = {experiment.key: experiment for experiment in experiments if rows.get(experiment) is None}
    return sorted(unique.values(), key=lambda experiment: experiment.timed)


def run_all(todo: list[Experiment], rows: RowFile, data: Path | None, jobs: int, on_row: OnRow) -> None:
    """Make the runs, and write each row as it comes. Timed runs are made one by one, after the others."""
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    for timed, workers in ((False, jobs), (True, 1)):
        batch = [experiment for experiment in todo if experiment.timed is timed]
        if not batch:
            continue
        with _workers(min(workers, len(batch))) as pool:
            futures = {pool.submit(play, experiment, data): experiment for experiment in batch}
            for future in as_completed(futures):
                try:
                    row = future.result()
                except BrokenProcessPool:
                    raise PrecadError("a run's process was ended: is there too little memory? Use fewer jobs") from None
                rows.add(row)
                on_row(futures[future], row)


def play(experiment: Experiment, data: Path | None) -> Row:
    """One run, from its configuration to its row."""
    start, config = time.perf_counter(), experiment.config
    if config.seed is None:
        raise ValueError("an experiment needs a seed: its run must be repeatable")
    randomness = Randomness.repeatable(config.seed)
    task = catalogue.build(config, data, randomness)
    trainer = Trainer(task, config.training, randomness, ideal=not experiment.timed)
    rounds, accuracy, backdoor = list[int](), list[float](), list[float]()
    outcomes, diverged = list[Outcome](), None
    try:
        for outcome in trainer.rounds():
            outcomes.append(outcome)
            last = outcome.round == config.training.rounds
            if last or (outcome.round % config.evaluate_every == 0 and not experiment.timed):
                rounds.append(outcome.round)
                accuracy.append(trainer.score().accuracy or 0.0)
                if task.backdoor is not None:
                    backdoor.append(trainer.backdoor_score().accuracy or 0.0)
    except DivergedError:
        diverged = trainer.progress.round + 1
        rounds.append(config.training.rounds)
        accuracy.append(1 / CLASSES)
        backdoor += [1 / CLASSES] if task.backdoor is not None else []
    stages = _mean_seconds(outcomes)
    return Row(
        key=experiment.key,
        config=tomllib.loads(to_toml(config)),
        rounds=rounds,
        accuracy=accuracy,
        backdoor=backdoor,
        participations=int(trainer.progress.participations.max()),
        rejected=sum(len(outcome.rejected) for outcome in outcomes),
        round_seconds=sum(stages.values()),
        stage_seconds=stages,
        seconds=time.perf_counter() - start,
        diverged=diverged,
        version=__version__,
    )


def _mean_seconds(outcomes: list[Outcome]) -> dict[str, float]:
    counted = outcomes[WARM_UP:] or outcomes
    stages = {stage for outcome in counted for stage in outcome.seconds}
    return {stage: sum(o.seconds.get(stage, 0.0) for o in counted) / len(counted) for stage in sorted(stages)}


@contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when this one is interrupted."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _prepare)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    pool.shutdown()


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
