"""The ledger: durable, counted once, tamper-evident, and fast for many clients."""

import hashlib
import json
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from precad.privacy.accounting import Adversary, PldAccountant, record_mechanism
from precad.privacy.ledger import Ledger, LedgerError, Terms

TERMS = Terms(task="ab" * 32, dim=26_010, sigma=1.0, record_rate=0.05, delta=1e-5)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", TERMS)


def test_rounds_are_counted_per_client(ledger: Ledger) -> None:
    ledger.record(0, ["bank", "lab"])
    ledger.record(1, [])
    ledger.record(7, ["lab", "lab"])
    assert ledger.participations() == {"bank": 1, "lab": 2}
    assert [entry.round for entry in ledger.entries()] == [0, 1, 7]
    assert ledger.verify() == list(ledger.entries())[-1].link


def test_a_retried_round_counts_once(ledger: Ledger) -> None:
    first = ledger.record(0, ["bank", "lab"])
    assert ledger.record(0, ["lab", "bank"]) == first
    assert ledger.participations() == {"bank": 1, "lab": 1}
    with pytest.raises(LedgerError, match="round 0 is in the ledger with other participants"):
        ledger.record(0, ["bank"])
    assert ledger.participations() == {"bank": 1, "lab": 1}


def test_a_ledger_goes_on_after_it_was_closed(tmp_path: Path) -> None:
    Ledger(tmp_path / "l", TERMS).record(0, ["bank"])
    again = Ledger.load(tmp_path / "l")
    again.record(1, ["bank"])
    assert again.terms == TERMS
    assert again.participations() == {"bank": 2}


def test_other_terms_are_another_ledger(tmp_path: Path) -> None:
    Ledger(tmp_path / "l", TERMS)
    with pytest.raises(LedgerError, match="other terms"):
        Ledger(tmp_path / "l", Terms(**{**TERMS.__dict__, "sigma": 2.0}))


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 1000])
def test_what_is_not_a_ledger_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "l").write_bytes(content)
    with pytest.raises(LedgerError, match=r"no ledger at|is not a ledger"):
        Ledger.load(tmp_path / "l")


WRITER = """
import os, sqlite3, sys
from pathlib import Path
from precad.privacy import ledger as module
from tests.privacy.test_ledger import TERMS

connect = sqlite3.connect

def die_at(fatal):
    seen = 0

    def count(statement):
        nonlocal seen
        seen += 1
        if seen == fatal:
            os._exit(9)

    def traced(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(count)
        return connection

    return traced

for fatal in range(1, 100):
    path = Path(sys.argv[1]) / f"ledger-{fatal}"
    module.Ledger(path, TERMS).record(0, ["bank"])
    child = os.fork()
    if child == 0:
        module.sqlite3.connect = die_at(fatal)
        module.Ledger(path, TERMS).record(1, ["bank", "lab", "clinic"])
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        break
print(fatal - 1)
"""


def test_a_kill_at_any_statement_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The writing process dies before its first statement, its second, …; the round is then recorded again."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)]
    root = Path(__file__).parent.parent.parent
    killed = int(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)
    assert killed >= 7
    whole = {"bank": 2, "lab": 1, "clinic": 1}
    before = 0
    for fatal in range(1, killed + 1):
        book = Ledger.load(tmp_path / f"ledger-{fatal}")
        book.verify()
        before += book.participations() == {"bank": 1}
        assert book.participations() in ({"bank": 1}, whole)
        book.record(1, ["bank", "lab", "clinic"])
        assert book.participations() == whole
        book.verify()
    assert before >= 5


TAMPERING = {
    "a participant removed": "UPDATE entries SET participants = '[\"bank\"]' WHERE round = 1",
    "a round renumbered": "UPDATE entries SET round = 9 WHERE round = 1",
    "a round removed": "DELETE FROM entries WHERE round = 1",
    "a link changed": "UPDATE entries SET link = 'aa' WHERE round = 2",
    "a count lowered": "UPDATE counts SET count = 1 WHERE client = 'bank'",
    "a count removed": "DELETE FROM counts WHERE client = 'bank'",
    "a count invented": "INSERT INTO counts VALUES ('mallory', 1)",
    "rounds exchanged": "UPDATE entries SET number = -number",
}


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_is_noticed(ledger: Ledger, tmp_path: Path, how: str) -> None:
    for round_ in range(4):
        ledger.record(round_, ["bank", "lab"])
    ledger.verify()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute(TAMPERING[how])
    with pytest.raises(LedgerError, match=r"round|count"):
        ledger.verify()


def test_a_client_past_its_budget_sits_out(ledger: Ledger) -> None:
    """The last round within the budget is allowed, the next is not."""
    for round_ in range(3):
        ledger.record(round_, ["bank"])
    three, four = (ledger.epsilon(Adversary.SERVER, count) for count in (3, 4))
    assert three < four
    assert ledger.would_exceed(["bank", "new"], budget=(three + four) / 2) == {"bank"}
    assert ledger.would_exceed(["bank", "new"], budget=four) == frozenset()


def test_ten_thousand_clients_are_checked_in_a_second(ledger: Ledger) -> None:
    """Participation counts repeat: each is accounted once."""
    names = [f"client-{i}" for i in range(10_000)]
    for round_ in range(3):
        ledger.record(round_, names[: 4000 * (round_ + 1)])
    ledger.would_exceed(names, 1.0)  # the accountant caches
    start = time.perf_counter()
    ledger.would_exceed(names, 1.0)
    assert time.perf_counter() - start < 1


def test_an_export_can_be_recomputed_from_itself_alone(ledger: Ledger) -> None:
    for round_ in range(5):
        ledger.record(round_, ["bank", "lab"] if round_ % 2 else ["bank"])
    exported = json.loads(json.dumps(ledger.export()))
    counts: dict[str, int] = {}
    for entry in exported["rounds"]:
        for name in entry["participants"]:
            counts[name] = counts.get(name, 0) + 1
    terms = exported["terms"]
    for name, client in exported["clients"].items():
        assert client["participations"] == counts[name]
        mechanism = record_mechanism(
            Adversary.SERVER, sigma=terms["sigma"], record_rate=terms["record_rate"], participations=counts[name]
        )
        expected = PldAccountant(interval=1e-3).epsilon(mechanism, terms["delta"])
        assert client["epsilon"]["server"] == pytest.approx(expected, rel=1e-6)
    assert exported["digest"] == ledger.verify()
    lines = ledger.export_csv().splitlines()
    assert lines[0] == "client,participations,epsilon_server,epsilon_clients"
    assert lines[1].startswith("bank,5,")
    assert lines[-1] == f"digest,{exported['digest']}"


def test_the_auditors_page_is_enough_to_recompute_the_links(ledger: Ledger) -> None:
    """docs/privacy.md, "For an auditor", followed with hashlib and json alone."""

    def h(purpose: bytes, *parts: bytes) -> bytes:
        state = hashlib.blake2b(digest_size=32, person=purpose)
        for part in parts:
            state.update(len(part).to_bytes(8, "little") + part)
        return state.digest()

    for round_ in range(3):
        ledger.record(round_, ["lab", "bank"])
    exported = json.loads(json.dumps(ledger.export()))
    terms = json.dumps(exported["terms"], sort_keys=True, separators=(",", ":")).encode()
    link = ""
    for entry in exported["rounds"]:
        start = h(b"precad ledger", terms, link.encode())
        names = [name.encode() for name in entry["participants"]]
        link = h(b"precad entry", start, str(entry["round"]).encode(), *names).hex()
        assert entry["link"] == link
    assert exported["digest"] == link
