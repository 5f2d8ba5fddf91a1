"""Folders that somebody changed after the run: each forgery, and what the audit must say of it."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from precad.files import is_file
from precad.privacy.ledger import Ledger, read
from precad.report.manifest import MANIFEST, PAGE, file_digest, file_digests, manifest_text
from precad.report.weights import read_checkpoint
from precad.settings import config_digest

Forgery = tuple[Callable[[Path], object], tuple[str, ...]]


def edit(name: str, **changes: Any) -> Callable[[Path], None]:
    """Change some keys of a file of JSON."""

    def change(folder: Path) -> None:
        table = json.loads((folder / name).read_text()) | changes
        (folder / name).write_text(json.dumps(table))

    return change


def line(number: int, **changes: Any) -> Callable[[Path], None]:
    """Change some keys of a line of the metrics."""

    def change(folder: Path) -> None:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | changes)
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    return change


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """Remove, double or reorder lines of the metrics, and number them anew."""

    def rewrite(folder: Path) -> None:
        changed = change((folder / "metrics.jsonl").read_text().splitlines())
        texts = [json.dumps(json.loads(text) | {"round": number}) for number, text in enumerate(changed, 1)]
        (folder / "metrics.jsonl").write_text("".join(f"{text}\n" for text in texts))

    return rewrite


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Change a text."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def rebuild(folder: Path, change: Callable[[list[tuple[int, list[str]]]], list[tuple[int, list[str]]]]) -> None:
    """A whole new ledger, with a right chain of links, of changed rounds."""
    old = read(folder / "ledger.sqlite")
    rounds = change([(entry.round, list(entry.participants)) for entry in old.entries()])
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    book = Ledger(folder / "ledger.sqlite", old.task, old.terms, old.origin)
    for number, names in rounds:
        book.record(number, names)
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def checkpoint(folder: Path, **changes: Any) -> None:
    np.savez(folder / "checkpoint.npz", **vars(read_checkpoint(folder / "checkpoint.npz")) | changes)


def cover_up(folder: Path) -> None:
    """Make the digests right again: of the configuration, and of every file."""
    machine = json.loads((folder / "machine.json").read_text())
    machine["config"] = config_digest((folder / "config.toml").read_text())
    (folder / "machine.json").write_text(json.dumps(machine))
    digests = file_digests(folder)
    if is_file(folder / PAGE):
        digests[PAGE] = file_digest(folder / PAGE)
    (folder / MANIFEST).write_text(manifest_text(digests))


def swap(*names: str) -> Callable[[Path], None]:
    """Files of another run of the same configuration, which lies beside."""

    def change(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes((folder.parent / "other" / name).read_bytes())

    return change


def without_manifest(folder: Path) -> None:
    """As if an earlier version had made it."""
    edit("about.json", format=1)(folder)
    (folder / MANIFEST).unlink()


AGAINST_OTHER_FILES: dict[str, Forgery] = {
    "ε in the summary": (
        edit("summary.json", epsilon_server=0.1),
        ("summary.json says epsilon_server = 0.1", "follows"),
    ),
    "no ε in the summary": (edit("summary.json", epsilon_clients=None), ("summary.json",)),
    "δ in the summary": (edit("summary.json", delta=1e-9), ("summary.json says delta = 1e-09", "1e-05")),
    "T_i in the summary": (edit("summary.json", participations=1), ("summary.json says participations = 1",)),
    "rounds in the summary": (edit("summary.json", rounds=2), ("summary.json says rounds = 2",)),
    "accuracy in the summary": (edit("summary.json", test_accuracy=0.99), ("summary.json says test_accuracy = 0.99",)),
    "nobody was rejected": (edit("summary.json", rejected={}), ("summary.json", "rejected")),
    "seconds in the summary": (
        edit("summary.json", seconds={"protocol": 1, "gradients": 1, "ledger": 1}),
        ("summary.json says the seconds",),
    ),
    "protocol in the summary": (edit("summary.json", protocol="ldp"), ("summary.json says protocol = 'ldp'",)),
    "a seed in the summary": (edit("summary.json", seed=5), ("summary.json says seed = 5",)),
    "clients in the summary": (edit("summary.json", clients=500), ("the number of clients", "summary.json says 500")),
    "ε in the metrics": (line(2, epsilon_server=0.1), ("metrics.jsonl says epsilon_server in line 2 = 0.1",)),
    "fewer were selected": (line(3, selected=1), ("metrics.jsonl says selected in line 3 = 1",)),
    "somebody else was rejected": (line(1, rejected={"nobody": "invalid"}), ("metrics.jsonl names somebody",)),
    "a link": (line(1, link="00" * 32), ("metrics.jsonl says link in line 1",)),
    "the model of the last line": (line(4, model="00" * 32), ("metrics.jsonl says model in line 4",)),
    "not private in one line": (line(1, private=False), ("the noise", "metrics.jsonl says 'both'")),
    "a line is missing": (lines(lambda old: old[:1] + old[2:]), ("ledger.sqlite counts 4 rounds", "3 lines")),
    "the last line is missing": (lines(lambda old: old[:-1]), ("metrics.jsonl", "the last round = 3")),
    "a line stands twice": (lines(lambda old: [*old, old[-1]]), ("ledger.sqlite counts 4 rounds", "5 lines")),
    "two lines change places": (lines(lambda old: [old[1], old[0], *old[2:]]), ("metrics.jsonl says link in line 1",)),
    "model.pt": (swap("model.pt"), ("model.pt does not hold the parameters of checkpoint.npz",)),
    "checkpoint.npz": (swap("checkpoint.npz"), ("metrics.jsonl says model in line 4", "checkpoint.npz")),
    "both": (swap("model.pt", "checkpoint.npz"), ("metrics.jsonl says model in line 4",)),
    "fewer participations in the checkpoint": (
        lambda folder: checkpoint(folder, participations=np.zeros(20, np.int64)),
        ("checkpoint.npz says the participations of 'client-",),
    ),
    "the checkpoint of an earlier round": (lambda folder: checkpoint(folder, round=3), ("checkpoint.npz", "= 3")),
    "more noise in config.toml": (
        replace("config.toml", "noise_multiplier = 2.0", "noise_multiplier = 9.0"),
        ("ledger.sqlite says sigma = 2.0, and 9.0 follows from config.toml",),
    ),
    "another C in config.toml": (
        replace("config.toml", "client_bound = 10.0", "client_bound = 11.0"),
        ("ledger.sqlite says the digest of its task",),
    ),
    "fewer rounds in config.toml": (replace("config.toml", "rounds = 4", "rounds = 3"), ("the last round = 4, and 3",)),
    "fewer evaluations in config.toml": (
        replace("config.toml", "evaluate_every = 2", "evaluate_every = 4"),
        ("metrics.jsonl has figures in line 2, and config.toml asks for none there",),
    ),
    "randomness in the summary": (
        edit("summary.json", randomness="secret"),
        ("the noise", "summary.json says 'secret'"),
    ),
    "a ledger of fewer rounds": (
        lambda folder: rebuild(folder, lambda rounds: rounds[:3]),
        ("ledger.sqlite counts 3 rounds, and metrics.jsonl has 4 lines",),
    ),
    "a ledger without one client": (
        lambda folder: rebuild(folder, lambda rounds: [(n, names[1:]) for n, names in rounds]),
        ("metrics.jsonl says selected in line 1", "metrics.jsonl says link in line 1", "checkpoint.npz"),
    ),
    "a ledger of other clients, as many": (
        lambda folder: rebuild(folder, lambda rounds: [(n, [f"x{name}" for name in names]) for n, names in rounds]),
        ("ledger.sqlite names somebody", "metrics.jsonl says link in line 1"),
    ),
    "a ledger with a gap": (
        lambda folder: rebuild(folder, lambda rounds: [(n + (n > 1), names) for n, names in rounds]),
        ("ledger.sqlite has round 4 in the place of round 3",),
    ),
    "the ledger of another run": (swap("ledger.sqlite"), ("metrics.jsonl says link in line 1",)),
    "records in about.json": (
        edit("about.json", records=[1] * 20),
        ("ledger.sqlite says the digest of its task",),
    ),
    "parameters in about.json": (edit("about.json", parameters=5), ("the number of parameters", "about.json says 5")),
    "clients in about.json": (edit("about.json", clients=["a"]), ("the number of clients", "about.json says 1")),
    "the format in about.json": (edit("about.json", format=3, version="9.0"), ("about.json", "precad 9.0")),
    "an extra file": (lambda folder: (folder / "notes.txt").write_text("hi"), ("'notes.txt' is no file of a run",)),
    "the key": (lambda folder: (folder / "root.key").write_bytes(bytes(32)), ("root.key is there",)),
    "a full lock": (lambda folder: (folder / "lock").write_text("x"), ("lock is not empty",)),
    "half a line more": (
        lambda folder: (folder / "metrics.jsonl").write_text((folder / "metrics.jsonl").read_text() + "{"),
        ("metrics.jsonl ends in the middle of a line",),
    ),
}
"""What the other files show, even where the forger makes all digests right again."""


ONLY_THE_MANIFEST: dict[str, Forgery] = {
    "the version in about.json": (edit("about.json", version="9.9"), ("about.json was changed",)),
    "the version in summary.json": (edit("summary.json", version="9.9"), ("summary.json was changed",)),
    "the time of plain training": (edit("summary.json", plain_seconds=100.0), ("summary.json was changed",)),
    "accuracy in the metrics": (line(2, test_accuracy=0.99), ("metrics.jsonl was changed",)),
    "the norm of a sum": (line(2, update_norm=1.0), ("metrics.jsonl was changed",)),
    "curves.png": (lambda folder: (folder / "curves.png").write_bytes(b"\x89PNG"), ("curves.png was changed",)),
    "no curves.png": (lambda folder: (folder / "curves.png").unlink(), ("curves.png is missing",)),
    "the device": (edit("machine.json", device="cuda"), ("machine.json was changed",)),
    "spaces in the manifest": (replace(MANIFEST, "  ", " "), ("manifest.json", "other letters")),
    "no manifest": (lambda folder: (folder / MANIFEST).unlink(), ("manifest.json is missing",)),
    "an older format without manifest": (without_manifest, ("manifest.json is missing",)),
    "words of the page": (replace(PAGE, "What the model learnt", "What it learnt"), ("report.html is not the page",)),
    "a figure of the page": (replace(PAGE, "<data value='4'>4</data>", "<data value='4'>9</data>"), ("report.html",)),
    "no summary": (lambda folder: (folder / "summary.json").unlink(), ("summary.json is missing",)),
    "a line of comment in config.toml": (
        replace("config.toml", "[task]", "# quiet\n[task]"),
        ("the digest of the conf",),
    ),
}
"""What only the digests show, that the run left in its folder."""
