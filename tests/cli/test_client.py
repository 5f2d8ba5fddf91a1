"""`precad client`, as its operator types it: every mistake is said before any round; it ends when it is told to."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.deployment.parties import Parties
from precad.protocol.params import Unit
from precad.tables import to_table
from tests.deployment import world
from tests.deployment.native_site import NOW, NativeSite

CODE = {
    "good": "import numpy\ndef train(model, round):\n    return numpy.full(model.size, 0.01)\n",
    "bad": "def one(model): ...\ntrain = 3\nimport nothing_of_that_name\n",
    "few": "def one(model): ...\ntrain = 3\n",
    "rec": """
import torch
def load():
    data = torch.utils.data.TensorDataset(torch.randn(9, 27), torch.arange(9) % 5)
    return torch.nn.Linear(27, 5), torch.nn.functional.cross_entropy, data
def small():
    return torch.nn.Linear(3, 3), *load()[1:]
def many():
    return *load()[:2], torch.utils.data.TensorDataset(torch.randn(101, 27), torch.arange(101) % 5)
def pair():
    return load()[:2]
def words():
    return "model", *load()[1:]
def failing():
    raise RuntimeError("the disk with the records is away")
""",
}


def toml(site: NativeSite, name: str, **changes: object) -> Path:
    table = {key: value for key, value in to_table(site.config(name)).items() if value is not None} | changes
    path = site.folder / f"{name}.toml"
    path.write_text(
        "".join(
            f"{key} = {str(value) if isinstance(value, int | float) else repr(str(value))}\n"
            for key, value in table.items()
        )
    )
    return path


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's folder. Python loads a module of one name once, so all tests share it."""
    folder = tmp_path_factory.mktemp("modules")
    for name, text in CODE.items():
        (folder / f"native_{name}.py").write_text(text)
    return folder


@pytest.fixture
def make(tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Parties], NativeSite]]:
    monkeypatch.chdir(modules)
    made = list[NativeSite]()

    def new(setting: Parties) -> NativeSite:
        made.append(NativeSite(tmp_path, setting))
        return made[0]

    yield new
    for each in made:
        each.close()


@pytest.fixture
def site(make: Callable[[Parties], NativeSite]) -> NativeSite:
    return make(world.make(replace(world.TRAINING, rounds=1), clients=("bank",), now=NOW))


def refused(site: NativeSite, *arguments: object) -> str:
    result = CliRunner().invoke(app, ["client", "--config", str(toml(site, "bank")), *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert not (site.folder / "bank.db").exists()
    return result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--train"),
        (("--records", "native_rec:load"), "unit is client"),
        (("--train", "native_good"), "module:function"),
        (("--train", "native_none:train"), "native_none"),
        (("--train", "native_good:nothing"), "nothing"),
        (("--train", "native_bad:one"), "nothing_of_that_name"),
        (("--train", "native_few:train"), "function"),
        (("--train", "native_few:one"), "one(model, round)"),
    ],
)
def test_a_mistake_is_said_before_any_round(site: NativeSite, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(site, *arguments)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("small", "12 trainable parameters"),
        ("many", "at most the 100 records"),
        ("pair", "tuple (model, loss, records)"),
        ("words", "torch.nn.Module"),
        ("failing", "the disk with the records is away"),
    ],
)
def test_records_that_do_not_fit_are_said_before_any_round(
    make: Callable[[Parties], NativeSite], load: str, words: str
) -> None:
    assert words in refused(make(by_record()), "--records", f"native_rec:{load}")


def by_record() -> Parties:
    training = replace(world.TRAINING, rounds=1, record_rate=0.5, reply_seconds=4.0)
    return world.make(training, replace(world.PARAMS, unit=Unit.RECORD, noise_multiplier=8.0), ("bank",), NOW)


def test_a_file_that_is_wrong_is_said(site: NativeSite) -> None:
    path = toml(site, "bank", extra=1)
    result = CliRunner().invoke(app, ["client", "--config", str(path), "--train", "native_good:train"])
    assert result.exit_code == 2
    assert "extra" in result.output


def start(site: NativeSite, name: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "precad", "client", "--config", str(toml(site, name)), *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_client_as_a_process_to_the_end(site: NativeSite) -> None:
    with site.conducting():
        said, logged = start(site, "bank", "--train", "native_good:train").communicate(timeout=200)
    assert "over" in said, logged
    assert "found valid" in logged
    assert site.a.ledger.participations() == {"bank": 1}


def test_by_record_to_the_end(make: Callable[[Parties], NativeSite]) -> None:
    """It trains on its own records, and replies at the task's time."""
    site = make(by_record())
    with site.conducting():
        said, logged = start(site, "bank", "--records", "native_rec:load").communicate(timeout=200)
    assert "over" in said, logged
    assert "failed" not in logged
    assert site.a.ledger.participations() == {"bank": 1}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(site: NativeSite, how: signal.Signals) -> None:
    """While A is away, and each wait is a line."""
    process = start(site, "bank", "--train", "native_good:train")
    assert process.stderr is not None
    line = ""
    while "another attempt" not in line:
        line = process.stderr.readline()
        assert line
    os.kill(process.pid, how)
    begun = time.monotonic()
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopped" in said
    assert time.monotonic() - begun < 10
