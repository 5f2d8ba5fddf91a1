"""Runs that nobody trained: the files that the page reads, with figures that a test knows."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from precad.privacy.ledger import Ledger, link_of, read
from precad.privacy.terms import Terms

CONFIG = """seed = 1
evaluate_every = 2

[task]
dataset = "digits"
clients = {clients}

[training]
rounds = {rounds}
client_rate = 1.0
record_rate = 0.2
record_bound = 1.0
client_bound = 10.0
noise_multiplier = 2.0
learning_rate = 0.5
protocol = "{protocol}"
delta = 1e-05
{more}
[malicious]
clients = 1
attack = "boost"
"""


@dataclass
class FakeRun:
    """A run to be written to a folder."""

    rounds: int = 6
    names: list[str] = field(default_factory=lambda: ["client-1", "client-2", "client-3"])
    rejected: list[str] = field(default_factory=lambda: ["client-3"])
    protocol: str = "precad"
    more: str = ""
    finished: bool = True
    about: dict[str, Any] | None = None
    dim: int = 100
    norm: float = 40.0

    def line(self, number: int) -> dict[str, Any]:
        line: dict[str, Any] = {
            "round": number,
            "selected": len(self.names),
            "rejected": dict.fromkeys(self.rejected, "invalid"),
            "update_norm": self.norm,
            "seconds": {"protocol": 0.25, "gradients": 0.125, "ledger": 0.001},
            "private": False,
        }
        if number % 2 == 0 or number == self.rounds:
            line |= {"test_accuracy": 1 - 1 / (number + 1), "test_loss": 2 / number}
            line |= {"epsilon_server": 0.5 * number, "epsilon_clients": 0.3 * number}
        return line

    def write(self, path: Path, done: int | None = None) -> Path:
        """The folder, with ``done`` rounds."""
        path.mkdir(parents=True, exist_ok=True)
        last = self.rounds if done is None else done
        text = CONFIG.format(clients=len(self.names), rounds=self.rounds, protocol=self.protocol, more=self.more)
        (path / "config.toml").write_text(text)
        lines = [json.dumps(self.line(number)) + "\n" for number in range(1, last + 1)]
        (path / "metrics.jsonl").write_text("".join(lines))
        (path / "machine.json").write_text('{"data": "/home/me/data", "device": "cpu", "config": "c0ffee"}')
        about = {"format": 1, "version": "0.1", "versions": {"torch": "2.9"}, "parameters": self.dim}
        (path / "about.json").write_text(json.dumps(about | {"clients": self.names} | (self.about or {})))
        if self.protocol == "precad":
            self._write_ledger(path / "ledger.sqlite", last)
        if self.finished and last == self.rounds:
            (path / "summary.json").write_text(json.dumps(self.summary()))
        return path

    def summary(self) -> dict[str, Any]:
        figures = self.line(self.rounds)
        return {
            "run": "mine",
            "version": "0.1",
            "protocol": self.protocol,
            "validation": "proof",
            "rounds": self.rounds,
            "parameters": self.dim,
            "clients": len(self.names),
            "delta": 1e-5,
            "participations": self.rounds,
            "rejected": {name: {"rejected": self.rounds, "sent": self.rounds} for name in self.rejected},
            "seconds": {"protocol": 0.25 * self.rounds},
            "seed": 1,
            "randomness": "repeatable by its seed",
            "plain_seconds": 0.1,
        } | {key: figures[key] for key in ("test_accuracy", "test_loss", "epsilon_server", "epsilon_clients")}

    def _write_ledger(self, path: Path, last: int) -> None:
        """All rounds at once: with a commit for each, a long run would take a minute."""
        Ledger(path, "ab", Terms(sigma=2.0, record_rate=0.2, delta=1e-5, dim=self.dim)).close()
        names, stored, links = tuple(sorted(self.names)), read(path).stored, [""]
        for number in range(last):
            links.append(link_of(stored, links[-1], number, names))
        rows = [(number, json.dumps(names), link) for number, link in enumerate(links[1:])]
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM entries")
            connection.execute("DELETE FROM counts")
            connection.executemany("INSERT INTO entries (round, participants, link) VALUES (?, ?, ?)", rows)
            connection.executemany("INSERT INTO counts VALUES (?, ?)", [(name, last) for name in names if last])
