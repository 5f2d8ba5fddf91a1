"""Configurations: what is written down, what is refused."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.protocol.update import Optimiser
from precad.settings import Hyperparameters, Protocol, RunConfig, from_table, to_toml
from precad.simulation import presets
from precad.tables import merged, read_toml
from tests.messages import says

TABLE: dict[str, Any] = dict(presets.preset("mnist", "paper"))


@pytest.mark.parametrize(("dataset", "name"), list(presets._TABLES))
def test_every_preset_is_a_configuration_and_survives_its_file(dataset: str, name: str, tmp_path: Path) -> None:
    config = from_table(presets.preset(dataset, name))
    assert isinstance(config, RunConfig)
    (tmp_path / "c.toml").write_text(to_toml(config))
    assert from_table(read_toml(tmp_path / "c.toml")) == config


def test_the_paper_s_hyperparameters() -> None:
    """Paper, Appendix E: η = 0.1, q = 0.1, p = 0.05, R = 2; T = 5000; C = 30."""
    training = from_table(presets.preset("cifar10", "paper")).training
    assert training == Hyperparameters(
        rounds=5000,
        client_rate=0.1,
        record_rate=0.05,
        record_bound=2.0,
        client_bound=30.0,
        noise_multiplier=1.0,
        learning_rate=0.1,
    )


@given(text=st.text(max_size=20))
def test_any_text_survives_the_file(text: str) -> None:
    config = from_table(merged(TABLE, {"task": {"dataset": text}}))
    assert from_table(tomllib.loads(to_toml(config))) == config


BAD: dict[tuple[object, ...], dict[str, Any]] = {
    ("[task]", "'color'", "dataset", "model"): {"task": {"color": 3}},
    ("configuration", "'tasks'"): {"tasks": {}},
    ("task", "table", 3): {"task": 3},
    ("rounds", 1.5): {"training": {"rounds": 1.5}},
    ("rounds", True): {"training": {"rounds": True}},
    ("record_bound", "'two'"): {"training": {"record_bound": "two"}},
    ("protocol", "precad", "plain", "cdp", "ldp", "ddp", "'magic'"): {"training": {"protocol": "magic"}},
    ("split", "shards", "dirichlet", "iid", "'even'"): {"task": {"split": "even"}},
    ("rounds", 1, -3): {"training": {"rounds": -3}},
    ("client_rate", "(0, 1]", 1.2): {"training": {"client_rate": 1.2}},
    ("noise_multiplier", 0, -1.0): {"training": {"noise_multiplier": -1.0}},
    ("delta", "(0, 1)", 0.0): {"training": {"delta": 0.0}},
    ("budget", 0, 0.0): {"training": {"budget": 0.0}},
    ("honest_clients", 1, 0): {"training": {"honest_clients": 0}},
    ("clients", 1, 0): {"task": {"clients": 0}},
    ("alpha", 0, 0.0): {"task": {"alpha": 0.0}},
    ("malicious clients", 100): {"malicious": {"clients": 100}},
    ("malicious clients", 0, -1): {"malicious": {"clients": -1}},
    ("boost", 0, 0.0): {"malicious": {"boost": 0.0}},
    ("evaluate_every", 1, 0): {"evaluate_every": 0},
}


@pytest.mark.parametrize("words", BAD, ids=str)
def test_what_is_wrong_is_named(words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        from_table(merged(TABLE, BAD[words]))


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=says("[training]", "client_rate", "record_rate", "record_bound")):
        from_table({"task": {}, "training": {"rounds": 3}})


def test_numbers_and_choices_are_converted() -> None:
    config = from_table(merged(TABLE, {"training": {"record_bound": 2, "optimiser": "adam", "protocol": "ldp"}}))
    assert config.training.record_bound == 2.0
    assert config.training.optimiser is Optimiser.ADAM
    assert config.training.protocol is Protocol.LDP


def test_unknown_presets_and_data_sets_are_named() -> None:
    with pytest.raises(ValueError, match=says("mnist", "'best'", "certified", "paper", "recommended")):
        presets.preset("mnist", "best")
    with pytest.raises(ValueError, match=says("data set", "'minst'", "digits", "mnist", "fashion", "cifar10")):
        presets.preset("minst", "paper")
