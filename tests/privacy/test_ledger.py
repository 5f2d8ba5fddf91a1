"""The ledger: durable, counted once, tamper-evident, and fast for many clients."""

import hashlib
import json
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from precad.privacy.accounting import PldAccountant
from precad.privacy.ledger import Ledger, LedgerError, Origin, read
from precad.privacy.terms import Adversary, Mechanism, Terms
from tests.messages import says

TASK = "ab" * 32
TERMS = Terms(sigma=1.0, record_rate=0.05, delta=1e-5, dim=26_010)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite", TASK, TERMS)


def test_rounds_are_counted_per_client(ledger: Ledger) -> None:
    ledger.record(0, ["bank", "lab"])
    ledger.record(1, [])
    ledger.record(7, ["lab", "lab"])
    assert ledger.participations() == {"bank": 1, "lab": 2}
    assert [entry.round for entry in ledger.entries()] == [0, 1, 7]
    assert ledger.verify() == list(ledger.entries())[-1].link


def test_only_a_simulation_does_not_wait_for_the_disk(ledger: Ledger, tmp_path: Path) -> None:
    quick = Ledger(tmp_path / "quick.sqlite", TASK, TERMS, durable=False)
    waits = [each._connection.execute("PRAGMA synchronous").fetchone() for each in (ledger, quick)]
    assert waits == [(2,), (0,)]


def test_a_retried_round_counts_once(ledger: Ledger) -> None:
    first = ledger.record(0, ["bank", "lab"])
    assert ledger.record(0, ["lab", "bank"]) == first
    assert ledger.participations() == {"bank": 1, "lab": 1}
    with pytest.raises(LedgerError, match=says("round 1", "participants")):
        ledger.record(0, ["bank"])
    assert ledger.participations() == {"bank": 1, "lab": 1}


def test_a_ledger_goes_on_after_it_was_closed(tmp_path: Path) -> None:
    Ledger(tmp_path / "l", TASK, TERMS).record(0, ["bank"])
    again = Ledger(tmp_path / "l", TASK, TERMS)
    again.record(1, ["bank"])
    assert read(tmp_path / "l").terms == TERMS
    assert again.participations() == {"bank": 2}


def test_other_terms_are_another_ledger(tmp_path: Path) -> None:
    Ledger(tmp_path / "l", TASK, TERMS)
    with pytest.raises(LedgerError, match="other terms"):
        Ledger(tmp_path / "l", TASK, replace(TERMS, sigma=2.0))


def test_a_ledger_knows_its_unit_and_whether_a_seed_made_the_noise(tmp_path: Path) -> None:
    seeded = Origin(unit="record", private=False)
    book = Ledger(tmp_path / "l", TASK, TERMS, seeded)
    assert Ledger(tmp_path / "l", TASK, TERMS).origin == read(tmp_path / "l").origin == seeded
    assert book.contents().export()["terms"]["private"] is False
    assert book.record(0, ["bank"]).link != Ledger(tmp_path / "other", TASK, TERMS).record(0, ["bank"]).link
    with pytest.raises(LedgerError, match="other terms"):
        Ledger(tmp_path / "l", TASK, TERMS, Origin(private=True))
    with pytest.raises(ValueError, match=says("unit", "person")):
        Origin(unit="person")


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 1000])
def test_what_is_not_a_ledger_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "l").write_bytes(content)
    with pytest.raises(LedgerError, match=r"no ledger|not a ledger"):
        read(tmp_path / "l")


WRITER = """
import os, sqlite3, sys
from pathlib import Path
import sqlite3
from precad.privacy import ledger as module
from tests.privacy.test_ledger import TASK, TERMS

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
    module.Ledger(path, TASK, TERMS).record(0, ["bank"])
    child = os.fork()
    if child == 0:
        sqlite3.connect = die_at(fatal)
        module.Ledger(path, TASK, TERMS).record(1, ["bank", "lab", "clinic"])
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
        book = Ledger(tmp_path / f"ledger-{fatal}", TASK, TERMS)
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
    "no names": "UPDATE entries SET participants = '5' WHERE round = 1",
    "names that are none": "UPDATE entries SET participants = '[5]' WHERE round = 1",
    "no JSON": "UPDATE entries SET participants = 'bank' WHERE round = 1",
    "a count that is none": "UPDATE counts SET count = 'x' WHERE client = 'bank'",
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


def test_of_ten_thousand_clients_each_count_is_accounted_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"client-{i}" for i in range(10_000)]
    for round_ in range(3):
        ledger.record(round_, names[: 4000 * (round_ + 1)])
    asked: list[tuple[Adversary, int]] = []

    def price(_terms: Terms, adversary: Adversary, count: int) -> float:
        asked.append((adversary, count))
        return float(count)

    monkeypatch.setattr("precad.privacy.ledger.epsilon", price)
    assert len(ledger.contents().export()["clients"]) == 10_000
    assert len(asked) == len(set(asked)) == 2 * 3


def test_an_export_can_be_recomputed_from_itself_alone(ledger: Ledger) -> None:
    for round_ in range(5):
        ledger.record(round_, ["bank", "lab"] if round_ % 2 else ["bank"])
    exported = json.loads(json.dumps(ledger.contents().export()))
    counts: dict[str, int] = {}
    for entry in exported["rounds"]:
        for name in entry["participants"]:
            counts[name] = counts.get(name, 0) + 1
    terms = exported["terms"]
    for name, client in exported["clients"].items():
        assert client["participations"] == counts[name]
        mechanism = Mechanism(terms["sigma"], terms["record_rate"], counts[name])
        expected = PldAccountant().epsilon(mechanism, terms["delta"])
        assert client["epsilon"]["server"] == pytest.approx(expected, rel=1e-6)
    assert exported["digest"] == ledger.verify()
    lines = ledger.contents().export_csv().splitlines()
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
    exported = json.loads(json.dumps(ledger.contents().export()))
    terms = json.dumps(exported["terms"], sort_keys=True, separators=(",", ":")).encode()
    link = ""
    for entry in exported["rounds"]:
        start = h(b"precad ledger", terms, link.encode())
        names = [name.encode() for name in entry["participants"]]
        link = h(b"precad entry", start, str(entry["round"]).encode(), *names).hex()
        assert entry["link"] == link
    assert exported["digest"] == link


def _write(path: Path, first: int) -> None:
    book = Ledger(path, TASK, TERMS)
    for round_ in range(first, first + 10):
        book.record(round_, ["bank", f"lab-{first}"])


def test_processes_and_threads_take_turns(tmp_path: Path) -> None:
    """Two processes make one ledger and write it; then ten threads go on, all of them with the same rounds."""
    path = tmp_path / "l"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write, args=(path, first)) for first in (0, 10)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    book = Ledger(path, TASK, TERMS)
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda i: book.record(20 + i % 5, ["bank"]), range(50)))
    book.verify()
    assert book.participations() == {"bank": 25, "lab-0": 10, "lab-10": 10}


def test_a_forked_process_is_told_to_open_the_ledger_anew(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="fork"):
        ledger.record(0, ["bank"])


def test_a_round_that_the_disk_has_no_room_for_is_not_counted(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record(0, ["bank"])
    connection = ledger._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    names = [f"client-{i}" for i in range(2000)]
    with pytest.raises(LedgerError, match="disk is full"):
        ledger.record(1, names)
    assert ledger.participations() == {"bank": 1}
    again = Ledger(tmp_path / "ledger.sqlite", TASK, TERMS)
    again.record(1, names)
    again.verify()
    assert again.participations()["client-7"] == 1


def test_a_ledger_that_was_cut_off_or_cannot_be_opened_is_an_error_in_words(ledger: Ledger, tmp_path: Path) -> None:
    for round_ in range(20):
        ledger.record(round_, [f"client-{i}" for i in range(500)])
    ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = (tmp_path / "ledger.sqlite").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError, match=r"cannot be read|not a ledger"):
        read(tmp_path / "cut").verify()
    with pytest.raises(LedgerError, match=says("ledger", tmp_path / "nowhere" / "l")):
        Ledger(tmp_path / "nowhere" / "l", TASK, TERMS)


def test_an_older_copy_is_noticed_by_who_kept_the_last_link(ledger: Ledger, tmp_path: Path) -> None:
    ledger.record(0, ["bank"])
    ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "older")
    kept = ledger.record(1, ["bank"]).link
    assert read(tmp_path / "older").verify() != kept


def test_where_no_epsilon_holds_the_export_says_so(tmp_path: Path) -> None:
    for sigma in (0.0, 0.1):
        book = Ledger(tmp_path / f"l{sigma}", TASK, replace(TERMS, sigma=sigma))
        for round_ in range(3):
            book.record(round_, ["=bank"])
        assert book.contents().export()["clients"]["=bank"]["epsilon"]["server"] is None
        assert book.contents().export_csv().splitlines()[1].startswith("'=bank,3,none,")


@pytest.mark.parametrize("changed", [{"group": 2}, {"unknown_to_server": 0}, {"hidden_rounds": 5}])
def test_only_what_the_file_can_say_is_counted(tmp_path: Path, changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=says("ledger", next(iter(changed)))):
        Ledger(tmp_path / "l", TASK, replace(TERMS, **changed))
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize("stored", ["[]", "5", "{}", '{"task": 1}', "no JSON"])
def test_terms_that_were_changed_are_named(ledger: Ledger, tmp_path: Path, stored: str) -> None:
    del ledger
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute("UPDATE terms SET json = ?", (stored,))
    with pytest.raises(LedgerError, match=says("ledger.sqlite", "sigma", stored)):
        read(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerError, match=says("sigma", stored)):
        Ledger(tmp_path / "ledger.sqlite", TASK, TERMS)


def test_a_ledger_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """The file, its links and its terms are as they were, whole numbers among them too."""
    old = '{"delta":1e-05,"dim":26010,"record_rate":0.05,"sigma":1,"task":"' + TASK + '"}'
    Ledger(tmp_path / "l", TASK, TERMS)
    with sqlite3.connect(tmp_path / "l") as connection:
        connection.execute("UPDATE terms SET json = ?", (old,))
    book = Ledger(tmp_path / "l", TASK, TERMS, Origin(unit="record", private=True))
    assert book.origin == Origin()
    book.record(0, ["bank"])
    assert book.contents().export()["terms"] == json.loads(old)
    assert read(tmp_path / "l").verify() == book.verify()


@pytest.mark.parametrize("round_", [-1, 1 << 63, True])
def test_a_round_is_a_whole_number(ledger: Ledger, round_: int) -> None:
    with pytest.raises(ValueError, match=says("round", round_)):
        ledger.record(round_, [])


def test_a_view_sees_what_was_counted_while_the_counting_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "led ger?#.sqlite"
    ledger = Ledger(path, TASK, TERMS)
    assert read(path).rows == ()
    assert read(path).last_link == ""
    entry = ledger.record(0, ["b", "a"])
    seen = read(path)
    assert (seen.terms, seen.last_link) == (TERMS, entry.link)
    assert [(number, json.loads(names)) for number, names, _ in seen.rows] == [(0, ["a", "b"])]
    ledger.record(1, ["a"])
    assert len(read(path).rows) == 2


def test_what_is_no_ledger_cannot_be_viewed(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=says("no ledger", tmp_path / "none")):
        read(tmp_path / "none")
    (tmp_path / "text").write_text("not a ledger, but long enough to be read as a file of SQLite" * 20)
    with pytest.raises(LedgerError, match=says("not a ledger", tmp_path / "text")):
        read(tmp_path / "text")
