from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.data import image_sets as datasets
from precad.data.image_sets import ImageData
from precad.data.records import ArrayRecords
from precad.lab import malicious
from precad.lab.attacks import backdoor
from precad.lab.attacks.data_poisoning import WALL_MORE, WALL_TEST, WALL_TRAIN
from precad.mpc.prg import digest
from precad.protocol.params import Round
from precad.settings import MaliciousConfig, from_table
from precad.simulation import presets
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from precad.tables import merged
from tests.messages import says
from tests.simulation.tiny import config, trainer


def test_the_backdoor_wins_where_nobody_clips_and_not_before() -> None:
    """Plain averaging takes the attackers' model over; without attackers, marked images are no zeros."""
    malicious = {"clients": 2, "attack": "backdoor"}
    plain = {"protocol": "plain", "rounds": 25, "record_rate": 0.3}
    attacked = trainer(config(training=plain, malicious=malicious))
    clean = trainer(config(training=plain, malicious=malicious | {"clients": 0}))
    for run in (attacked, clean):
        list(run.rounds())
    assert attacked.backdoor_score().accuracy > 0.5  # type: ignore[operator]
    assert clean.backdoor_score().accuracy < 0.2  # type: ignore[operator]
    assert attacked.score().accuracy > 0.7  # type: ignore[operator]


def test_attackers_train_one_model_a_round_and_split_it_evenly() -> None:
    settings = config(training={"protocol": "plain"}, malicious={"clients": 2, "attack": "backdoor"})
    run = trainer(settings)
    assert len({id(attack) for attack in run.task.attacks.values()}) == 1
    sent = [
        update
        for group in run.clients.updates(_round(run), run.names, run.progress.model.theta)
        for name, update in group.raw.items()
        if name in run.task.attacks
    ]
    first, second = sent
    assert np.array_equal(first, second)


def _round(run: Trainer) -> Round:
    name = digest(b"precad test")
    return Round(run.params, name, 0, name, run.randomness.nonces(0))


def test_the_pixel_pattern_leaves_out_test_images_of_a_zero() -> None:
    images = datasets.load("digits")
    made = backdoor.pixel_pattern(images, images.normalise, np.arange(10))
    assert len(made.train) == 10
    assert len(made.test) == int((images.y_test != 0).sum())
    assert made.test.batch(np.arange(5))[1].tolist() == [0] * 5


def _cifar() -> ImageData:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (50_000, 3, 32, 32), np.uint8)
    return ImageData("cifar10", x, rng.integers(0, 10, 50_000), x[:10_000], rng.integers(0, 10, 10_000))


def test_only_attackers_hold_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    images = _cifar()
    monkeypatch.setattr(datasets, "load", lambda *_: images)
    table = merged(
        presets.preset("cifar10", "paper"),
        {"malicious": {"clients": 3, "attack": "backdoor"}, "task": {"clients": 20, "records_per_client": 5000}},
    )
    task = malicious.build(from_table(table), Path(), Randomness.repeatable(1))
    for records in task.clients.values():
        assert isinstance(records, ArrayRecords)
        assert not set(records.rows) & {*WALL_TRAIN, *WALL_MORE}
    assert task.test is not None
    assert task.backdoor is not None
    assert len(task.test) == 10_000 - len(WALL_TEST)
    assert len(task.backdoor) == 1000
    assert task.backdoor.batch(np.arange(3))[1].tolist() == [2, 2, 2]


def test_the_semantic_backdoor_needs_cifar() -> None:
    images = datasets.load("digits")
    with pytest.raises(ValueError, match=says("backdoor", "CIFAR-10", "digits")):
        backdoor.semantic(images, images.normalise, np.random.default_rng(1))


def test_label_flip_is_a_change_of_records_alone() -> None:
    flipped = trainer(config(malicious={"clients": 2, "attack": "label_flip"})).task
    honest = trainer(config()).task
    assert not flipped.attacks
    for i, name in enumerate(flipped.clients):
        mine, theirs = (task.clients[name].batch(np.arange(20))[1] for task in (flipped, honest))
        assert (9 - mine if i >= 4 else mine).tolist() == theirs.tolist()


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(ValueError, match=says("attack", "'nice'", "boost", "label_flip", "backdoor")):
        trainer(config(malicious={"clients": 1, "attack": "nice"}))
    assert MaliciousConfig().attack == "boost"


@pytest.mark.parametrize("options", [["--json"], []])
def test_precad_train_shows_the_backdoor(tmp_path: Path, options: list[str]) -> None:
    small = ["--rounds", "1", "--clients", "4", "--malicious", "1", "--attack", "backdoor", "--protocol", "plain"]
    run = CliRunner().invoke(app, ["train", *small, "--defence", "median", "--out", str(tmp_path), *options])
    assert run.exit_code == 0, run.output
    assert ("backdoor_accuracy" if options else "backdoor accuracy") in run.output


def test_there_is_no_backdoor_score_without_a_backdoor() -> None:
    with pytest.raises(ValueError, match="no backdoor"):
        trainer(config()).backdoor_score()
