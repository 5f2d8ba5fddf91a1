"""The commands that train, as a person types them."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from precad.cli.app import app
from precad.privacy.ledger import read
from tests.messages import says

SHORT = ["--rounds", "4", "--clients", "5", "--evaluate-every", "2"]


def run(tmp_path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", *arguments, "--out", str(tmp_path / "runs")])


def test_a_run_leaves_everything_in_its_folder(tmp_path: Path) -> None:
    result = run(tmp_path, *SHORT, "--seed", "1", "--json")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "runs" / "digits-precad-1"
    summary = json.loads(result.stdout)
    assert summary == json.loads((folder / "summary.json").read_text())
    assert summary["rejected"] == {"client-05": {"rejected": 4, "sent": 4}}
    assert 0 < summary["epsilon_clients"] < summary["epsilon_server"]
    assert "not private" in summary["randomness"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert ["test_accuracy" in line for line in lines] == [False, True, False, True]
    assert lines[-1]["epsilon_server"] == summary["epsilon_server"]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.html").read_text()
    assert f"<data value='{summary['epsilon_server']!r}'>" in page
    assert 0 < summary["plain_seconds"] < sum(summary["seconds"].values())
    assert torch.load(folder / "model.pt", weights_only=True)["1.weight"].shape == (32, 64)
    assert {path.name for path in folder.iterdir()} >= {"config.toml", "ledger.sqlite", "checkpoint.npz"}
    assert not (folder / "root.key").exists()


def test_people_see_the_malicious_client_by_name(tmp_path: Path) -> None:
    result = run(tmp_path, *SHORT)
    assert result.exit_code == 0, result.output
    assert "rejected: client-05" in result.output
    assert "in 4 of the 4 rounds" in result.output
    assert "private: from the operating system" in result.output


@pytest.mark.parametrize("protocol", ["plain", "cdp", "ldp", "ddp"])
def test_the_other_protocols(tmp_path: Path, protocol: str) -> None:
    result = run(tmp_path, *SHORT, "--protocol", protocol, "--malicious", "0", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["protocol"] == protocol
    assert (summary["epsilon_server"] is None) == (protocol in ("plain", "cdp"))
    assert not (tmp_path / "runs" / f"digits-{protocol}-1" / "ledger.sqlite").exists()


def test_a_file_and_options_over_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('seed = 3\n[task]\nclients = 4\nmodel = "linear"\n[training]\nrounds = 2\n')
    result = run(tmp_path, str(tmp_path / "run.toml"), "--rounds", "3", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["clients"], summary["parameters"], summary["rounds"], summary["seed"]) == (4, 650, 3, 3)


BAD: dict[str, tuple[list[str], tuple[object, ...]]] = {
    "sigma": (["--sigma", "-1"], ("noise_multiplier", 0, -1.0)),
    "C": (["--client-bound", "1e9"], ("C", 1e9, "field")),
    "shards": (["--clients", "2000"], ("clients", 2000, "1437 records")),
    "data set": (["--dataset", "minst"], ("data set", "'minst'", "digits")),
    "preset": (["--preset", "best"], ("digits", "preset", "'best'")),
    "folder": (["--dataset", "mnist", "--data", "/nowhere"], ("no folder /nowhere",)),
    "file": (["/nowhere.toml"], ("no file /nowhere.toml",)),
    "module": (["--dataset", "nomodule:f"], ("task", "'nomodule:f'", "'nomodule'")),
    "budget": (["--budget", "0.0001"], ("budget", 0.0001)),
    "device": (["--device", "warp"], ("device", "'warp'", "cpu", "cuda")),
    "diverged": (["--learning-rate", "1e200"], ("diverged", "round 1")),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path: Path, what: str) -> None:
    arguments, words = BAD[what]
    result = run(tmp_path, *SHORT, *arguments)
    assert result.exit_code == 2
    error = result.stderr.strip()
    assert re.search(says(*words), error)
    assert error.startswith("Error: ")
    assert "\n" not in error
    if what != "diverged":
        assert not (tmp_path / "runs").exists()


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    assert run(tmp_path, *SHORT, "--name", "mine").exit_code == 0
    result = run(tmp_path, *SHORT, "--name", "mine")
    assert result.exit_code == 2
    assert re.search(says(tmp_path / "runs" / "mine", "exists"), result.stderr)


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert (result.exit_code, "no run" in result.stderr) == (2, True)
    run(tmp_path, *SHORT, "--name", "mine")
    result = CliRunner().invoke(app, ["resume", str(tmp_path / "runs" / "mine")])
    assert result.exit_code == 2
    assert re.search(says("mine", "end"), result.stderr)


def test_where_the_data_are_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRECAD_DATA", "images")
    assert run(tmp_path, *SHORT, "--name", "mine").exit_code == 0
    machine = json.loads((tmp_path / "runs" / "mine" / "machine.json").read_text())
    assert machine["data"] == str(tmp_path / "images")


CUSTOM = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from precad import Problem

def make(config, data):
    clients = {f"lab-{i}": TensorDataset(torch.randn(20, 4), torch.randint(0, 2, (20,))) for i in range(config.clients)}
    return Problem.of_datasets(nn.Linear(4, 2), nn.functional.cross_entropy, clients)

def wrong(config, data):
    return 3
"""
TRAINING = """
[task]
dataset = "mytask:make"
clients = 3
[training]
rounds = 3
client_rate = 1.0
record_rate = 0.5
record_bound = 1.0
client_bound = 5.0
noise_multiplier = 1.0
learning_rate = 0.1
"""


def test_a_task_of_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mytask.py").write_text(CUSTOM)
    (tmp_path / "run.toml").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    result = run(tmp_path, "run.toml", "--json", "--name", "own")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["clients"], summary["parameters"], summary["test_accuracy"]) == (3, 10, None)
    result = run(tmp_path, "run.toml", "--dataset", "nomodule:f")
    assert (result.exit_code, "'nomodule:f'" in result.stderr) == (2, True)
    result = run(tmp_path, "run.toml", "--dataset", "mytask:wrong")
    assert result.exit_code == 2
    assert re.search(says("mytask:wrong", "precad.Problem", "int"), result.stderr)


def test_ctrl_c_and_resume(tmp_path: Path) -> None:
    """A real process, a real interrupt: exit code 130, and the resumed run is that without interrupt."""
    options = [
        "train",
        "--rounds",
        "40",
        "--clients",
        "5",
        "--seed",
        "5",
        "--evaluate-every",
        "40",
        "--out",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "precad", *options, "--name", "cut"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        metrics = tmp_path / "cut" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count("\n") < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "precad resume" in output
    book = read(tmp_path / "cut" / "ledger.sqlite")
    assert f"stays true when the run goes on: {book.last_link}" in output
    finished, counted = metrics.read_text().count("\n"), len(book.rows)
    assert (f"round {counted} is counted, and was not finished" in output) == (counted > finished)
    assert not (tmp_path / "cut" / "ledger.sqlite-wal").exists()
    resumed = CliRunner().invoke(app, ["resume", str(tmp_path / "cut"), "--json"])
    whole = CliRunner().invoke(app, [*options, "--name", "whole", "--json"])
    ends = [json.loads(result.stdout) for result in (resumed, whole)]
    for end in ends:
        del end["seconds"], end["plain_seconds"], end["run"]
    assert ends[0] == ends[1]
    models = [torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("cut", "whole")]
    assert all(torch.equal(models[0][key], models[1][key]) for key in models[0])


@pytest.mark.parametrize("name", ["../up", "a/b", "..", "/abs", ""])
def test_a_name_stays_in_the_folder_of_runs(tmp_path: Path, name: str) -> None:
    result = run(tmp_path, *SHORT, "--name", name)
    assert result.exit_code == 2
    assert re.search(says("name", "--out"), result.stderr)
    assert not list(tmp_path.iterdir())


def test_a_seeded_run_says_everywhere_that_it_is_not_private(tmp_path: Path) -> None:
    result = run(tmp_path, *SHORT, "--seed", "1", "--name", "it's [red]")
    assert result.exit_code == 0, result.output
    assert result.output.count("not private") >= 2
    folder = tmp_path / "runs" / "it's [red]"
    assert "not private" in (folder / "config.toml").read_text()
    assert "not private" in (folder / "summary.json").read_text()
    assert all(not json.loads(line)["private"] for line in (folder / "metrics.jsonl").read_text().splitlines())
    assert str(folder) in result.output
