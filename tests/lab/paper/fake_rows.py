"""Rows of runs that nobody made."""

from collections.abc import Callable, Iterable

from precad.lab.paper.plan import Experiment
from precad.lab.paper.rows import Row, RowFile


def row(experiment: Experiment, accuracy: float = 0.9, backdoor: float | None = None, seconds: float = 0.1) -> Row:
    rounds = [1, 2]
    return Row(
        key=experiment.key,
        config={},
        rounds=rounds,
        accuracy=[0.5, accuracy],
        backdoor=[] if backdoor is None else [0.0, backdoor],
        participations=1,
        rejected=0,
        round_seconds=seconds,
        stage_seconds={"gradients": seconds},
        seconds=1.0,
        diverged=None,
        version="0",
    )


def fill(rows: RowFile, experiments: Iterable[Experiment], make: Callable[[Experiment], Row]) -> None:
    for experiment in experiments:
        if rows.get(experiment) is None:
            rows.add(make(experiment))
