"""``precad canaries``: its verdict is its exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.lab.canaries.audit import Audit
from tests.lab.canaries import faults

SMALL = ("--clients", "6", "--rounds", "4", "--ideal", "--seed", "1")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRECAD_DATA", raising=False)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["canaries", *words], env={"COLUMNS": "80"})


def test_what_we_ship_passes_with_0() -> None:
    result = run("digits", "--trials", "12", *SMALL)
    assert result.exit_code == 0, result.output
    assert "server A" in result.output
    assert "final model" in result.output
    assert "CAUGHT" not in result.output
    assert "That proves no privacy" in result.output
    assert Path("canaries.png").read_bytes().startswith(b"\x89PNG")
    assert max(map(len, result.output.splitlines()[:20])) <= 80


def test_less_noise_is_caught_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.noise_halved(monkeypatch, factor=50.0)
    result = run("digits", "--trials", "120", "--json", "--out", "found.png", *SMALL)
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["caught"] is True
    assert found["runs"] == 2
    assert {row["adversary"] for row in found["findings"] if row["caught"]} >= {"server A", "server B", "clients"}
    assert all(row["p_value"] > 0 for row in found["findings"])
    assert Path("found.png").is_file()


def test_a_run_s_folder_is_a_configuration_too(tmp_path: Path) -> None:
    Path("config.toml").write_text('[task]\ndataset = "digits"\n[training]\nrounds = 3\nclient_rate = 1.0\n')
    result = run(str(tmp_path), "--trials", "6", *SMALL)
    assert result.exit_code == 2
    assert "record_rate" in result.output


def test_images_that_are_not_there_are_made_of_noise() -> None:
    result = run("mnist", "--trials", "6", *SMALL)
    assert result.exit_code == 0, result.output
    assert "noise stands in for the images of mnist" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("digits", "--time", "0"), "--time must be above 0, got 0.0"),
        (("digits", "--trials", "0"), "--trials must be at least 1, got 0"),
        (("digits", "--false-alarm", "0.7"), "--false-alarm must be in (0, 0.5), got 0.7"),
        (("nothing",), "the data set is 'nothing'"),
        (("runs/nothing",), "there is no run and no file 'runs/nothing'"),
        (("digits/nothing",), "digits has no preset 'nothing'"),
        (("nowhere.toml",), "nowhere.toml"),
        ((".",), "config.toml"),
    ],
)
def test_bad_input_is_one_sentence_and_2(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.output


def test_code_that_a_file_names_is_not_run_unasked() -> None:
    Path("mine.py").write_text("raise SystemExit(7)")
    Path("config.toml").write_text('[task]\ndataset = "mine:problem"\n')
    for config in (".", "config.toml"):
        result = run(config)
        assert result.exit_code == 2
        assert "names code, 'mine:problem': if you trust it, give --run-code" in result.output


def test_plain_is_refused() -> None:
    Path("mine.toml").write_text(
        '[task]\ndataset = "digits"\nclients = 6\n[training]\nrounds = 3\nclient_rate = 1.0\nrecord_rate = 0.2\n'
        'record_bound = 1.0\nclient_bound = 5.0\nnoise_multiplier = 1.0\nlearning_rate = 1.0\nprotocol = "plain"\n'
    )
    result = run("mine.toml")
    assert result.exit_code == 2
    assert "plain adds no noise and claims no ε" in result.output


@pytest.mark.parametrize(("runs", "said"), [(0, "nothing was tested"), (1, "Nothing was caught")])
def test_ctrl_c_ends_it_and_what_was_played_counts(runs: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Audit.play

    def interrupted(self: Audit, *args: Any) -> None:
        if self.runs == runs:
            raise KeyboardInterrupt
        play(self, *args)

    monkeypatch.setattr(Audit, "play", interrupted)
    result = run("digits", "--trials", "100", *SMALL)
    assert result.exit_code == 130, result.output
    assert said in result.output
