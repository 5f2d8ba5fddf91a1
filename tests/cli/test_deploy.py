"""The commands of those who run a task, as a user types them."""

import json
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.deployment import task as tasks
from precad.deployment.data_ledger import DataLedger
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary
from precad.protocol.update import Optimiser
from precad.settings import Protocol, from_table, to_toml
from precad.simulation import presets
from tests.messages import says
from tests.test_layers import WITHOUT_TORCH


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refuse(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    return result.output


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    for kind, name in (("server", "alpha"), ("server", "beta"), ("client", "bank"), ("client", "lab")):
        run("keys", "new", kind, name, "--folder", tmp_path)
    np.save(tmp_path / "model.npy", np.zeros(10))
    servers = ("--server-a", tmp_path / "alpha.pub", "--server-b", tmp_path / "beta.pub")
    limits = ("--rounds", 20, "--participations", 10, "--budget", 5)
    run("task", "new", tmp_path / "task.json", *servers, "--model", tmp_path / "model.npy", *limits)
    return tmp_path / "task.json"


@pytest.mark.parametrize(("dataset", "preset"), sorted(presets._TABLES))
def test_every_preset_can_be_deployed_as_it_is(dataset: str, preset: str, draft: Path) -> None:
    """The task has the numbers of the run, the whole schedule too; the budget says how often a client takes part."""
    folder, path = draft.parent, draft.parent / "preset.json"
    parties = ("--server-a", folder / "alpha.pub", "--server-b", folder / "beta.pub", "--model", folder / "model.npy")
    run("task", "new", path, *parties, "--dataset", dataset, "--preset", preset, "--budget", 100)
    training = from_table(presets.preset(dataset, preset)).training
    task = tasks.load(path)
    assert task.bounds == training.params(10, 1)
    assert task.training.schedule == training.schedule
    assert (task.training.rounds, task.training.normalise) == (training.rounds, training.normalise)
    assert (task.training.client_rate, task.training.record_rate) == (training.client_rate, training.record_rate)
    assert task.training.participations == replace(training, budget=100.0).most_participations(10)


def test_a_task_that_samples_records_names_a_reply_time(draft: Path) -> None:
    folder, path = draft.parent, draft.parent / "timed.json"
    parties = ("--server-a", folder / "alpha.pub", "--server-b", folder / "beta.pub", "--model", folder / "model.npy")
    usual = (*parties, "--rounds", 20, "--participations", 2, "--budget", 9)
    assert tasks.load(draft).training.reply_seconds == tasks.REPLY_SECONDS
    cases = (
        (("--reply-seconds", 7.5), 7.5),
        (("--record-rate", 1, "--sigma", 9), 0),
        (("--unit", "client", "--sigma", 9), 0),
    )
    for options, seconds in cases:
        assert ("7.5 seconds" in run("task", "new", path, *usual, *options)) == (seconds == 7.5)
        assert tasks.load(path).training.reply_seconds == seconds
        path.unlink()
    assert "--reply-seconds" in refuse("task", "new", path, *usual, "--reply-seconds", 0)
    assert not path.exists()


def test_a_run_is_deployed_by_its_own_file(draft: Path) -> None:
    folder, path = draft.parent, draft.parent / "own.json"
    parties = ("--server-a", folder / "alpha.pub", "--server-b", folder / "beta.pub", "--model", folder / "model.npy")
    config = from_table(presets.preset("mnist", "recommended"))
    (folder / "config.toml").write_text(to_toml(config))
    run("task", "new", path, *parties, "--config", folder / "config.toml", "--budget", 9, "--optimiser", "adam")
    expected = replace(config.training.schedule, optimiser=Optimiser.ADAM)
    assert tasks.load(path).training.schedule == expected
    shown = run("task", "show", path)
    assert all(line in shown for line in ("final_learning_rate  1.0", "learning_rate  10.0", "optimiser  adam"))
    path.unlink()
    assert "budget" in refuse("task", "new", path, *parties, "--config", folder / "config.toml")
    assert "--rounds" in refuse("task", "new", path, *parties, "--budget", 3)
    local = replace(config, training=replace(config.training, protocol=Protocol.LDP))
    (folder / "config.toml").write_text(to_toml(local))
    refused = refuse("task", "new", path, *parties, "--config", folder / "config.toml", "--budget", 9)
    assert "protocol is ldp" in refused
    assert not path.exists()


def test_from_keys_to_a_digest(draft: Path) -> None:
    folder = draft.parent
    assert "the roster is empty" in run("task", "show", draft)
    assert "roster is empty" in refuse("task", "digest", draft)
    run("roster", "add", draft, folder / "bank.pub", "--records", 600)
    first = run("task", "digest", draft)
    run("roster", "add", draft, folder / "lab.pub", "--records", 700)
    assert run("task", "digest", draft) != first
    assert "lab  700 records" in run("roster", "show", draft)
    assert [member["name"] for member in json.loads(run("roster", "show", draft, "--json"))] == ["bank", "lab"]
    run("roster", "remove", draft, "lab")
    assert run("task", "digest", draft) == first
    shown = run("task", "show", draft)
    assert "cost at most  ε = " in shown
    assert first.strip() in shown
    assert json.loads(run("task", "show", draft, "--json"))["digest"] == first.strip()


def test_nothing_secret_is_printed(tmp_path: Path) -> None:
    output = run("keys", "new", "server", "alpha", "--folder", tmp_path)
    for name in ("alpha.key", "alpha.tls.key"):
        secret = (tmp_path / name).read_text().splitlines()[1]
        assert secret not in output


def test_mistakes_are_one_sentence(draft: Path) -> None:
    folder = draft.parent
    assert "not overwritten" in refuse("keys", "new", "client", "bank", "--folder", folder)
    assert re.search(says("lab", "roster"), refuse("roster", "remove", draft, "lab"))
    assert str(folder / "none.pub") in refuse("roster", "add", draft, folder / "none.pub", "--records", 1)
    again = ("task", "new", draft, "--server-a", folder / "alpha.pub", "--server-b", folder / "beta.pub")
    limits = ("--rounds", 20, "--participations", 10, "--budget", 5)
    assert "not overwritten" in refuse(*again, "--model", folder / "model.npy", *limits)
    other = (*again[:2], folder / "other.json", *again[3:])
    assert "cannot read a model" in refuse(*other, "--model", folder / "alpha.pub", *limits)
    np.save(folder / "wrong.npy", np.zeros(10, np.float32))
    assert "float64" in refuse(*other, "--model", folder / "wrong.npy", *limits)


def test_kits_and_audit(draft: Path) -> None:
    folder = draft.parent
    run("roster", "add", draft, folder / "bank.pub", "--records", 600)
    run("kit", "server-a", draft, folder / "a", "--model", folder / "model.npy")
    run("kit", "server-b", draft, folder / "b", "--model", folder / "model.npy")
    run("kit", "client", draft, "bank", folder / "bank")
    assert (folder / "a" / "a.toml").exists()
    assert (folder / "b" / "b.toml").exists()
    assert "--init" in refuse("status", "--config", folder / "b" / "b.toml")
    assert str(folder / "none.toml") in refuse("server", "--config", folder / "none.toml")
    for name in ("a.log", "b.log"):
        (folder / name).write_text("")
    agreed = run("audit", folder / "a.log", folder / "b.log", "--task", draft)
    assert re.search(says("agree", "0 opened rounds"), agreed)
    assert "Statement on the privacy of a task" in agreed
    assert "digest" in refuse("audit", folder / "a.log", folder / "b.log", "--task", draft, "--digest", "00" * 32)
    (folder / "a.log").write_text("junk\n")
    assert "A's log, line 1: not a line" in refuse("audit", folder / "a.log", folder / "b.log", "--task", draft)
    assert "not a client's log" in refuse(
        "audit", folder / "b.log", folder / "b.log", folder / "b.log", "--task", draft
    )


def test_the_ledger_of_a_data_set(draft: Path) -> None:
    folder = draft.parent
    run("roster", "add", draft, folder / "bank.pub", "--records", 600)
    data = folder / "data"
    assert f'data = "{data}"' in run("data", "new", data, "--epsilon", 4, "--delta", 1e-6)
    assert str(data) in refuse("data", "new", data, "--epsilon", 5)
    assert re.search(says("epsilon", 0.0), refuse("data", "new", folder / "x", "--epsilon", 0))
    assert re.search(says("no ledger", folder / "x"), refuse("data", "show", folder / "x"))
    run("kit", "client", draft, "bank", folder / "bank", "--data-ledger", data)
    task = tasks.load(draft)
    with closing(DataLedger(data)) as ledger:
        ledger.count(task, "bank", 0)
        ledger.count(task, "bank", 3)
    shown = json.loads(run("data", "show", data, "--json"))
    expected = {each.value: epsilon(replace(task.terms, delta=1e-6), each, 2) for each in Adversary}
    assert shown["budget"] == {"epsilon": 4, "delta": 1e-6, "unit": "record"}
    assert shown["epsilon"] == shown["tasks"][0]["epsilon"] == expected
    text = run("data", "show", data)
    for part in (task.digest.hex()[:12], "bank", f"{expected['server']:.3f}", shown["digest"], "4"):
        assert part in text


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    settings = tmp_path / "b.toml"
    names = ("task", "model", "key", "tls_key", "certificate", "store", "audit_log")
    settings.write_text("".join(f'{name} = "x"\n' for name in names))
    code = (
        "import sys; sys.modules['uvicorn'] = None; import precad.cli.app as a; "
        f"a.app(['server', '--config', {str(settings)!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "Error: uvicorn is not installed: pip install 'precad[server]'\n"


@pytest.mark.parametrize("preset", [[], ["--preset", "recommended"]], ids=["options", "preset"])
def test_a_server_needs_no_torch(draft: Path, preset: list[str]) -> None:
    """The commands of those who run a task, in a process in which torch does not exist."""
    folder = draft.parent
    task = [*("--server-a", "alpha.pub", "--server-b", "beta.pub", "--model", "model.npy", "--budget", "50"), *preset]
    commands = [
        ["task", "new", "other.json", *task, *("--rounds", "20", "--participations", "2")],
        ["roster", "add", "other.json", "bank.pub", "--records", "60"],
        ["task", "show", "other.json"],
        ["kit", "server-b", "other.json", "b", "--model", "model.npy"],
        ["privacy", "--sigma", "2", "--rounds", "10"],
    ]
    run_all = f"from precad.cli.app import app\nfor words in {commands!r}: app(words, standalone_mode=False)"
    code = f"{WITHOUT_TORCH}\n{run_all}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "cost at most" in ended.stdout
