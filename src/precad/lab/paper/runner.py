"""Makes the runs of a grid that were not made yet, several at a time, each in a process with one torch thread.

A process reads one experiment per line and answers each with one row. Pipes are all that it needs: no shared memory
and no semaphores, which some containers do not have.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import torch

from precad import __version__
from precad.errors import PrecadError
from precad.lab import malicious
from precad.lab.paper.plan import Experiment, unique
from precad.lab.paper.rows import Row, RowFile
from precad.settings import from_table, to_toml
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import DivergedError, Outcome, Trainer
from precad.simulation.user_code import sentence
from precad.tables import parse_json, parse_toml

WARM_UP = 2
"""Rounds whose time is not counted: kernels are compiled in the first."""
CLASSES = 10

OnRow = Callable[[Experiment, Row], None]


def missing(experiments: Iterable[Experiment], rows: RowFile) -> list[Experiment]:
    """What is still to be made, each once, timed runs last."""
    todo = [experiment for experiment in unique(experiments) if rows.get(experiment) is None]
    return sorted(todo, key=lambda experiment: experiment.timed)


def run_all(todo: list[Experiment], rows: RowFile, data: Path | None, jobs: int, on_row: OnRow) -> None:
    """Make the runs, and write each row as it comes. Timed runs are made one by one, after the others."""
    for timed, most in ((False, jobs), (True, 1)):
        batch = [experiment for experiment in todo if experiment.timed is timed]
        _run(batch, rows, [Worker(data) for _ in range(min(most, len(batch)))], on_row)


def _run(batch: list[Experiment], rows: RowFile, workers: "list[Worker]", on_row: OnRow) -> None:
    idle = list(workers)  # a thread of the pool for each

    def make(experiment: Experiment) -> Row:
        worker = idle.pop()
        try:
            return worker.make(experiment)
        finally:
            idle.append(worker)

    pool = ThreadPoolExecutor(max(1, len(workers)), "run")
    try:
        futures = {pool.submit(make, experiment): experiment for experiment in batch}
        for future in as_completed(futures):
            row = future.result()
            rows.add(row)
            on_row(futures[future], row)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.end()
        pool.shutdown()
        for worker in workers:
            worker.close()


class Worker:
    """A process that waits for experiments and makes their runs, one after the other."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "precad.lab.paper.runner", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
        )

    def make(self, experiment: Experiment) -> Row:
        """Make one run; an error of the process is raised here."""
        data = None if self._data is None else str(self._data)
        job = {"config": parse_toml(to_toml(experiment.config)), "timed": experiment.timed, "data": data}
        stdin, stdout = self._process.stdin, self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # then it has no answer either
            stdin.write(json.dumps(job) + "\n")  # type: ignore[union-attr]
            stdin.flush()  # type: ignore[union-attr]
        answer = stdout.readline()  # type: ignore[union-attr]
        if not answer:
            why = "the process of a run was ended, maybe for lack of memory"
            raise PrecadError(f"{why}; the rows so far are kept, and the same command goes on")
        told = parse_json(answer)
        if "error" in told:
            raise PrecadError(told["error"])
        return Row(**told)

    def end(self) -> None:
        """End the process, whatever it does at the moment."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipes, when nobody reads from them any more."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


def play(experiment: Experiment, data: Path | None) -> Row:
    """One run, from its configuration to its row."""
    start, config = time.process_time(), experiment.config
    if config.seed is None:
        raise ValueError("an experiment needs a seed: its run must be repeatable")
    randomness = Randomness.repeatable(config.seed)
    task = malicious.build(config, data, randomness)
    trainer = Trainer(task, config.training, randomness, ideal=not experiment.timed)
    looks, outcomes, diverged = list[tuple[int, float, float]](), list[Outcome](), None
    try:
        for outcome in trainer.rounds():
            outcomes.append(outcome)
            last = outcome.round == config.training.rounds
            if last or (outcome.round % config.evaluate_every == 0 and not experiment.timed):
                backdoor = 0.0 if task.backdoor is None else trainer.backdoor_score().accuracy or 0.0
                looks.append((outcome.round, trainer.score().accuracy or 0.0, backdoor))
    except DivergedError:
        diverged = trainer.progress.round + 1
        looks.append((config.training.rounds, 1 / CLASSES, 1 / CLASSES))
    stages = _mean_seconds(outcomes)
    return Row(
        key=experiment.key,
        config=parse_toml(to_toml(config)),
        rounds=[at for at, _, _ in looks],
        accuracy=[main for _, main, _ in looks],
        backdoor=[] if task.backdoor is None else [backdoor for _, _, backdoor in looks],
        participations=int(trainer.progress.participations.max()),
        rejected=sum(len(outcome.rejected) for outcome in outcomes),
        round_seconds=sum(stages.values()),
        stage_seconds=stages,
        seconds=time.process_time() - start,
        diverged=diverged,
        version=__version__,
    )


def _mean_seconds(outcomes: list[Outcome]) -> dict[str, float]:
    counted = outcomes[WARM_UP:] or outcomes
    stages = {stage for outcome in counted for stage in outcome.seconds}
    return {stage: sum(o.seconds.get(stage, 0.0) for o in counted) / len(counted) for stage in sorted(stages)}


def _end_with(parent: int) -> None:
    """A parent that was killed reads no row: the run would go on for minutes, for nobody."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _serve(parent: int) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a person's own attack or defence prints is no answer
    for line in sys.stdin:
        job = parse_json(line)
        try:
            experiment = Experiment(from_table(job["config"]), job["timed"])
            answer = asdict(play(experiment, None if job["data"] is None else Path(job["data"])))
        except (ValueError, PrecadError, OSError) as error:
            answer = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"a run failed, please report this as a bug: {sentence(error)}"}
        try:
            print(json.dumps(answer), file=answers, flush=True)
        except BrokenPipeError:  # nobody waits for it any more
            os._exit(1)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
