"""The total of several runs: composed, never too small, and refused by name where there is none."""

import json
import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from typer.testing import CliRunner

import precad
from precad.cli.app import app
from precad.deployment import kit
from precad.deployment.data_file import DataBudget
from precad.deployment.data_ledger import DataLedger
from precad.privacy.epsilon import epsilon, total
from precad.privacy.ledger import Ledger, Origin
from precad.privacy.ledger import read as read_ledger
from precad.privacy.terms import Adversary, Spent, Terms
from precad.protocol.params import Unit
from precad.protocol.states import Role
from precad.settings import Hyperparameters
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.simulation.small import data, hyperparameters, model

TERMS = Terms(sigma=2.0, record_rate=0.1, delta=1e-5, dim=100)
BY_RECORD = Origin(unit="record", private=True)
DIM = sum(parameter.numel() for parameter in model().parameters())


def printed(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["ledger", "total", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["ledger", "total", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    return result.output


def book(path: Path, counts: dict[str, int], terms: Terms = TERMS, origin: Origin = BY_RECORD, task: str = "") -> Path:
    """A ledger's file with these participations."""
    made = Ledger(path, task or path.stem, terms, origin)
    for number in range(max(counts.values())):
        made.record(number, [name for name, count in counts.items() if number < count])
    return path


def run(folder: Path, seed: int | None = None, **changes: Any) -> tuple[Path, Hyperparameters]:
    params = hyperparameters(**({"rounds": 3, "client_rate": 1.0, "noise_multiplier": 3.0} | changes))
    clients = {name: data(20, seed=i) for i, name in enumerate(("bank", "lab"))}
    precad.train(model(), nn.functional.cross_entropy, clients, params, folder=folder, seed=seed)
    return folder, params


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    return {
        "first": run(place / "first")[0],
        "again": run(place / "again")[0],
        "client": run(place / "client", unit="client", noise_multiplier=9.0, rounds=2)[0],
        "seeded": run(place / "seeded", seed=7)[0],
        "ldp": run(place / "ldp", protocol="ldp")[0],
        "plain": run(place / "plain", protocol="plain")[0],
    }


def test_a_total_is_composed_for_each_client_by_its_name(tmp_path: Path) -> None:
    other = replace(TERMS, sigma=3.0, record_rate=0.3, delta=1e-6, dim=7)
    one = book(tmp_path / "one.sqlite", {"bank": 40, "lab": 30})
    two = book(tmp_path / "two.sqlite", {"bank": 20, "clinic": 5}, other)
    found = printed(one, two)
    assert found["delta"] == 1e-6, "the smallest of the runs'"
    expected = {"bank": (40, 20), "clinic": (0, 5), "lab": (30, 0)}
    for name, (first, second) in expected.items():
        for adversary in Adversary:
            value = found["clients"][name]["epsilon"][adversary.value]
            assert value == total([Spent(TERMS, first), Spent(other, second)], adversary, 1e-6)
            alone = [epsilon(replace(TERMS, delta=1e-6), adversary, first), epsilon(other, adversary, second)]
            assert max(alone) <= value <= sum(alone)
            if first and second:
                assert max(alone) < value < sum(alone)
        assert found["clients"][name]["participations"] == [first, second]
    assert printed(two, one)["clients"]["bank"]["epsilon"] == found["clients"]["bank"]["epsilon"]
    assert (
        printed(one, two, "--delta", 1e-4)["clients"]["bank"]["epsilon"]["server"]
        < (found["clients"]["bank"]["epsilon"]["server"])
    )
    pair = printed(one, two, "--group", 2)
    assert pair["clients"]["bank"]["epsilon"]["server"] > found["clients"]["bank"]["epsilon"]["server"]


def test_a_single_run_costs_what_it_says_itself(runs: dict[str, Path]) -> None:
    for name in ("first", "client"):
        summary = json.loads((runs[name] / "summary.json").read_text())
        for given in (runs[name], runs[name] / "ledger.sqlite"):
            costs = printed(given)["clients"]["bank"]["epsilon"]
            assert (costs["server"], costs["clients"]) == (summary["epsilon_server"], summary["epsilon_clients"])


def test_people_see_a_table_and_what_it_rests_on(tmp_path: Path, runs: dict[str, Path]) -> None:
    old = book(tmp_path / "old.sqlite", {"bank": 4}, origin=Origin())
    result = CliRunner().invoke(app, ["ledger", "total", str(runs["first"]), str(old)])
    assert result.exit_code == 0, result.output
    value = printed(runs["first"], old)["clients"]["bank"]["epsilon"]["server"]
    for part in ("bank", "3 + 4", f"{value:.3f}", "2 runs", "same name", "taken on trust"):
        assert part in " ".join(result.output.split())
    assert "old.sqlite" in "".join(result.output.split())


def test_two_runs_of_the_same_settings_are_two_though_their_ledgers_are_equal(runs: dict[str, Path]) -> None:
    first, again = (read_ledger(runs[name] / "ledger.sqlite") for name in ("first", "again"))
    assert first.rows == again.rows
    found = printed(runs["first"], runs["again"])["clients"]["bank"]
    assert found["participations"] == [3, 3]
    assert found["epsilon"]["server"] == epsilon(first.terms, Adversary.SERVER, 6)


def test_the_same_rounds_are_not_counted_twice(tmp_path: Path, runs: dict[str, Path]) -> None:
    """Neither a run given twice, nor a copy of it, nor its ledger or export; a shorter copy neither."""
    first = runs["first"]
    copy, export = tmp_path / "copy", tmp_path / "export.json"
    shutil.copytree(first, copy)
    export.write_text(json.dumps(read_ledger(first / "ledger.sqlite").export()))
    bare = tmp_path / "ledger.sqlite"
    shutil.copy(first / "ledger.sqlite", bare)
    for other in (first, copy, first / "ledger.sqlite", export, bare, copy / "ledger.sqlite"):
        assert re_says(refused(first, other), first, other, "same rounds")
    assert "same rounds" in refused(export, bare)
    short, long = (book(tmp_path / f"{n}.sqlite", {"bank": n}, task="one") for n in (3, 5))
    assert "same rounds" in refused(short, long), "the run went on after it was copied"


@pytest.mark.parametrize("since", [0, 2])
def test_a_copy_that_went_on_with_other_data_leaves_no_epsilon(
    tmp_path: Path, runs: dict[str, Path], since: int
) -> None:
    """The noise of both is the same, from the first round on: their difference shows the records in the clear."""
    copy = tmp_path / "copy"
    shutil.copytree(runs["first"], copy)
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    for line in lines[since:]:
        line |= {"model": "00" * 32, "update_norm": 1.0}
    (copy / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert re_says(refused(runs["first"], copy), runs["first"], copy, "one noise", "two sums")


def re_says(text: str, *parts: object) -> bool:
    return all(str(part) in text for part in parts)


def test_what_has_no_total_is_refused_by_name(tmp_path: Path, runs: dict[str, Path]) -> None:
    first = runs["first"]
    assert re_says(refused(first, runs["seeded"]), runs["seeded"], "seed")
    assert re_says(refused(first, runs["seeded"] / "ledger.sqlite"), runs["seeded"], "seed")
    bare = tmp_path / "seeded.sqlite"
    shutil.copy(runs["seeded"] / "ledger.sqlite", bare)
    assert re_says(refused(first, bare), bare, "seed")
    for name in ("ldp", "plain"):
        assert re_says(refused(first, runs[name]), runs[name], f"protocol {name}")
    assert re_says(refused(tmp_path), tmp_path, "not the folder of a run")
    assert re_says(refused(tmp_path / "nothing"), "no ledger", tmp_path / "nothing")
    unknown = book(tmp_path / "unknown.sqlite", {"bank": 2}, replace(TERMS, record_rate=1.0), Origin())
    assert re_says(refused(first, unknown), unknown, "by record or by client")
    DataLedger.new(tmp_path / "data", DataBudget(epsilon=1.0, delta=1e-5)).close()
    assert re_says(refused(first, tmp_path / "data"), tmp_path / "data", "precad data show")
    assert "delta" in refused(first, "--delta", 0)
    assert "delta" in refused(first, "--delta", "nan")
    assert "1000" in refused(first, "--group", 0)


def test_no_noise_is_no_epsilon(tmp_path: Path) -> None:
    quiet = book(tmp_path / "quiet.sqlite", {"bank": 1}, replace(TERMS, sigma=0.0))
    found = printed(quiet, book(tmp_path / "usual.sqlite", {"bank": 3, "lab": 3}))["clients"]
    assert found["bank"]["epsilon"] == {"server": None, "clients": None}
    assert found["lab"]["epsilon"]["server"] == epsilon(TERMS, Adversary.SERVER, 3)


def test_a_run_that_was_changed_is_refused(tmp_path: Path, runs: dict[str, Path]) -> None:
    def changed(name: str) -> Path:
        shutil.copytree(runs["first"], tmp_path / name)
        return tmp_path / name

    louder = changed("louder") / "config.toml"
    louder.write_text(louder.read_text().replace("noise_multiplier = 3.0", "noise_multiplier = 30.0"))
    assert re_says(refused(louder.parent), louder.parent, "do not agree")
    fewer = changed("fewer") / "ledger.sqlite"
    with closing(sqlite3.connect(fewer)) as file, file:
        file.execute("DELETE FROM entries WHERE round = 2")
        file.execute("UPDATE counts SET count = 2")
    assert re_says(refused(fewer.parent), fewer.parent, "2 of the 3 rounds")
    moved = changed("moved") / "ledger.sqlite"
    with closing(sqlite3.connect(moved)) as file, file:
        file.execute("UPDATE counts SET count = 1")
    assert "count of bank" in refused(moved.parent)
    export = read_ledger(runs["first"] / "ledger.sqlite").export()
    for change, words in (
        ({"digest": "00"}, "digest"),
        ({"rounds": export["rounds"][:-1]}, "digest"),
        ({"rounds": []}, "digest"),
        ({"terms": export["terms"] | {"sigma": 30.0}}, "round 1 was changed, or the terms were"),
        ({"terms": {}}, "terms"),
        ({"clients": {}}, "count"),
        ({"rounds": 7}, "rounds"),
    ):
        (tmp_path / "export.json").write_text(json.dumps(export | change))
        assert words in refused(tmp_path / "export.json")
    (tmp_path / "export.json").write_text("[" * 100_000)
    assert "export.json" in refused(tmp_path / "export.json")


def test_evidence_is_not_touched(tmp_path: Path, runs: dict[str, Path]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs["first"], copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    printed(copy)
    printed(copy / "ledger.sqlite")
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_records_and_clients_are_not_the_same(tmp_path: Path, runs: dict[str, Path]) -> None:
    """A run by client counts for a record with half its noise; a run by record for a client with σ·R'/C."""
    by_record, by_client = runs["first"], runs["client"]
    params = hyperparameters(noise_multiplier=3.0).params(DIM, 2)
    record = read_ledger(by_record / "ledger.sqlite").terms
    client = read_ledger(by_client / "ledger.sqlite").terms
    found = printed(by_record, by_client)
    assert found["unit"] == "record"
    halved = replace(client, sigma=client.sigma / 2)
    expected = total([Spent(record, 3), Spent(halved, 2)], Adversary.SERVER, record.delta)
    assert found["clients"]["bank"]["epsilon"]["server"] == expected
    assert expected > total([Spent(record, 3), Spent(client, 2)], Adversary.SERVER, record.delta)
    found = printed(by_record, by_client, "--unit", "client")
    whole = replace(record, sigma=3.0 / (params.client_bound / params.sensitivity), record_rate=1.0)
    expected = total([Spent(whole, 3), Spent(client, 2)], Adversary.SERVER, record.delta)
    assert found["clients"]["bank"]["epsilon"]["server"] == expected
    assert printed(by_client)["unit"] == "client"
    bare = tmp_path / "bare.sqlite"
    shutil.copy(by_client / "ledger.sqlite", bare)
    assert printed(bare)["unit"] == "client"
    assert re_says(refused(by_record, bare), bare, "by client", "folder")


def test_tasks_by_the_folders_of_their_parties(tmp_path: Path) -> None:
    """A client's count is of what it sent; both servers and the client count the same task, which is taken once."""
    folders = []
    for name, params in (("one", world.PARAMS), ("two", replace(world.PARAMS, noise_multiplier=6.0))):
        parties = Consortium(tmp_path / name / "all", world.make(params=params))
        for each in ("bank", "lab"):
            kit.client(parties.task, each, tmp_path / name / each)
        kit.server(parties.task, world.MODEL, Role.A, tmp_path / name / "alpha")
        parties.round()
        parties.round()
        parties.close()
        for party in ("alpha", "bank", "lab"):
            shutil.copy(tmp_path / name / "all" / f"{party}.db", tmp_path / name / party)
        folders.append((tmp_path / name, parties.task))
    (one, first), (two, second) = folders
    expected = total([Spent(first.terms, 2), Spent(second.terms, 2)], Adversary.SERVER, 1e-5)
    for given in ((one / "bank", two / "bank"), (one / "alpha", two / "bank" / "bank.db")):
        found = printed(*given)
        assert found["unit"] == "client"
        assert found["clients"]["bank"]["epsilon"]["server"] == expected
    assert printed(one / "bank", one / "lab")["clients"].keys() == {"bank", "lab"}
    for pair in ((one / "alpha", one / "bank"), (one / "bank", one / "bank" / "bank.db")):
        assert re_says(refused(*pair), *pair, "same rounds")
    (two / "lab" / "lab.db").rename(two / "lab" / "laboratory.db")
    found = printed(one / "bank", two / "lab", "--same-data")
    assert found["clients"]["the data"]["epsilon"]["server"] == expected
    assert re_says(refused(one / "alpha", two / "lab", "--same-data"), one / "alpha", "3 clients")
    shutil.copy(one / "bank" / "bank.db", two / "lab")
    assert re_says(refused(two / "lab"), "2 files")
    assert re_says(refused(two / "lab" / "bank.db"), "not of the task")


def test_many_short_runs_are_one_long_one(tmp_path: Path) -> None:
    many = [book(tmp_path / f"{number}.sqlite", {"bank": 10}) for number in range(12)]
    found = printed(*many)["clients"]["bank"]["epsilon"]["server"]
    assert found == epsilon(TERMS, Adversary.SERVER, 120)
    assert found < 12 * epsilon(TERMS, Adversary.SERVER, 10)
    assert math.isfinite(found)
    assert Unit(printed(*many)["unit"]) is Unit.RECORD
