"""What a person sees of a run."""

import io

from rich.console import Console

from precad.report.run import RoundFigures
from precad.simulation import session
from precad.simulation.randomness import Randomness
from precad.simulation.terminal import View
from precad.simulation.trainer import Trainer
from tests.simulation import small


def test_a_run_that_goes_on_counts_its_earlier_rejections() -> None:
    task, params = small.task({"client-1": small.boosted}), small.hyperparameters(client_rate=1.0, rounds=4)
    first = Trainer(task, params, Randomness.repeatable(1))
    before = [RoundFigures(round=n, selected=6, rejected={"client-1": "invalid"}, seconds={}) for n in (1, 2)]
    for _ in before:
        assert set(first.play().rejected) == {"client-1"}
    later = Trainer(task, params, Randomness.repeatable(1), progress=first.progress)
    shown = io.StringIO()
    with View(Console(file=shown, width=200), later, before) as view:
        session.play(later, None, 1, view)
    lines = shown.getvalue().splitlines()
    assert [line.partition("rejected: ")[2] for line in lines] == ["client-1 3/3", "client-1 4/4"]
