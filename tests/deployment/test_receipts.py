"""The audit: logs that agree, and every way in which they may not."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from precad.deployment import receipts
from precad.deployment.keys import sign
from precad.deployment.receipts import AuditError, Events
from precad.protocol.states import Role
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says

WORLD = world.make()
TASK = WORLD.task
Log = list[str]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Log]:
    parties = Consortium(tmp_path_factory.mktemp("logs"), WORLD)
    parties.round()
    parties.collect()
    parties.a.abandon_round()
    parties.round()
    parties.round()
    found = {"A": parties.a.store.log(), "B": parties.b.store.log(), "bank": parties.client("bank").log()}
    parties.close()
    return found


def test_logs_that_agree(logs: dict[str, Log]) -> None:
    told = receipts.audit(TASK, logs["A"], logs["B"], {"bank": logs["bank"]})
    assert re.search(says("agree", "3 opened rounds", "bank", "4 rounds"), told)
    assert told.endswith("counted in 3")
    kinds = [receipts.parse(line).events.kind for line in logs["A"]]
    assert kinds == ["opened", "abandoned", "opened", "opened"]


def test_nobody_is_named_who_need_not_be(logs: dict[str, Log]) -> None:
    assert "clinic" in "".join(logs["A"])
    assert "clinic" not in "".join(logs["bank"])


def changed(line: str, **fields: object) -> str:
    value = json.loads(line)
    value["events"].update(fields)
    return json.dumps(value)


BROKEN: dict[str, tuple[Callable[[Log], Log], str]] = {
    "a line was changed": (lambda log: [log[0], log[1], changed(log[2], model="00"), log[3]], "line 3 was changed"),
    "a line was removed": (lambda log: [log[0], *log[2:]], "line 2 .*removed"),
    "two lines were swapped": (lambda log: [log[1], log[0], *log[2:]], "line 1 was changed"),
    "a line is not one": (lambda log: [*log[:3], "junk"], "line 4: not a line"),
    "a field is unknown": (lambda log: [changed(log[0], more=1), *log[1:]], "line 1: not a line"),
    "the end was cut off": (lambda log: log[:-1], "round 3.*other's"),
    "another task": (lambda log: [changed(log[0], task="00"), *log[1:]], "line 1 .*another task"),
    "a signature was changed": (
        lambda log: [json.dumps({**json.loads(log[0]), "signature": "00"}), *log[1:]],
        "line 1 .*signed.* alpha",
    ),
    "the other's signature was changed": (
        lambda log: [json.dumps({**json.loads(log[0]), "peer": ""}), *log[1:]],
        "line 1 .*signed.* beta",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_that_was_changed(logs: dict[str, Log], name: str) -> None:
    change, message = BROKEN[name]
    with pytest.raises(AuditError, match=message):
        receipts.audit(TASK, change(logs["A"]), logs["B"], {})


def rewritten(log: Log, change: Callable[[Events], Events], role: Role) -> Log:
    """A server that writes its whole log anew, with its own key, and even has the other's signature."""
    out: Log = []
    for text in log:
        events = change(receipts.parse(text).events)
        peer = sign(WORLD.servers[Role.A if role is Role.B else Role.B].signing, events.digest)
        out.append(receipts.next_line(out[-1] if out else None, events, WORLD.servers[role].signing, peer).as_text())
    return out


def test_the_first_line_that_differs_is_named(logs: dict[str, Log]) -> None:
    other = rewritten(logs["B"], lambda events: replace(events, outcome="00" * (events.round >= 2)), Role.B)
    with pytest.raises(AuditError, match=says("line 1 of A's log", "round 0", "B's")):
        receipts.audit(TASK, logs["A"], other, {})
    other = rewritten(logs["B"], lambda e: replace(e, outcome="00") if e.round == 2 else e, Role.B)
    with pytest.raises(AuditError, match=says("line 3 of A's log", "round 2", "B's")):
        receipts.audit(TASK, logs["A"], other, {})


def both_rewritten(logs: dict[str, Log], change: Callable[[Events], Events]) -> tuple[Log, Log]:
    return rewritten(logs["A"], change, Role.A), rewritten(logs["B"], change, Role.B)


def unheard(log: Log) -> Log:
    """The log of a bank that was never told a verdict."""
    out: Log = []
    for events in (receipts.parse(text).events for text in log):
        if events.kind == receipts.SENT:
            out.append(receipts.next_line(out[-1] if out else None, events, WORLD.clients["bank"].signing).as_text())
    return out


def test_each_round_starts_where_the_one_before_ended(logs: dict[str, Log]) -> None:
    """Both servers leave out a round, or repeat one under another number, and sign that."""
    left_out = {name: [logs[name][0], logs[name][-1]] for name in ("A", "B")}
    again = {name: [logs[name][0], changed(logs[name][0], round=1)] for name in ("A", "B")}
    for lie in (left_out, again):
        with pytest.raises(AuditError, match=says("A's log, line 2", "another model")):
            receipts.audit(TASK, *both_rewritten(lie, lambda events: events), {})


def test_a_client_catches_servers_that_agree_on_a_lie(logs: dict[str, Log]) -> None:
    first = {"bank": logs["bank"]}
    a, b = both_rewritten(
        logs, lambda events: replace(events, model="00" if events.round else events.model, next_model="00")
    )
    with pytest.raises(AuditError, match=says("bank's log", "another model")):
        receipts.audit(TASK, a, b, {"bank": unheard(logs["bank"])})
    with pytest.raises(AuditError, match=says("bank's log, line 2", "verdict")):
        receipts.audit(TASK, a, b, first)
    a, b = both_rewritten(
        logs, lambda events: replace(events, verdicts=tuple(replace(v, header="00") for v in events.verdicts))
    )
    with pytest.raises(AuditError, match=says("bank's log, line 1", "submission")):
        receipts.audit(TASK, a, b, first)
    with pytest.raises(AuditError, match=says("submission of bank", "round 3")):
        receipts.audit(TASK, logs["A"], logs["B"], {"bank": logs["bank"][:-1]})
    with pytest.raises(AuditError, match=says("stranger", "roster")):
        receipts.audit(TASK, logs["A"], logs["B"], {"stranger": []})


def test_a_verdict_that_the_servers_do_not_have(logs: dict[str, Log]) -> None:
    key, out = WORLD.clients["bank"].signing, list[str]()
    assert [receipts.parse(text).events.kind for text in logs["bank"]].count(receipts.TOLD) == 2
    for text in logs["bank"]:
        events = receipts.parse(text).events
        lie = replace(events, next_model="00") if events.kind == receipts.TOLD else events
        out.append(receipts.next_line(out[-1] if out else None, lie, key).as_text())
    with pytest.raises(AuditError, match=says("bank's log, line 2", "verdict", "round 0")):
        receipts.audit(TASK, logs["A"], logs["B"], {"bank": out})


def test_rounds_rise(logs: dict[str, Log]) -> None:
    again = rewritten([logs["A"][0], logs["A"][0]], lambda events: events, Role.A)
    with pytest.raises(AuditError, match=says("line 2", "round", "not after")):
        receipts.verify("A's log", again, TASK.server_a, TASK, TASK.server_b)


def test_a_file_grows_by_what_is_new(logs: dict[str, Log], tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    receipts.write(path, logs["A"][:2])
    with path.open("a") as file:
        file.write("half a li")  # killed while writing
    receipts.write(path, logs["A"])
    receipts.write(path, logs["A"])
    assert path.read_text().splitlines() == logs["A"]


@pytest.mark.parametrize("kept", range(4))
def test_a_servers_file_grows_by_the_rounds_after_its_last(
    logs: dict[str, Log], tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written, and wherever the pieces begin in which the end of the file is read."""
    lines = {receipts.parse(text).events.round: text for text in logs["A"]}
    for chunk in (1, 7, 100, 1 << 16):
        monkeypatch.setattr(receipts, "_CHUNK", chunk)
        path = tmp_path / f"{chunk}.log"
        path.write_text("".join(f"{text}\n" for text in logs["A"][:kept]) + '{"events"')
        for _ in range(2):
            receipts.extend(path, lambda after: [text for number, text in lines.items() if number > after])
        assert path.read_text().splitlines() == logs["A"]
