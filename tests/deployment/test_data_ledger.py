"""One budget for a data set: over all tasks, counted once, before training, and not forgotten."""

import math
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precad.deployment import data_file
from precad.deployment.client import Client, RefusedError
from precad.deployment.data_file import FILE, DataBudget
from precad.deployment.data_ledger import DataLedger, SpentError
from precad.deployment.disk import StoreError
from precad.deployment.parties import Parties
from precad.deployment.task import Task
from precad.privacy.epsilon import epsilon, total
from precad.privacy.terms import Adversary, Spent
from precad.protocol.params import Unit
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says

FIRST = world.make()
QUIET = replace(world.PARAMS, noise_multiplier=6.0)
SECOND = world.make(params=QUIET)
BY_RECORD = world.make(params=replace(world.PARAMS, unit=Unit.RECORD, client_bound=6.0))
ONE, TWO = FIRST.task.terms, SECOND.task.terms


def together(first: int, second: int) -> float:
    return total([Spent(ONE, first), Spent(TWO, second)], Adversary.SERVER, ONE.delta)


def make(folder: Path, budget: float, unit: Unit = Unit.CLIENT, delta: float = ONE.delta) -> Path:
    DataLedger.new(folder, DataBudget(epsilon=budget, delta=delta, unit=unit)).close()
    return folder


def count(folder: Path, task: Task, *rounds: int, client: str = "bank") -> None:
    with closing(DataLedger(folder)) as ledger:
        for number in rounds:
            ledger.count(task, client, number)


def counts(folder: Path) -> dict[str, int]:
    return {row.task: row.participations for row in data_file.view(folder).tasks}


def test_the_budget_holds_over_tasks_and_is_met_exactly(tmp_path: Path) -> None:
    """The number that is printed is the one that is enforced: with the next smaller budget, one round less is paid."""
    exact = together(3, 2)
    for name, budget, paid in (("exact", exact, 2), ("less", float(np.nextafter(exact, 0)), 1)):
        data = make(tmp_path / name, budget)
        count(data, FIRST.task, 0, 1, 2)
        count(data, SECOND.task, *range(paid))
        with pytest.raises(SpentError, match=says(f"{together(3, paid + 1):.6g}", f"{budget:g}")):
            count(data, SECOND.task, paid)
        with pytest.raises(SpentError, match=says(f"{together(4, paid):.6g}", f"{budget:g}")):
            count(data, FIRST.task, 3)
        assert counts(data) == {FIRST.task.digest.hex(): 3, SECOND.task.digest.hex(): paid}
        assert data_file.view(data).as_json()["epsilon"]["server"] == together(3, paid) <= budget


def test_a_second_task_on_the_same_data_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Each task is within its own budget; both together are not within the one of the data."""
    data = make(tmp_path / "data", together(2, 1))
    first = Consortium(tmp_path / "first", FIRST, {"bank": data})
    second = Consortium(tmp_path / "second", SECOND, {"bank": data})
    for _ in range(2):
        first.round()
    second.a.start_round()
    assert second.a.submit(second.reply("bank")) is None
    second.a.finish_round()
    second.a.start_round()
    with pytest.raises(RefusedError, match=says(f"{together(2, 2):.6g}", f"{together(2, 1):g}")):
        second.reply("bank")
    assert second.client("bank").participations() == 1
    assert second.a.submit(second.reply("lab")) is None, "who has other data goes on"
    first.close()
    second.close()


def test_a_round_is_counted_before_training_and_once(tmp_path: Path) -> None:
    data = make(tmp_path / "data", 8.0)
    parties = Consortium(tmp_path, FIRST, {"bank": data})
    parties.a.start_round()
    joined = parties.client("bank").join(parties.a.invitation(), parties.a.model())
    assert counts(data) == {FIRST.task.digest.hex(): 1}
    parties.kill("bank")  # between the count and the reply
    first = parties.reply("bank")
    assert parties.reply("bank", np.ones(world.DIM)) == first
    assert parties.client("bank").answer(joined, np.ones(world.DIM)) == first, "what was answered stays so"
    assert counts(data) == {FIRST.task.digest.hex(): 1}
    parties.close()


def test_who_was_let_in_can_answer_though_the_budget_is_spent_meanwhile(tmp_path: Path) -> None:
    """Two tasks ask at once, and one round is left: the second to join is refused, the first always submits."""
    data = make(tmp_path / "data", together(1, 0))
    first, second = (Consortium(tmp_path / name, each, {"bank": data}) for name, each in (("1", FIRST), ("2", SECOND)))
    first.a.start_round()
    second.a.start_round()
    joined = first.client("bank").join(first.a.invitation(), first.a.model())
    with pytest.raises(RefusedError, match="budget"):
        second.reply("bank")
    assert first.a.submit(first.client("bank").answer(joined, np.ones(world.DIM))) is None
    first.close()
    second.close()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[tuple[Consortium, Path, Path]]:
    """After two rounds, with a copy of the data's ledger from after the first."""
    data, backup = make(tmp_path / "data", 8.0), tmp_path / "backup"
    parties = Consortium(tmp_path, FIRST, {"bank": data})
    parties.round()
    shutil.copytree(data, backup)
    parties.round()
    parties.a.start_round()
    yield parties, data, backup
    parties.close()


def test_a_ledger_that_was_put_back_is_refused(played: tuple[Consortium, Path, Path]) -> None:
    parties, data, backup = played
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    with pytest.raises(StoreError, match=says(data, "forgotten", 2)):
        parties.reply("bank")
    count(data, SECOND.task, *range(9))  # it went on with another task, and is longer than it was
    with pytest.raises(StoreError, match=says(data, "forgotten", 2)):
        parties.reply("bank")
    shutil.rmtree(data)
    with pytest.raises(StoreError, match=says("no ledger", data)):
        parties.reply("bank")


def test_another_task_notices_too(played: tuple[Consortium, Path, Path], tmp_path: Path) -> None:
    """Its own rounds are all there; those of the other task that it saw are not."""
    parties, data, _ = played
    other = Consortium(tmp_path / "other", SECOND, {"bank": data})
    other.round()
    shutil.copytree(data, tmp_path / "later")
    parties.reply("bank")
    other.round()
    with closing(sqlite3.connect(tmp_path / "later" / FILE)) as file, file:
        assert file.execute("SELECT count(*) FROM rounds").fetchone() == (3,)
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "later", data)
    count(data, SECOND.task, 1)
    other.a.start_round()
    with pytest.raises(StoreError, match=says("forgotten", 5)):
        other.reply("bank")
    other.close()


def test_a_new_ledger_or_none_in_the_place_of_the_first_is_refused(played: tuple[Consortium, Path, Path]) -> None:
    parties, data, _ = played
    parties.kill("bank")
    parties.data = {}
    with pytest.raises(RefusedError, match=says("counted", data_file.view(data).mark.data)):
        parties.reply("bank")
    parties.kill("bank")
    parties.data = {"bank": make(data.parent / "fresh", 8.0)}
    with pytest.raises(StoreError, match=says(data_file.view(data).mark.data, data.parent / "fresh")):
        parties.reply("bank")


def test_a_client_without_a_ledger_brings_its_rounds_along(tmp_path: Path) -> None:
    """What it sent before its data had a ledger was spent, even above the budget."""
    parties = Consortium(tmp_path, FIRST)
    parties.round()
    parties.round()
    parties.kill("bank")
    parties.data = {"bank": make(tmp_path / "data", together(1, 0))}
    parties.a.start_round()
    with pytest.raises(RefusedError, match=says(f"{together(3, 0):.6g}")):
        parties.reply("bank")
    assert counts(parties.data["bank"]) == {FIRST.task.digest.hex(): 2}
    parties.close()


def test_two_clients_of_a_task_cannot_have_the_same_data(tmp_path: Path) -> None:
    data = make(tmp_path / "data", 8.0)
    count(data, FIRST.task, 0)
    with pytest.raises(StoreError, match=says("bank", "lab", "twice")):
        count(data, FIRST.task, 1, client="lab")


def _count_all(folder: Path, task: Task, start: int, results: "multiprocessing.SimpleQueue[int]") -> None:
    paid = 0
    for number in range(start, start + 4):
        try:
            count(folder, task, number)
            paid += 1
        except SpentError:
            break
    results.put(paid)


def test_processes_that_count_at_once_never_pass_the_budget(tmp_path: Path) -> None:
    data = make(tmp_path / "data", together(3, 2))
    results: multiprocessing.SimpleQueue[int] = multiprocessing.get_context("fork").SimpleQueue()
    processes = [
        multiprocessing.get_context("fork").Process(target=_count_all, args=(data, task, start, results))
        for task, start in ((FIRST.task, 0), (FIRST.task, 10), (SECOND.task, 0), (SECOND.task, 10))
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    view = data_file.view(data)
    assert sum(results.get() for _ in processes) == view.mark.number > 0
    assert view.as_json()["epsilon"]["server"] <= together(3, 2)


KILLED = """
import os, sys
from pathlib import Path
from precad.deployment import task as tasks
from precad.deployment.data_ledger import DataLedger
task = tasks.load(Path(sys.argv[2]))
ledger = DataLedger(Path(sys.argv[1]))
ledger.count(task, "bank", 0)
if sys.argv[3] == "inside":
    ledger._connection.execute("BEGIN IMMEDIATE")
    ledger._insert(ledger._rows(task, "bank")[-1], 1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("when", ["after", "inside"])
def test_a_process_that_is_killed_has_counted_whole_rounds(tmp_path: Path, when: str) -> None:
    data = make(tmp_path / "data", 8.0)
    FIRST.task.save(tmp_path / "task.json")
    command = [sys.executable, "-c", KILLED, str(data), str(tmp_path / "task.json"), when]
    assert subprocess.run(command, check=False).returncode == -9
    assert counts(data) == {FIRST.task.digest.hex(): 1}
    count(data, FIRST.task, 0, 1)
    assert counts(data) == {FIRST.task.digest.hex(): 2}


def test_rounds_that_are_paid_for_need_no_accountant(tmp_path: Path) -> None:
    """It is loaded once for many rounds, of other tasks too."""
    long = world.make(replace(world.TRAINING, participations=40), replace(world.PARAMS, noise_multiplier=40.0))
    data = make(tmp_path / "data", 3.0)
    count(data, long.task, 0)
    long.task.save(tmp_path / "task.json")
    code = KILLED.replace("os.kill(os.getpid(), 9)", "") + (
        "for number in range(1, 30): ledger.count(task, 'bank', number)\n"
        "print([name for name in sys.modules if 'dp_accounting' in name])\n"
    )
    command = [sys.executable, "-c", code, str(data), str(tmp_path / "task.json"), "no"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "[]"
    assert counts(data) == {long.task.digest.hex(): 30}


@pytest.mark.parametrize(
    ("setting", "unit"), [(BY_RECORD, Unit.CLIENT), (FIRST, Unit.RECORD)], ids=["client", "record"]
)
def test_the_other_unit(tmp_path: Path, setting: Parties, unit: Unit) -> None:
    """A record may turn one update within C into another, 2·C apart; a client's whole update is within C."""
    bounds = setting.task.bounds
    moved = 2 * bounds.client_bound if unit is Unit.RECORD else bounds.client_bound
    terms = DataBudget(epsilon=1, delta=1e-6, unit=unit).terms(setting.task)
    std = math.ldexp(bounds.noise_std, -bounds.fractional_bits)
    assert terms.sigma == pytest.approx(std / moved, rel=1e-12)
    assert (terms.record_rate, terms.delta) == (1.0, 1e-6)
    data = make(tmp_path / "data", epsilon(terms, Adversary.SERVER, 1), unit, 1e-6)
    count(data, setting.task, 0)
    with pytest.raises(SpentError):
        count(data, setting.task, 1)
    own = DataBudget(epsilon=1, delta=bounds.terms(0.05, 1e-5).delta, unit=bounds.unit).terms(setting.task)
    assert own == setting.task.terms


def test_where_no_epsilon_holds_nothing_is_paid_for(tmp_path: Path) -> None:
    loud = world.make(params=replace(world.PARAMS, unit=Unit.RECORD, noise_multiplier=0.2))
    data = make(tmp_path / "data", 1e6)
    with pytest.raises(SpentError, match=says("no ε", "1e+06")):
        count(data, loud.task, 0)


def test_every_change_of_the_file_is_named(tmp_path: Path) -> None:
    data = make(tmp_path / "data", 8.0)
    count(data, FIRST.task, 0, 1)
    count(data, SECOND.task, 0)
    for change, words in {
        "UPDATE tasks SET participations = 1 WHERE participations = 2": ("count", FIRST.task.digest.hex()),
        "UPDATE tasks SET client = 'lab'": ("entry 1",),
        "DELETE FROM rounds WHERE number = 1": ("entry 2",),
        "UPDATE rounds SET round = 7 WHERE number = 2": ("entry 2", "round 7"),
        "DELETE FROM tasks": ("entry 1",),
        """UPDATE tasks SET terms = '{"dim": 1}'""": ("sigma",),
        """UPDATE budget SET json = replace(json, '8.0', '9.0')""": ("entry 1",),
        "DROP TABLE budget": ("not the ledger",),
        "DELETE FROM budget": ("not the ledger",),
        "UPDATE tasks SET client = X'00'": ("a task was changed",),
        "UPDATE rounds SET link = X'07'": ("a round was changed",),
        """UPDATE budget SET json = '{"data": 1, "epsilon": 1e999}'""": ("not the ledger",),
    }.items():
        shutil.copytree(data, tmp_path / "changed")
        with closing(sqlite3.connect(tmp_path / "changed" / FILE)) as file, file:
            file.execute(change)
        with pytest.raises(StoreError, match=says(*words)):
            data_file.view(tmp_path / "changed")
        shutil.rmtree(tmp_path / "changed")


def test_looking_changes_nothing(tmp_path: Path) -> None:
    data = make(tmp_path / "data", 8.0)
    count(data, FIRST.task, 0)
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    assert data_file.view(data).mark.number == 1
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before
    assert os.stat(data / FILE).st_mode & 0o077 == 0, "its owner alone reads it"


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_budgets_that_are_none(tmp_path: Path, budget: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        make(tmp_path, budget)
    with pytest.raises(ValueError, match="delta"):
        make(tmp_path, 1.0, delta=budget)
    assert not any(tmp_path.iterdir())


def test_what_was_spent_is_not_begun_anew(tmp_path: Path) -> None:
    make(tmp_path / "data", 8.0)
    with pytest.raises(ValueError, match=says(tmp_path / "data" / FILE, "exists")):
        make(tmp_path / "data", 9.0)
    for folder in (tmp_path / "nothing", tmp_path):
        with pytest.raises(StoreError, match=says("no ledger", folder)):
            DataLedger(folder)
    (tmp_path / FILE).write_bytes(b"garbage" * 1000)
    with pytest.raises(StoreError):
        DataLedger(tmp_path)


def test_a_client_may_do_without(tmp_path: Path) -> None:
    Client(FIRST.task, "bank", FIRST.clients["bank"].signing, tmp_path / "bank.db", data=None).close()


@pytest.mark.parametrize("before", ["BEGIN IMMEDIATE", "INSERT", "COMMIT"])
def test_a_ledger_whose_beginning_was_cut_off_is_begun_again(tmp_path: Path, before: str) -> None:
    """Or its owner would have to delete a file that says it must not be."""
    code = f"""
import os, pathlib, signal, sqlite3
from precad.deployment.data_file import DataBudget
from precad.deployment.data_ledger import DataLedger

def traced(*arguments, connect=sqlite3.connect, **options):
    connection = connect(*arguments, **options)
    connection.set_trace_callback(lambda said: said.startswith({before!r}) and os.kill(os.getpid(), signal.SIGKILL))
    return connection

sqlite3.connect = traced
DataLedger.new(pathlib.Path({str(tmp_path)!r}), DataBudget(epsilon=1.0, delta=1e-5))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert DataLedger.new(tmp_path, DataBudget(epsilon=2.0, delta=1e-5)).budget.epsilon == 2.0
    with pytest.raises(ValueError, match=says("data.db", "exists")):
        DataLedger.new(tmp_path, DataBudget(epsilon=3.0, delta=1e-5))
