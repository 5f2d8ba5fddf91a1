"""PRECAD without its cryptography gives the same bits; defences in the clear; LDP that is clipped with its noise."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.lab.defences import NAMES
from precad.mpc.prg import digest
from precad.protocol.params import Round
from precad.settings import Protocol
from precad.simulation.aggregators import Aggregator, Updates
from precad.simulation.randomness import Randomness
from tests.messages import says
from tests.simulation.tiny import config, trainer


@pytest.mark.parametrize(
    ("validation", "noise"), [("proof", "server"), ("triples", "server"), ("none", "server"), ("proof", "clients")]
)
@pytest.mark.parametrize("attack", ["just_over", "wrap_around", "alie", "backdoor"])
def test_ideal_is_the_protocol_to_the_bit(validation: str, attack: str, noise: str) -> None:
    training = {"rounds": 2, "validation": validation, "noise": noise, "client_rate": 0.7, "normalise": "realised"}
    settings = config(training=training, malicious={"clients": 2, "attack": attack, "boost": 50.0})
    full, ideal = trainer(settings), trainer(settings, ideal=True)
    for played, shortened in zip(full.rounds(), ideal.rounds(), strict=True):
        assert played.rejected == shortened.rejected
        assert played.update_norm == shortened.update_norm
        assert np.array_equal(full.progress.model.theta, ideal.progress.model.theta)


@pytest.mark.parametrize("protocol", ["cdp", "ldp", "ddp", "plain"])
def test_ideal_is_about_precad_alone(protocol: str) -> None:
    """The others have no cryptography to leave out: a trusted server draws one noise, not two."""
    settings = config(training={"protocol": protocol})
    full, ideal = trainer(settings), trainer(settings, ideal=True)
    assert full.play().update_norm == ideal.play().update_norm


def test_ideal_wraps_around_like_the_field() -> None:
    """Without validation a sum beyond p/2 wraps in the shares, and so it must here."""
    settings = config(training={"validation": "none"}, malicious={"clients": 2, "attack": "boost", "boost": 1e9})
    full, ideal = trainer(settings), trainer(settings, ideal=True)
    assert full.play().update_norm == ideal.play().update_norm


@pytest.mark.parametrize("name", NAMES)
def test_every_defence_trains(name: str) -> None:
    run = trainer(config(training={"protocol": "plain", "defence": name}))
    assert [outcome.round for outcome in run.rounds()] == [1, 2, 3]


def test_a_defence_of_the_users_gets_one_row_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_defences.py").write_text(
        "def mean(updates, setting):\n    assert setting.malicious == 2 and setting.bound == 10.0\n"
        "    return updates.mean(axis=0)\n"
        "def wrong(updates, setting):\n    return updates\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = trainer(config(training={"protocol": "plain", "defence": "my_defences:mean"}))
    plain = trainer(config(training={"protocol": "plain"}))
    own.play()
    plain.play()
    assert np.allclose(own.progress.model.theta, plain.progress.model.theta)
    with pytest.raises(PrecadError, match=says("my_defences:wrong", 2410, "(6, 2410)")):
        trainer(config(training={"protocol": "plain", "defence": "my_defences:wrong"})).play()
    sys.modules.pop("my_defences")


def test_one_seed_selects_the_same_clients_for_all_protocols() -> None:
    half = {"client_rate": 0.5, "rounds": 4}
    chosen = [
        [outcome.selected for outcome in trainer(config(training=half | {"protocol": protocol})).rounds()]
        for protocol in ("plain", "ldp", "precad")
    ]
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(set(chosen[0])) > 1


def test_a_round_of_nobody_leaves_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(config(training={"protocol": "plain", "defence": "median"}))
    monkeypatch.setattr(run, "_select", lambda *_: np.empty(0, np.int64))
    before = run.progress.model.theta
    run.play()
    assert np.array_equal(run.progress.model.theta, before)


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"defence": "median"}, ("defence", "plain", "precad")),
        ({"clip_after_noise": True}, ("clip_after_noise", "ldp", "record")),
        ({"assumed_malicious": 0.5}, ("assumed_malicious", "[0, 0.5)", 0.5)),
    ],
)
def test_settings_that_contradict_each_other_are_refused(training: dict[str, Any], words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        config(training=training)


def test_an_unknown_defence_is_refused_before_the_first_round() -> None:
    with pytest.raises(ValueError, match=says("defence", "'hope'", "median")):
        trainer(config(training={"protocol": "plain", "defence": "hope"}))


def _ldp_total(sent: Updates, *, clip: bool) -> NDArray[np.float64]:
    settings = config(training={"protocol": "ldp", "clip_after_noise": clip}).training
    assert settings.protocol is Protocol.LDP
    name, randomness = digest(b"precad test"), Randomness.repeatable(1)
    round_ = Round(settings.params(300, 6), name, 0, name, randomness.nonces(0))
    collected = Aggregator(settings, randomness, 6).collect(round_)
    collected.add(sent)
    return collected.open().total


def test_ldp_is_cut_to_c_with_its_noise() -> None:
    """C = 10 and a noise of norm about 2·√300 = 35: each submission has norm C, the attackers' too."""
    honest = Updates({"a": np.zeros(300, np.int64)}, {})
    loud = _ldp_total(honest, clip=False)
    quiet = _ldp_total(honest, clip=True)
    assert np.linalg.norm(loud) > 20
    assert np.linalg.norm(quiet) == pytest.approx(10, rel=1e-3)
    assert np.allclose(quiet / np.linalg.norm(quiet), loud / np.linalg.norm(loud), atol=1e-3)
    attack = _ldp_total(Updates({}, {"b": np.full(300, 100.0)}), clip=True)
    assert np.linalg.norm(attack) == pytest.approx(10, rel=1e-3)
