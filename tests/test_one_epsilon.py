"""ε comes from one function: every place that shows or stores it has the same number, to the last digit."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

import precad
from precad.cli.app import app
from precad.deployment import kit
from precad.deployment.run_view import server_source
from precad.privacy.epsilon import epsilon
from precad.privacy.ledger import read
from precad.privacy.terms import Adversary
from precad.protocol.params import Unit
from precad.protocol.states import Role
from precad.report.page import render
from precad.report.run import read_run
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says
from tests.simulation.small import data, hyperparameters, model

SOURCE = Path(precad.__file__).parent
BOTH = list(Adversary)


def printed(*command: str) -> Any:
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("change", [{}, {"noise": "clients", "noise_multiplier": 2.0}, {"unit": "client"}])
def test_a_simulated_run_has_one_epsilon(change: dict[str, Any], tmp_path: Path) -> None:
    params = hyperparameters(rounds=4, client_rate=1.0, **({"noise_multiplier": 1.5} | change))
    folder = tmp_path / "run"
    clients = {name: data(20, seed=i) for i, name in enumerate(("bank", "lab"))}
    trained = precad.train(
        model(), nn.functional.cross_entropy, clients, params, test_set=data(20), folder=folder, evaluate_every=1
    )
    figures = {adversary: getattr(trained.figures, f"epsilon_{adversary.value}") for adversary in BOTH}
    assert 0 < figures[Adversary.CLIENTS] < figures[Adversary.SERVER] < 50

    dim = sum(parameter.numel() for parameter in model().parameters())
    options = {
        "sigma": params.noise_multiplier,
        "rounds": params.rounds,
        "participations": params.rounds,
        "client-rate": params.client_rate,
        "record-rate": params.record_rate,
        "delta": params.delta,
        "dim": dim,
        "unit": params.unit.value,
        "noise": params.noise.value,
    }
    planned = printed("privacy", *(word for name, value in options.items() for word in (f"--{name}", str(value))))
    shown = printed("ledger", "show", str(folder / "ledger.sqlite"))["clients"]
    exported = read(folder / "ledger.sqlite").export()
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    run = read_run(folder)
    assert run.summary is not None
    page = render([run])
    for adversary, value in figures.items():
        key = f"epsilon_{adversary.value}"
        assert params.epsilon(adversary, params.rounds, dim) == value
        assert summary[key] == value
        assert metrics[-1][key] == value
        assert getattr(run.rounds[-1], key) == value
        assert getattr(run.summary, key) == value
        assert planned[adversary.value]["pld"] == value
        for name in clients:
            assert shown[name]["epsilon"][adversary.value] == value
            assert exported["clients"][name]["epsilon"][adversary.value] == value
        assert re.search(rf"=['\"]{re.escape(repr(value))}['\"]", page)
        on_the_way = [epsilon(params.terms(dim), adversary, count) for count in range(1, 5)]
        assert [line[key] for line in metrics] == [getattr(line, key) for line in trained.history] == on_the_way


@pytest.mark.parametrize("unit", Unit)
def test_a_deployed_task_has_one_epsilon(unit: Unit, tmp_path: Path) -> None:
    params, training = replace(world.PARAMS, unit=unit), replace(world.TRAINING, participations=2, reply_seconds=9)
    consortium = Consortium(tmp_path, world.make(training, params))
    task = consortium.task
    task.save(tmp_path / "task.json")
    kit.server(task, world.MODEL, Role.A, tmp_path / "a")
    consortium.folder = tmp_path / "a"
    for _ in range(2):
        consortium.round()
    source = server_source(tmp_path / "a")
    assert source is not None
    last = source.read().rounds[-1]
    counted = consortium.a.ledger.contents().export()["clients"]
    consortium.close()

    value = task.epsilon
    assert 0 < value < training.budget
    assert value == epsilon(task.terms, Adversary.SERVER, 2)
    assert printed("task", "show", str(tmp_path / "task.json"))["epsilon"] == value
    assert last.epsilon_server == value
    assert {client["epsilon"]["server"] for client in counted.values()} == {value}
    assert {client["epsilon"]["clients"] for client in counted.values()} == {last.epsilon_clients}
    assert last.epsilon_clients == epsilon(task.terms, Adversary.CLIENTS, 2)


@pytest.mark.parametrize("unit", Unit)
def test_a_budget_is_enforced_with_the_number_that_is_printed(unit: Unit) -> None:
    """A budget of exactly that ε is kept; with the next smaller number, every party refuses the task."""
    task = world.make(params=replace(world.PARAMS, unit=unit)).task
    exact = replace(task, training=replace(task.training, budget=task.epsilon))
    exact.check_budget()
    less = replace(task, training=replace(task.training, budget=float(np.nextafter(task.epsilon, 0))))
    with pytest.raises(ValueError, match=says(task.training.participations, f"{task.epsilon:.3f}")):
        less.check_budget()


def called(name: str) -> set[str]:
    """The modules in which ``name`` is called."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call):
                function = node.func
                if name == (function.id if isinstance(function, ast.Name) else getattr(function, "attr", None)):
                    found.add(str(path.relative_to(SOURCE)))
    return found


def test_there_is_no_second_assembly() -> None:
    """Whoever needs an ε calls ``epsilon``. Groups make δ(ε) curves, for certificates too, and so do trade-offs."""
    pld = {"privacy/accounting.py", "privacy/epsilon.py", "privacy/groups.py", "privacy/trade_off.py"}
    assert called("PldAccountant") == pld
    assert called("group_epsilon") == {"privacy/epsilon.py"}
    assert called("sampler_delta") == {"privacy/epsilon.py", "privacy/plan.py", "privacy/trade_off.py"}
    assert called("bound") == {"privacy/epsilon.py", "privacy/plan.py"}
    assert called("noise_of_each") == {"protocol/params.py", "privacy/plan.py"}
    halved = {path for path in SOURCE.rglob("*.py") if re.search(r"/ math\.sqrt\(2\)", path.read_text())}
    assert {str(path.relative_to(SOURCE)) for path in halved} == {"privacy/terms.py"}
    enums = [path for path in SOURCE.rglob("*.py") if re.search(r'^    CLIENTS = "clients"', path.read_text(), re.M)]
    assert [path.name for path in enums] == ["terms.py"]
