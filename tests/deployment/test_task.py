"""The task: one file, one digest over all of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precad.deployment import task as tasks
from precad.deployment.keys import Identity
from precad.deployment.task import Participants, Task
from precad.privacy.terms import Adversary
from precad.protocol.digests import model_digest
from precad.protocol.messages import VERSION
from precad.protocol.params import Normalise, Unit, Validation
from precad.protocol.states import Role
from tests.deployment import world
from tests.messages import says

WORLD = world.make()
TASK = WORLD.task


def test_a_file_holds_all_of_it(tmp_path: Path) -> None:
    TASK.save(tmp_path / "task.json")
    again = tasks.load(tmp_path / "task.json")
    assert again == TASK
    assert again.digest == TASK.digest


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [leaf for key, item in items for leaf in leaves(item, (*path, key))] or [path]


@pytest.mark.parametrize("path", leaves(TASK.as_json()), ids=str)
def test_every_leaf_is_in_the_digest(path: tuple[Any, ...]) -> None:
    value = TASK.as_json()
    place = value
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    names = {"proof": "none", "server": "clients", "client": "record", "constant": "realised", "public": "hidden"}
    names |= {"sgd": "adam"}
    if isinstance(old, str):
        new: Any = names.get(old, old[:-4] + ("AAAA" if path[-1] == "certificate" else "0a0b"))
    else:
        new = 0.1 if old is None else old / 2 if isinstance(old, float) else old + 1
    place[path[-1]] = new
    try:
        changed = tasks.from_json(value)
    except ValueError:
        return
    assert changed.digest != TASK.digest


def test_the_roster_changes_the_digest_and_n() -> None:
    more = TASK.with_member(Identity("zoo", bytes(32)), 7)
    assert more.bounds.clients == 4
    assert more.digest != TASK.digest
    assert more.without_member("zoo").digest == TASK.digest
    with pytest.raises(ValueError, match=says("bank", "roster")):
        TASK.with_member(Identity("bank", bytes(32)), 7)
    with pytest.raises(ValueError, match=says("zoo", "roster")):
        TASK.without_member("zoo")
    with pytest.raises(ValueError, match="the same key"):
        TASK.with_member(Identity("zoo", TASK.roster[0].identity.key), 7)
    with pytest.raises(ValueError, match="the same certificate"):
        TASK.with_member(Identity("zoo", bytes(32), TASK.roster[0].identity.certificate), 7)
    with pytest.raises(ValueError, match="the same name"):
        TASK.with_member(Identity("alpha", bytes(32)), 7)
    with pytest.raises(ValueError, match="records of zoo"):
        TASK.with_member(Identity("zoo", bytes(32)), 0)


def test_a_draft_has_no_digest() -> None:
    draft = world.make(clients=()).task
    with pytest.raises(ValueError, match="roster is empty"):
        _ = draft.digest


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda v: v.update(protocol=9), f"version 9.*version {VERSION}.*make a new task"),
    (lambda v: v.update(extra=1), "'extra'"),
    (lambda v: v["parameters"].update(extra=1), r"\[parameters\].*'extra'"),
    (lambda v: v["parameters"].update(clients=3), r"\[parameters\].*'clients'"),
    (lambda v: v["training"].pop("delta"), r"\[training\] lacks delta"),
    (lambda v: v["training"].pop("participants"), r"\[training\] lacks participants"),
    (lambda v: v["training"].update(budget="8"), "budget.* number.*'8'"),
    (lambda v: v["roster"][1].update(records=True), "records.* whole number.* True"),
    (lambda v: v.update(model="00"), "32 bytes"),
    (lambda v: v["training"].update(client_rate=0.0), "client_rate.* 0.0"),
    (lambda v: v["training"].update(rounds=0), "rounds.* 0"),
    (lambda v: v["training"].update(budget=float("nan")), "budget.* nan"),
    (lambda v: v["training"].update(delta=1.0), "delta.* 1.0"),
    (lambda v: v["parameters"].update(validation="triples"), "dealer"),
    (lambda v: v["parameters"].update(unit="planet"), "planet"),
    (lambda v: v["server_a"].pop("certificate"), "no certificate"),
    (lambda v: v["roster"].reverse(), "sorted by name"),
    (lambda v: v["roster"][0].pop("records"), r"roster\[0\] lacks records"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_bad_file_is_refused_in_words(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    value = TASK.as_json()
    change(value)
    (tmp_path / "task.json").write_text(json.dumps(value))
    with pytest.raises(ValueError, match=f"task.json .*{message}"):
        tasks.load(tmp_path / "task.json")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        tasks.load(tmp_path / "none.json")


def with_training(task: Task, **changes: Any) -> Task:
    return replace(task, training=replace(task.training, **changes))


def test_hidden_participants() -> None:
    hidden = with_training(TASK, participants=Participants.HIDDEN, minimum=0)
    with pytest.raises(ValueError, match="record unit"):
        replace(hidden, bounds=replace(TASK.bounds, unit=Unit.RECORD))
    with pytest.raises(ValueError, match="who took part"):
        with_training(hidden, normalise=Normalise.REALISED)


def test_the_minimum() -> None:
    for minimum, participants in ((0, Participants.PUBLIC), (1, Participants.HIDDEN), (-1, Participants.HIDDEN)):
        with pytest.raises(ValueError, match=says("minimum", minimum)):
            with_training(TASK, minimum=minimum, participants=participants)
    with pytest.raises(ValueError, match=says("3 clients", "minimum", 4)):
        _ = with_training(TASK, minimum=4).digest
    assert with_training(TASK, minimum=3).digest != TASK.digest


def test_the_normaliser() -> None:
    valid = frozenset({"bank"})
    assert TASK.normaliser(valid) == 3.0
    records = replace(TASK, bounds=replace(TASK.bounds, unit=Unit.RECORD))
    assert records.normaliser(valid) == pytest.approx(15.0)
    realised = with_training(records, normalise=Normalise.REALISED)
    assert realised.normaliser(valid) == pytest.approx(5.0)
    assert realised.normaliser(frozenset()) == 0


def test_the_budget_bounds_the_cap() -> None:
    TASK.check_budget()
    assert 0 < TASK.epsilon <= 8
    with pytest.raises(ValueError, match=says("5 participations", "ε", "budget", 0.5)):
        with_training(TASK, budget=0.5).check_budget()


def test_the_terms_are_what_a_corrupted_server_sees() -> None:
    assert TASK.terms.record_rate == 1.0
    records = replace(TASK, bounds=replace(TASK.bounds, unit=Unit.RECORD, noise=Adversary.CLIENTS))
    assert records.terms.record_rate == 0.05
    assert records.terms.sigma == pytest.approx(4 / 2**0.5)


def test_models_and_servers() -> None:
    assert TASK.server(Role.A).name == "alpha"
    assert TASK.server(Role.B).name == "beta"
    assert model_digest(world.MODEL) == TASK.model
    assert model_digest(world.MODEL + 1e-16 * np.arange(world.DIM)) != TASK.model
    for bad in (np.zeros(3, np.float32), np.zeros((2, 2)), np.zeros(6)[::2], np.array([np.nan])):
        with pytest.raises(ValueError, match="a model"):
            model_digest(bad)  # type: ignore[arg-type]
    assert TASK.bounds.validation is Validation.PROOF


def by_record(**training: Any) -> Task:
    return replace(
        TASK,
        bounds=replace(TASK.bounds, unit=Unit.RECORD, noise_multiplier=8.0),
        training=replace(TASK.training, **training),
    )


def test_a_reply_time_is_in_the_digest_and_files_without_one_stay_what_they_were(tmp_path: Path) -> None:
    assert "reply_seconds" not in TASK.as_json()["training"]
    timed = by_record(reply_seconds=2.5)
    timed.save(tmp_path / "task.json")
    assert tasks.load(tmp_path / "task.json") == timed
    assert len({timed.digest, by_record().digest, by_record(reply_seconds=3.0).digest}) == 3
    for bad in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=says("reply_seconds", 0, bad)):
            by_record(reply_seconds=bad)


def test_only_where_records_are_sampled_is_a_reply_time_needed() -> None:
    for fine in (TASK, by_record(record_rate=1.0), by_record(reply_seconds=0.5)):
        fine.check_reply_time()
    with pytest.raises(ValueError, match=says("record_rate", 0.05, "--reply-seconds")):
        by_record().check_reply_time()


def test_a_whole_number_is_the_float_that_it_is() -> None:
    """A bound of 30 and one of 30.0 are one task, before it is written and after it is read."""
    whole = replace(TASK, bounds=replace(TASK.bounds, client_bound=30), training=replace(TASK.training, budget=8))
    same = replace(TASK, bounds=replace(TASK.bounds, client_bound=30.0), training=replace(TASK.training, budget=8.0))
    assert whole.digest == same.digest == tasks.from_json(json.loads(whole.as_text())).digest
    assert whole.bounds.digest == same.bounds.digest
