"""The statement that ends an audit, and the same essentials beside every ε of a ledger."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.privacy.epsilon import epsilon
from precad.privacy.ledger import UNTOLD, Ledger, Origin
from precad.privacy.terms import Adversary
from precad.protocol.params import Unit
from precad.report.statement import Statement
from precad.settings import training_toml
from tests.simulation.small import hyperparameters

TRAINING = hyperparameters(rounds=10, budget=5.0)
TERMS = TRAINING.terms(75)
STATEMENT = Statement(
    name="first & <last>",
    digest="ab" * 32,
    training=TRAINING,
    terms=TERMS,
    rounds=9,
    participations=3,
    costs={each: epsilon(TERMS, each, 3) for each in Adversary},
    private=True,
    differences=0,
)
COSTS = [f"{cost:.3f}" for cost in STATEMENT.costs.values()]


def test_all_that_an_officer_needs_is_on_one_page() -> None:
    text = STATEMENT.as_text()
    assert STATEMENT.headline == (
        f"(ε, δ)-differential privacy with ε = {COSTS[0]} at δ = 1e-5 for one record of one client, against one server "
        "together with all other clients."
    )
    essential = (
        "null one",
        "δ: 1e-5",
        *COSTS,
        "dp-accounting",
        "9 of 10",
        "took part in 3",
        "operating system",
        "σ = 1",
    )
    assumed = ("do not work together", "generators", "truly", "precad ledger total", "reply time", "not counted")
    for words in (*essential, *assumed, "ε ≤ 5", "Both servers together", "deviates", "Signature"):
        assert words in text, words
    assert sum(1 + len(line) // 100 for line in text.splitlines()) < 66
    page = STATEMENT.as_html()
    assert "first &amp; &lt;last&gt;" in page
    assert "<script" not in page
    assert all(cost in page for cost in COSTS)


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        ({"private": False}, "NOT PRIVATE"),
        ({"private": None}, "NOT TO BE SIGNED"),
        ({"differences": 2}, "NOT TO BE SIGNED: the audit found 2 differences"),
    ],
)
def test_where_nothing_may_be_claimed_there_is_no_epsilon(change: dict[str, object], begins: str) -> None:
    statement = replace(STATEMENT, **change)  # type: ignore[arg-type]
    assert statement.headline.startswith(begins)
    assert statement.as_json()["epsilon"] is None
    for shown in (statement.as_text(), statement.as_html(), json.dumps(statement.as_json())):
        assert not any(cost in shown for cost in COSTS)


def test_the_client_as_the_unit_hidden_participants_and_what_was_not_checked() -> None:
    training = replace(TRAINING, unit=Unit.CLIENT)
    said = replace(STATEMENT, training=training, hidden=True, simulated=False, unchecked=("the moon",)).as_text()
    assert "all records of one client" in said
    assert "is allowed to take part in 3" in said
    assert "One machine" not in said
    assert "Not checked: the moon." in said


def show(path: Path, *more: str) -> str:
    result = CliRunner().invoke(app, ["ledger", "show", str(path), *more])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("told", "seed", "private"),
    [
        (Origin(unit="record", private=True), None, True),
        (Origin(unit="record", private=False), None, False),
        (UNTOLD, None, None),
        (UNTOLD, "no seed", True),
        (UNTOLD, 3, False),
        (Origin(unit="record", private=True), 3, False),
    ],
)
def test_a_seeded_run_is_not_called_private(
    told: Origin, seed: int | str | None, private: bool | None, tmp_path: Path
) -> None:
    """By what the ledger was told, and by the configuration beside it."""
    Ledger(tmp_path / "ledger.sqlite", "00" * 32, TERMS, told).record(0, ["bank"])
    if seed is not None:
        (tmp_path / "config.toml").write_text(training_toml(TRAINING, seed if isinstance(seed, int) else None))
    text = show(tmp_path / "ledger.sqlite")
    value = json.loads(show(tmp_path / "ledger.sqlite", "--json"))
    assert value["private"] is private
    assert value["unit"] == ("record" if told.unit or seed is not None else None)
    assert ("private: from the operating system" in text) == (private is True)
    assert ("NOT PRIVATE" in text) == (private is False)
    assert ("unknown" in text) == (private is None)
    assert "null one" in text
    assert "dp-accounting" in text


def test_a_configuration_that_is_none_tells_nothing(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.sqlite", "00" * 32, TERMS).record(0, ["bank"])
    (tmp_path / "config.toml").write_bytes(b"\xff")
    assert "unknown" in show(tmp_path / "ledger.sqlite")
