"""The end of a run: what it leaves, and that a page that fails takes nothing with it."""

import json
import logging
from pathlib import Path

import pytest

from precad.simulation import session
from precad.simulation.api import train
from tests.simulation import small


def test_a_page_that_fails_does_not_lose_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no page today")

    monkeypatch.setattr(session, "write_report", fail)
    datasets = {f"client-{i}": small.data(seed=i) for i in range(3)}
    with caplog.at_level(logging.WARNING):
        train(small.model(), small.task().loss, datasets, small.HYPERPARAMETERS, seed=1, folder=tmp_path / "run")
    assert "no page today" in caplog.text
    assert (tmp_path / "run" / "summary.json").exists()
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_from_python_has_a_page_and_says_what_made_it(tmp_path: Path) -> None:
    datasets = {f"client-{i}": small.data(seed=i) for i in range(3)}
    train(small.model(), small.task().loss, datasets, small.HYPERPARAMETERS, folder=tmp_path / "run")
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["clients"] == ["client-0", "client-1", "client-2"]
    assert about["versions"].keys() == {"Python", "torch", "numpy", "machine"}
    page = (tmp_path / "run" / "report.html").read_text()
    assert "own model and data" in page
    assert "not private" not in page


def test_plain_training_is_timed_without_attacks_and_leaves_no_trace() -> None:
    task = small.task({"client-1": small.boosted})
    weights = [weight.detach().clone() for weight in task.model.parameters()]
    seconds = session.plain_seconds(task, small.hyperparameters(budget=3.0), "cpu")
    assert seconds is not None
    assert seconds > 0
    assert all(before.equal(after) for before, after in zip(weights, task.model.parameters(), strict=True))


def test_plain_training_that_fails_has_no_time() -> None:
    assert session.plain_seconds(small.task(), small.hyperparameters(learning_rate=1e300), "cpu") is None
