"""What we ship passes; a program that is less private than it says is caught. Seeds make all runs repeatable."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from precad.errors import PrecadError
from precad.lab.canaries.audit import FINAL_MODEL, Audit
from precad.lab.canaries.findings import Finding
from tests.lab.canaries import faults, small

FALSE_ALARM = 1e-3


def findings(runs: int = 10, rounds: int = 8, *, ideal: bool = True, **changes: Any) -> list[Finding]:
    audit = Audit(small.problem(), small.settings(**changes), seed=7, ideal=ideal)
    for _ in range(runs):
        audit.play(rounds)
    return audit.findings(FALSE_ALARM)


def caught(found: list[Finding]) -> set[str]:
    return {finding.adversary for finding in found if finding.caught}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise": "clients"},
        {"protocol": "cdp"},
        {"unit": "client", "record_rate": 1.0, "client_bound": 1.0, "noise_multiplier": 2.0},
    ],
    ids=lambda changes: "-".join(f"{value}" for value in changes.values()) or "as it is",
)
def test_what_we_ship_passes(changes: dict[str, Any]) -> None:
    found = findings(**changes)
    assert not caught(found)
    assert min(finding.p_value for finding in found) > FALSE_ALARM
    assert all(finding.epsilon_shown < finding.epsilon_claimed for finding in found)


@pytest.mark.parametrize("validation", ["proof", "triples"])
def test_the_whole_protocol_passes_and_opens_what_its_ideal_form_does(validation: str) -> None:
    whole, ideal = (findings(1, 3, ideal=form, validation=validation) for form in (False, True))
    assert whole == ideal
    assert not caught(whole)


def test_halved_noise_is_caught_by_the_curve_and_not_by_a_bound_on_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.noise_halved(monkeypatch)
    found = findings()
    assert caught(found) >= {"server A", "server B"}
    assert all(finding.epsilon_shown < finding.epsilon_claimed for finding in found)


@pytest.mark.parametrize(
    ("fault", "who"),
    [
        (faults.batch_clipped_instead_of_records, {"server A", "server B", "clients"}),
        (faults.record_drawn_twice, {"server A", "server B"}),
        (faults.noise_of_one_server_missing, {"server A"}),
        (faults.noise_of_the_first_round_in_all, {"server A", "server B", "clients"}),
        (faults.noise_the_same_at_both_servers, {"server A", "server B"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_caught(fault: faults.Fault, who: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert caught(findings()) >= who


@pytest.mark.long
@pytest.mark.parametrize("fault", faults.RECORD, ids=lambda fault: fault.__name__)
def test_every_fault_is_caught(fault: faults.Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert caught(findings(30))


@pytest.mark.long
def test_a_sample_that_never_changes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round shows it: a record is drawn as often as it should be, but then in all rounds."""
    faults.record_drawn_in_all_rounds_or_in_none(monkeypatch)
    slow = small.settings(record_rate=0.1, noise_multiplier=2.0, rounds=60)
    audit = Audit(small.problem(32, 6, 100), slow, seed=7, ideal=True)
    for _ in range(20):
        audit.play(60)
    tests = {finding.test for finding in audit.findings(FALSE_ALARM) if finding.caught}
    assert "whole run" in tests
    assert "one round" not in tests


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"protocol": "cdp"}, faults.noise_halved),
        ({"protocol": "ldp"}, faults.noise_halved),
        ({"protocol": "ddp"}, faults.noise_halved),
        ({"noise": "clients"}, faults.noise_halved),
        ({"unit": "client", "record_rate": 1.0, "client_bound": 1.0}, faults.noise_halved),
        ({"unit": "client", "record_rate": 1.0, "client_bound": 1.0}, faults.client_not_clipped_enough),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_protocol_and_unit(changes: dict[str, Any], fault: faults.Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not caught(findings(20, **changes))
    fault(monkeypatch)
    assert caught(findings(20, **changes))


@pytest.mark.long
def test_the_final_model_alone_shows_that_noise_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"record_rate": 1.0, "noise_multiplier": 10.0}
    assert not caught(findings(100, 4, **settings))
    faults.noise_halved(monkeypatch, factor=20.0)
    assert FINAL_MODEL in caught(findings(100, 4, **settings))


def test_dropout_is_the_same_in_both_worlds() -> None:
    """What clients draw at random is no canary's doing, and must not be taken for it."""
    problem = small.problem()
    noisy = replace(problem, model=torch.nn.Sequential(torch.nn.Dropout(0.5), problem.model))
    audit = Audit(noisy, small.settings(), seed=7, ideal=True)
    for _ in range(4):
        audit.play(8)
    assert not caught(audit.findings(FALSE_ALARM))
    assert 0.8 < audit.strength <= 1.0


def test_a_protocol_that_claims_nothing_is_refused() -> None:
    with pytest.raises(PrecadError, match="plain adds no noise and claims no ε"):
        Audit(small.problem(), small.settings(protocol="plain"))


def test_a_run_that_is_cut_short_counts_only_if_it_is_the_first() -> None:
    audit = Audit(small.problem(6), small.settings(), seed=1, ideal=True)
    audit.play(8, lambda: False)
    assert audit.runs == 1
    audit.play(8, lambda: False)
    assert audit.runs == 1
    audit.play(1, lambda: False)
    assert audit.runs == 2
