"""``precad audit RUN``: whatever was changed in a run's folder is named, and nothing in it is changed."""

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from typer.testing import CliRunner

import precad
from precad.cli.app import app
from precad.files import lock_file
from precad.privacy.ledger import read
from precad.report.audit import ONLY_AGREEMENT, Audited, audit_run
from precad.report.manifest import COVERED, MANIFEST, PAGE
from precad.report.run import ReportError
from tests.messages import says
from tests.report.forged import AGAINST_OTHER_FILES, ONLY_THE_MANIFEST, cover_up, edit, line, replace
from tests.simulation.small import data, hyperparameters, model

TRAIN = [
    "train",
    "--rounds",
    "4",
    "--clients",
    "20",
    "--evaluate-every",
    "2",
    "--client-rate",
    "0.5",
    "--malicious",
    "10",
]
"""That a round has at most one client, or two runs the same ones, has a probability below 1e-4."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two private runs of one configuration, and one with a seed."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (("mine", []), ("other", []), ("seeded", ["--seed", "1"])):
        result = CliRunner().invoke(app, [*TRAIN, *more, "--out", str(folder), "--name", name])
        assert result.exit_code == 0, result.output
        (folder / f"{name}.digest").write_text(result.output.split("elsewhere: ")[1][:64])
    return folder


@pytest.fixture
def mine(runs: Path, tmp_path: Path) -> Path:
    for name in ("mine", "other"):
        shutil.copytree(runs / name, tmp_path / name)
    return tmp_path / "mine"


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file with its digest and its time."""
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.is_file()
    }


def named(found: Audited, *words: str) -> bool:
    return all(any(word in sentence for sentence in found.differences) for word in words)


def test_a_run_that_nobody_changed(mine: Path, runs: Path) -> None:
    before = state(mine)
    kept = (runs / "mine.digest").read_text()
    found = audit_run(mine, kept.upper())
    assert (found.differences, found.unchecked) == ((), ())
    assert found.digest == kept
    assert found.kept is not None
    assert found.statement is not None
    summary = json.loads((mine / "summary.json").read_text())
    assert list(found.statement.costs.values()) == [summary["epsilon_server"], summary["epsilon_clients"]]
    assert f"ε = {summary['epsilon_server']:.3f} at δ = 1e-5" in found.statement.headline
    assert state(mine) == before
    assert CliRunner().invoke(app, ["report", str(mine)]).exit_code == 0  # the same page again
    assert audit_run(mine).agree


@pytest.mark.parametrize("what", AGAINST_OTHER_FILES)
def test_a_forgery_is_named_by_the_files_that_disagree(what: str, mine: Path) -> None:
    """Though the forger makes all digests right again."""
    forge, words = AGAINST_OTHER_FILES[what]
    forge(mine)
    cover_up(mine)
    before = state(mine)
    found = audit_run(mine)
    assert named(found, *words), found.differences
    assert found.statement is None or found.statement.headline.startswith("NOT TO BE SIGNED")
    assert state(mine) == before


@pytest.mark.parametrize("what", ONLY_THE_MANIFEST)
def test_what_no_other_file_repeats_has_a_digest(what: str, mine: Path) -> None:
    forge, words = ONLY_THE_MANIFEST[what]
    forge(mine)
    found = audit_run(mine)
    assert named(found, *words), found.differences


def test_only_what_was_kept_elsewhere_shows_that_all_was_written_anew(mine: Path, runs: Path) -> None:
    """The other run's folder under this one's name is a consistent forgery."""
    kept = (runs / "mine.digest").read_text()
    shutil.rmtree(mine)
    (mine.parent / "other").rename(mine)
    assert named(audit_run(mine, kept), "was kept")
    again = audit_run(mine)  # the page has the name that the run had
    assert (again.differences, again.unchecked) == ((), ())


INTO_THE_LEDGER = {
    "a table": "CREATE TABLE x (a); INSERT INTO x VALUES (1)",
    "an index": "CREATE INDEX x ON entries (link)",
    "a view": "CREATE VIEW x AS SELECT 1",
    "a trigger": "CREATE TRIGGER x AFTER INSERT ON entries BEGIN SELECT 1; END",
    "a row that counts nothing": "INSERT INTO sqlite_sequence VALUES ('x', 1)",
    "statistics": "ANALYZE",
}


@pytest.mark.parametrize("what", INTO_THE_LEDGER)
def test_what_is_no_part_of_a_ledger_is_named(what: str, mine: Path, runs: Path) -> None:
    with closing(sqlite3.connect(mine / "ledger.sqlite")) as connection:
        connection.executescript(INTO_THE_LEDGER[what])
    assert named(audit_run(mine, (runs / "mine.digest").read_text()), "ledger.sqlite cannot be used", "was kept")
    cover_up(mine)
    assert named(audit_run(mine), "ledger.sqlite cannot be used")
    for command in (["ledger", "verify"], ["ledger", "show"], ["report"]):
        result = CliRunner().invoke(app, [*command, str(mine)])
        assert result.exit_code == 2
        assert "not of this program" in result.stderr or "no table of this program" in result.stderr


def test_no_byte_of_a_ledger_changes_unnoticed(mine: Path, runs: Path) -> None:
    with closing(sqlite3.connect(mine / "ledger.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 7")
    found = audit_run(mine, (runs / "mine.digest").read_text())
    assert named(found, "ledger.sqlite was changed: its digest", "was kept")


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_run_that_has_ended_leaves_nothing_beside_its_ledger(ending: str, mine: Path) -> None:
    (mine / f"ledger.sqlite{ending}").touch()
    assert named(audit_run(mine), f"ledger.sqlite{ending}")


def test_a_link_of_the_ledger_can_be_kept_too(mine: Path) -> None:
    first = json.loads((mine / "metrics.jsonl").read_text().splitlines()[0])["link"]
    found = audit_run(mine, first)
    assert found.agree
    assert "round 1" in str(found.kept)
    with pytest.raises(ValueError, match=says("64", "'12'")):
        audit_run(mine, "12")


def test_the_seed_taken_away(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "seeded", tmp_path / "run")
    folder = tmp_path / "run"
    honest = audit_run(folder)
    assert honest.agree
    assert honest.statement is not None
    assert honest.statement.headline.startswith("NOT PRIVATE")
    assert honest.statement.as_json()["epsilon"] is None
    assert not any(f"{cost:.3f}" in honest.as_text() for cost in honest.statement.costs.values() if cost)
    replace("config.toml", "seed = 1\n", "")(folder)
    for covered_up in (False, True):
        if covered_up:
            cover_up(folder)
        found = audit_run(folder)
        assert named(found, "whether nobody can take the noise away", "summary.json says seed = 1")
        assert found.statement is not None
        assert found.statement.private is False
    edit("summary.json", seed=None, randomness="private: from the operating system")(folder)
    for number in range(1, 5):
        line(number, private=True)(folder)
    assert named(audit_run(folder), "ledger.sqlite says False")


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
    "a list": b"[1]\n",
    "deep": b"[" * 100_000,
    "long numbers": b'{"round": 1' + b"0" * 400 + b', "format": 1e400}\n',
    "control characters": b'{"\\u001b[2J": 1}\n',
}
OPENED = [*COVERED, MANIFEST, PAGE]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", OPENED)
def test_garbage_is_named(name: str, garbage: str, mine: Path) -> None:
    (mine / name).write_bytes(GARBAGE[garbage])
    result = CliRunner().invoke(app, ["audit", str(mine)])
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert f"DIFFERS: {name}" in result.output
    assert "\x1b" not in result.output


def in_place(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


OTHER_KINDS = {
    "a link out of the folder": in_place(lambda path: path.symlink_to("/etc/passwd")),
    "a pipe": in_place(os.mkfifo),
    "a folder": in_place(Path.mkdir),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize("name", OPENED)
def test_what_is_no_file_is_not_opened(name: str, kind: str, mine: Path) -> None:
    OTHER_KINDS[kind](mine / name)
    assert named(audit_run(mine), f"'{name}' is a link, a folder or a device")


@pytest.mark.parametrize("name", [each for each in OPENED if each not in (PAGE, "config.toml")])
def test_a_missing_file_is_named(name: str, mine: Path) -> None:
    (mine / name).unlink()
    assert named(audit_run(mine), f"{name} is missing")


def test_what_is_no_run(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(ReportError, match=says("no run", place)):
            audit_run(place)


def stopped(folder: Path, after: int) -> None:
    """A run from Python that is cut off while its next round is computed."""

    def loss(outputs: Any, targets: Any) -> Any:
        metrics = folder / "metrics.jsonl"
        if metrics.exists() and metrics.read_text().count("\n") >= after:
            raise KeyboardInterrupt
        return nn.functional.cross_entropy(outputs, targets)

    clients = {name: data(20, seed=i) for i, name in enumerate(("bank", "lab"))}
    with pytest.raises(KeyboardInterrupt):
        precad.train(
            model(), loss, clients, hyperparameters(rounds=4, client_rate=1.0), folder=folder, evaluate_every=1
        )


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped(folder, 2)
    found = audit_run(folder)
    assert found.differences == ()
    assert found.statement is not None
    assert found.statement.rounds == 3  # the third was counted before it was cut off
    assert dict(found.statement.rows)["rounds"].endswith("; round 3 is counted, and was not finished")
    shown = CliRunner().invoke(app, ["ledger", "show", str(folder)])
    assert "round 3 is counted, and was not finished" in shown.output
    (folder / "root.key").unlink()
    line(2, epsilon_server=0.01)(folder)
    assert named(audit_run(folder), "root.key is missing", "metrics.jsonl says epsilon_server in line 2 = 0.01")


def test_a_digest_that_was_kept_before_the_run_went_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped(folder, 2)
    kept, link = audit_run(folder).digest, read(folder / "ledger.sqlite").last_link
    clients = {name: data(20, seed=i) for i, name in enumerate(("bank", "lab"))}
    params = hyperparameters(rounds=4, client_rate=1.0)
    precad.train(model(), nn.functional.cross_entropy, clients, params, folder=folder, evaluate_every=1)
    later = audit_run(folder, kept)
    assert named(later, "or the run went on")
    assert "compare a link of the ledger" in str(later.kept)
    assert ONLY_AGREEMENT not in later.as_text()
    assert audit_run(folder, link).agree


def of_terms(folder: Path) -> None:
    """Four times the noise, in the ledger alone."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection, connection:
        connection.execute("""UPDATE terms SET json = replace(json, '"sigma":2.0', '"sigma":8.0')""")


def test_the_terms_of_a_ledger_are_named_though_its_chain_does_not_hold(mine: Path) -> None:
    of_terms(mine)
    found = audit_run(mine)
    assert named(
        found,
        "ledger.sqlite cannot be used: round 1 was changed, or the terms were",
        "ledger.sqlite says sigma = 8.0, and 2.0 follows from config.toml",
    )
    before = (mine / PAGE).read_bytes()
    result = CliRunner().invoke(app, ["report", str(mine)])
    assert result.exit_code == 2
    assert "ledger.sqlite does not hold" in result.stderr
    assert (mine / PAGE).read_bytes() == before


@pytest.mark.parametrize("forge", [of_terms, lambda folder: (folder / "ledger.sqlite").unlink()])
def test_why_no_epsilon_before_the_end_is_checked(forge: Callable[[Path], object], mine: Path) -> None:
    forge(mine)
    (why,) = (sentence for sentence in audit_run(mine).unchecked if "ε before the end" in sentence)
    assert "there is no ledger that holds" in why
    assert "protocol precad" not in why


@pytest.mark.parametrize("forge", [line(2, update_norm=2.0), replace("machine.json", '"cpu"', '"cuda"')])
def test_no_other_version_wrote_the_page_that_the_run_left(forge: Callable[[Path], object], mine: Path) -> None:
    forge(mine)
    cover_up(mine)
    found = audit_run(mine)
    assert not [sentence for sentence in found.unchecked if "report.html" in sentence]
    assert named(found, "report.html is the page that the run left") == (found.differences != ())


def test_the_page_of_another_version(mine: Path) -> None:
    replace(PAGE, "What the model learnt", "What it learnt")(mine)
    edit("summary.json", version="0.0.1")(mine)
    edit("about.json", version="0.0.1")(mine)
    cover_up(mine)
    found = audit_run(mine)
    assert found.agree
    assert any("report.html, which precad '0.0.1' wrote" in sentence for sentence in found.unchecked)


def test_the_first_cause_is_named_first(mine: Path) -> None:
    (mine / "summary.json").unlink()
    first, *others = audit_run(mine).differences
    assert first.startswith("summary.json is missing")
    assert not [sentence for sentence in others if "root.key" in sentence]


def test_a_ledger_is_found_in_its_folder(mine: Path) -> None:
    for words in (["show", "--json"], ["verify"], ["export"], ["export", "--csv"]):
        by_folder, by_file = (
            CliRunner().invoke(app, ["ledger", *words, str(place)]) for place in (mine, mine / "ledger.sqlite")
        )
        assert by_folder.exit_code == 0, by_folder.output
        assert by_folder.stdout == by_file.stdout
    wrong = CliRunner().invoke(app, ["ledger", "show", str(mine.parent)])
    assert wrong.exit_code == 2
    assert "not the folder of a run" in wrong.stderr
    assert "1 run together" in " ".join(CliRunner().invoke(app, ["ledger", "total", str(mine)]).output.split())


def test_one_difference_is_one(mine: Path) -> None:
    (mine / "notes.txt").touch()
    found = audit_run(mine)
    assert "\n1 difference found" in found.as_text()
    assert found.statement is not None
    assert "found 1 difference." in found.statement.headline


def test_a_run_that_is_being_played_is_not_audited(mine: Path) -> None:
    with lock_file(mine / "config.toml"), pytest.raises(ReportError, match=says(mine, "in use")):
        audit_run(mine)
    assert audit_run(mine).agree


@pytest.mark.parametrize("protocol", ["plain", "ldp", "cdp", "ddp"])
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_other_protocols_have_no_ledger(protocol: str, rate: float, tmp_path: Path) -> None:
    params = hyperparameters(rounds=4, client_rate=rate, protocol=protocol)
    clients = {f"client-{i}": data(20, seed=i) for i in range(6)}
    precad.train(model(), nn.functional.cross_entropy, clients, params, folder=tmp_path / "run", evaluate_every=1)
    found = audit_run(tmp_path / "run")
    assert found.differences == ()
    assert any("took part" in sentence for sentence in found.unchecked) == (rate < 1 and protocol != "plain")
    assert found.statement is not None
    assert ("NO ε HOLDS" in found.statement.headline) == (protocol in ("plain", "cdp"))
    if protocol == "ldp":
        edit("summary.json", epsilon_server=0.01)(tmp_path / "run")
        cover_up(tmp_path / "run")
        assert named(audit_run(tmp_path / "run"), "summary.json says epsilon_server = 0.01")


def test_a_run_of_an_earlier_version(mine: Path) -> None:
    """What it has is compared, and what it lacks is said."""
    for name in (MANIFEST, "about.json"):
        (mine / name).unlink()
    for number in range(1, 5):
        texts = (mine / "metrics.jsonl").read_text().splitlines()
        old = {key: value for key, value in json.loads(texts[number - 1]).items() if key not in ("model", "link")}
        texts[number - 1] = json.dumps(old)
        (mine / "metrics.jsonl").write_text("\n".join(texts) + "\n")
    CliRunner().invoke(app, ["report", str(mine)])
    replace(PAGE, "What the model learnt", "What it learnt")(mine)
    found = audit_run(mine)
    assert found.differences == ()
    said = " ".join(found.unchecked)
    assert all(word in said for word in ("manifest.json", "records", "checkpoint.npz", "report.html"))
    edit("summary.json", epsilon_server=0.1)(mine)
    assert named(audit_run(mine), "summary.json says epsilon_server = 0.1")


def test_the_command(mine: Path, tmp_path: Path, runs: Path) -> None:
    kept = (runs / "mine.digest").read_text()
    fine = CliRunner().invoke(app, ["audit", str(mine), "--digest", kept, "--statement", str(tmp_path / "s.html")])
    assert fine.exit_code == 0, fine.output
    assert "all files agree" in fine.output
    assert "Signature" in (tmp_path / "s.html").read_text()
    edit("summary.json", epsilon_server=0.1)(mine)
    bad = CliRunner().invoke(app, ["audit", str(mine), "--json", "--statement", str(tmp_path / "s.md")])
    assert bad.exit_code == 1
    value = json.loads(bad.stdout)
    assert not value["agree"]
    assert value["statement"]["epsilon"] is None
    assert "NOT TO BE SIGNED" in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--statement", "MINE/s.html"], ("--statement", "only read")),
        (["--statement", "s.pdf"], (".html", "s.pdf")),
        (["--digest", "x"], ("64", "'x'")),
        (["MINE/config.toml"], ("folder of a run", "config.toml")),
    ],
)
def test_bad_input(more: list[str], words: tuple[str, ...], mine: Path) -> None:
    options = [each.replace("MINE", str(mine)) for each in more]
    result = CliRunner().invoke(app, ["audit", str(mine), *options])
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words)
    assert CliRunner().invoke(app, ["audit", str(mine / "summary.json")]).exit_code == 2


@pytest.mark.parametrize(
    "forge",
    [
        edit("about.json", format=9, version="9\nall files agree"),
        line(1, rejected={"x\nall files agree": 5}),
        edit("summary.json", **{"x\nall files agree": 5}),
        edit("manifest.json", **{"x\nall files agree": "00"}),
        lambda folder: (folder / "x\nall files agree").touch(),
    ],
)
def test_no_file_adds_a_line_to_what_is_said(forge: Callable[[Path], object], mine: Path) -> None:
    forge(mine)
    result = CliRunner().invoke(app, ["audit", str(mine), "--statement", str(mine.parent / "statement.md")])
    assert result.exit_code == 1
    for text in (result.output, (mine.parent / "statement.md").read_text()):
        assert not [each for each in text.splitlines() if each.startswith("all files agree")]


def test_an_audit_of_many_differences_comes_to_an_end(mine: Path) -> None:
    for number in range(20_000):
        (mine / f"more {number}").touch()
    begun = time.monotonic()
    assert len(audit_run(mine).differences) >= 20_000
    assert time.monotonic() - begun < 20
