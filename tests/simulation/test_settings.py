"""Configurations: what is written down, what is refused."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.protocol.update import Optimiser
from precad.simulation import presets
from precad.simulation.hyperparameters import Hyperparameters, Protocol
from precad.simulation.settings import RunConfig, from_table, merged, read_toml, to_toml

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
    if not text.isprintable():
        return
    config = from_table(merged(TABLE, {"task": {"dataset": text}}))
    assert from_table(tomllib.loads(to_toml(config))) == config


BAD: dict[str, dict[str, Any]] = {
    "[task] has no key 'color'; it may have dataset, model": {"task": {"color": 3}},
    "the configuration has no key 'tasks'": {"tasks": {}},
    "task must be a table, got 3": {"task": 3},
    "rounds must be a whole number, got 1.5": {"training": {"rounds": 1.5}},
    "rounds must be a whole number, got True": {"training": {"rounds": True}},
    "record_bound must be a number, got 'two'": {"training": {"record_bound": "two"}},
    "protocol must be one of precad, plain, cdp, ldp, ddp; got 'magic'": {"training": {"protocol": "magic"}},
    "split must be one of shards, dirichlet, iid; got 'even'": {"task": {"split": "even"}},
    "rounds T must be a whole number of at least 1, got -3": {"training": {"rounds": -3}},
    "client_rate must be in (0, 1], got 1.2": {"training": {"client_rate": 1.2}},
    "noise_multiplier must be a finite number above 0, got -1.0": {"training": {"noise_multiplier": -1.0}},
    "delta must be in (0, 1)": {"training": {"delta": 0.0}},
    "budget must be a finite number above 0, got 0.0": {"training": {"budget": 0.0}},
    "honest_clients τ must be at least 1, got 0": {"training": {"honest_clients": 0}},
    "clients must be at least 1, got 0": {"task": {"clients": 0}},
    "alpha must be a finite number above 0, got 0.0": {"task": {"alpha": 0.0}},
    "malicious clients must be fewer than all 100, got 100": {"malicious": {"clients": 100}},
    "malicious clients must be at least 0, got -1": {"malicious": {"clients": -1}},
    "boost must be a finite number above 0, got 0.0": {"malicious": {"boost": 0.0}},
    "evaluate_every must be at least 1, got 0": {"evaluate_every": 0},
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_wrong_is_named(message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        from_table(merged(TABLE, BAD[message]))
    assert message in str(caught.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"\[training\] lacks client_rate, record_rate, record_bound"):
        from_table({"task": {}, "training": {"rounds": 3}})


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"a = = 3\xff")
    with pytest.raises(ValueError, match="is not a TOML file that can be read"):
        read_toml(tmp_path / "bad.toml")


def test_numbers_and_choices_are_converted() -> None:
    config = from_table(merged(TABLE, {"training": {"record_bound": 2, "optimiser": "adam", "protocol": "ldp"}}))
    assert config.training.record_bound == 2.0
    assert config.training.optimiser is Optimiser.ADAM
    assert config.training.protocol is Protocol.LDP


def test_unknown_presets_and_data_sets_are_named() -> None:
    with pytest.raises(ValueError, match=r"mnist has no preset 'best'; it has certified, paper, recommended"):
        presets.preset("mnist", "best")
    with pytest.raises(ValueError, match=r"the data set is 'minst', expected digits, mnist, fashion, cifar10, or"):
        presets.preset("minst", "paper")
