"""Makes the runs of a grid that were not made yet, several at a time, each in a process with one torch thread."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from precad.lab.paper.plan import Experiment, unique
from precad.lab.paper.rows import Row, RowFile
from precad.lab.paper.worker import Worker

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


def _run(batch: list[Experiment], rows: RowFile, workers: list[Worker], on_row: OnRow) -> None:
    idle = SimpleQueue[Worker]()
    for worker in workers:
        idle.put(worker)

    def make(experiment: Experiment) -> Row:
        worker = idle.get()
        try:
            return worker.make(experiment)
        finally:
            idle.put(worker)

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
