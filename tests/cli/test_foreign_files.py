"""Files and folders that somebody else made: no command hangs, fails loudly, changes what it reads, or runs it."""

import hashlib
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from precad.lab.paper.runner import Worker
from precad.settings import config_digest
from tests import garbage
from tests.cli import foreign

ROOT = Path(__file__).parent.parent.parent
READS = [(command, name) for command, names in foreign.COMMANDS.items() for name in names.split()]
ARRAYS, TABLES, TEXTS = (".npy", ".npz", ".pt"), (".db", ".sqlite"), (".toml", ".json", ".jsonl", ".log", ".pub")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that commands read, made in another process: threads that trained would not survive a fork."""
    folder = tmp_path_factory.mktemp("foreign")
    code = "import sys, pathlib; from tests.cli.foreign import make_world; make_world(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "world"))


def state(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time and its digest."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def kinds(name: str) -> list[str]:
    """What garbage a file may meet; that of other kinds of files is to it as random bytes are."""
    of_arrays = ("an 8 TB header", "an object array", "an archive with an 8 TB header", "a bomb")
    of_tables = ("an endless view", "another database")
    unfit = {*(of_arrays if not name.endswith(ARRAYS) else ()), *(of_tables if not name.endswith(TABLES) else ())}
    return [kind for kind in garbage.WHOLE if kind not in unfit and (kind, name) != ("nothing", "run/config.toml")]


def spoiled(world: Path, command: str, name: str, kind: str) -> None:
    garbage.spoil(world / name, kind)
    done = foreign.run(command, world)
    assert done.fault is None, (command, name, kind, done)
    if done.code == 2:
        assert Path(name).name in done.err or Path(name).parent.name in done.err, done.err


def one_kind_each() -> Iterator[tuple[str, str, str]]:
    """Every file that a command reads, with the next kind of garbage; every kind comes often."""
    used = Counter[str]()
    for command, name in READS:
        kind = min(kinds(name), key=lambda each: used[each])
        used[kind] += 1
        yield command, name, kind


SOME = list(one_kind_each())


@pytest.mark.parametrize(("command", "name", "kind"), SOME)
def test_garbage_is_refused_in_one_sentence(world: Path, command: str, name: str, kind: str) -> None:
    spoiled(world, command, name, kind)


def test_every_kind_of_garbage_is_tried() -> None:
    assert {kind for _, _, kind in SOME} == set(garbage.WHOLE)


@pytest.mark.long
@pytest.mark.parametrize(("command", "name"), READS)
def test_all_garbage_everywhere(made: Path, tmp_path: Path, command: str, name: str) -> None:
    for number, kind in enumerate(kinds(name)):
        spoiled(Path(shutil.copytree(made, tmp_path / str(number))), command, name, kind)


RIGHT = {("server --config a/a.toml", "clients_port = 0")}
"""Values that are no garbage: this one is a server without native clients, which runs until it is stopped."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "name"),
    [read for read in READS if read[1].endswith(TEXTS) and "train" not in read[0]],
)
def test_all_garbage_in_the_place_of_a_value(made: Path, tmp_path: Path, command: str, name: str) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "world"))
    for what, text in garbage.spoiled_texts(made / name):
        if (command, what) in RIGHT:
            continue
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        (folder / name).write_text(text)
        done = foreign.run(command, folder)
        assert done.fault is None, (what, done)
        for path in set(folder.rglob("*")) - set(before):
            if path.is_file():
                path.unlink()
        for path, content in before.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)


CHANGES = {
    "round": "UPDATE entries SET round = -1000000000 WHERE number = 1",
    "numbers for names": "UPDATE entries SET participants = '[1, \"a\"]' WHERE number = 1",
    "lists for names": "UPDATE entries SET participants = '[[\"a\"]]' WHERE number = 1",
    "bytes": "UPDATE entries SET link = x'ff' WHERE number = 1",
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("command", ["report run", "audit run", "report a", "ledger show run/ledger.sqlite"])
def test_garbage_in_the_place_of_a_value_of_a_ledger(world: Path, command: str, what: str) -> None:
    path = world / ("a/alpha.db" if command == "report a" else "run/ledger.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(CHANGES[what])
    done = foreign.run(command, world)
    assert done.fault is None, done
    assert "changed" in done.out + done.err


@pytest.mark.parametrize("change", ["model SET parameters = 5", "rounds SET selected = '5'", "rounds SET model = 1.5"])
def test_garbage_in_the_place_of_a_value_of_a_store(world: Path, change: str) -> None:
    with closing(sqlite3.connect(world / "a/alpha.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE {change}")
    done = foreign.run("status --config a/a.toml", world)
    assert (done.fault, done.code) == (None, 2), done


ONLY_READ = [
    "report run --out out/page.html",
    "report a --out out/page.html",
    "audit run",
    "audit alpha.audit.log beta.audit.log bank.audit.log --task a/task.json",
    "ledger show run/ledger.sqlite",
    "ledger verify run/ledger.sqlite",
    "ledger export run/ledger.sqlite --csv",
    "ledger total private",
    "data show data",
    "task show a/task.json",
    "status --config a/a.toml",
]


@pytest.mark.parametrize("command", ONLY_READ)
def test_evidence_stays_evidence(world: Path, command: str) -> None:
    """No byte, no time and no neighbour changes, with a write-ahead log beside a ledger too."""
    for name in ("run/ledger.sqlite", "a/alpha.db"):
        (world / f"{name}-wal").write_bytes(bytes(100))
    before = state(world)
    done = foreign.run(command, world)
    assert done.code == (1 if command == "audit run" else 0), done  # it names the log, which a run that ended has not
    after = state(world)
    after.pop("out/page.html", None)
    assert after == before


@pytest.mark.parametrize("command", ["report run", "resume stopped"])
def test_no_planted_link_is_written_through(world: Path, command: str) -> None:
    """A shell's start file, to which every name leads that a command could write."""
    folder = world / command.split()[1]
    yours = world / "bashrc"
    yours.write_text("yours\n")
    for name in ("report.html", "curves.png", "model.pt", "lock", "about.json.draft", ".report.html.draft"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(yours)
    done = foreign.run(command, world)
    assert done.code == 2
    assert "link" in done.err
    assert yours.read_text() == "yours\n"


CODE = """
import pathlib
pathlib.Path("ran").write_text("")
def make(task, data):
    raise ValueError("it was made")
"""


@pytest.fixture
def with_code(world: Path) -> Path:
    """Runs whose configurations name a module, which is in their folder, and where the person stands."""
    for run in ("run", "stopped"):
        folder = world / run
        machine = json.loads((folder / "machine.json").read_text())
        text = (folder / "config.toml").read_text().replace('dataset = "digits"', 'dataset = "evil:make"')
        (folder / "config.toml").write_text(text)
        (folder / "machine.json").write_text(json.dumps(machine | {"config": config_digest(text)}))
        (folder / "evil.py").write_text(CODE)
    (world / "evil.py").write_text(CODE)
    return world


@pytest.mark.parametrize("command", ["report run", "audit run", "ledger total run private", "resume stopped"])
def test_what_is_only_read_is_not_run(with_code: Path, command: str) -> None:
    done = foreign.run(command, with_code)
    assert done.fault is None, done
    assert not (with_code / "ran").exists()
    if command == "resume stopped":
        assert done.code == 2
        assert "'evil:make'" in done.err
        assert str(with_code / "evil.py") in done.err
        assert "--run-code" in done.err


def test_code_runs_when_a_person_says_so_and_is_told_where_it_is(with_code: Path) -> None:
    done = foreign.run("resume stopped --run-code", with_code)
    assert (with_code / "ran").exists()
    assert f"'evil:make' is code: it is loaded from {with_code / 'evil.py'}" in done.err
    assert "it was made" in done.err


def test_a_worker_does_not_look_for_libraries_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tomllib", "json", "torch", "fractions"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    worker = Worker(None)
    worker.close()
    assert worker._process.returncode == 0
    assert not (tmp_path / "ran").exists()


def test_the_program_does_not_look_for_libraries_in_the_working_folder(tmp_path: Path) -> None:
    for name in ("tomllib", "typer", "rich", "sqlite3", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    command = [sys.executable, "-m", "precad", "ledger", "verify", "none"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "there is no ledger" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_no_settings_of_the_working_folder_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba's may name a folder of pickles to run, and matplotlib's may be a pipe, which never ends."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'theirs'}\ndisable_jit: 1\n")
    os.mkfifo(tmp_path / "matplotlibrc")
    code = """
import precad.plotting
from precad.mpc.kernels import kernel
import numpy as np, os, numba
assert kernel(lambda x: x + 1)(np.uint64(5)) == 6  # whatever is compiled, settings are read again
assert not numba.config.DISABLE_JIT and not numba.config.CACHE_DIR
assert os.getcwd() == os.path.realpath(".")
"""
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, check=True, timeout=60)
    assert not (tmp_path / "theirs").exists()


HOSTILE = "\x1b]0;title\x07\x1b[31m\u202e[red]\n\x9b"


NAMING = ["ledger verify", "task show", "report", "audit", "resume", "train", "ledger show a"]


@pytest.mark.parametrize("command", NAMING)
def test_no_control_character_of_a_name_reaches_the_terminal(world: Path, command: str) -> None:
    done = foreign.run(f"{command} {shlex.quote(HOSTILE)}", world)
    assert done.code == 2
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
    assert r"\x1b]0;title\x07" in done.err.replace("\n", "").replace("│", "").replace(" ", "")
