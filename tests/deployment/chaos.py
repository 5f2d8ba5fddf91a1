"""Random kills and drops: all parties are processes, any of which is killed -9 at any moment, for as long as asked.

``python -m tests.deployment.chaos MINUTES [SEED]`` plays, proves at the end that nothing was lost or counted twice, and
prints the counts.
"""

import json
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from precad.deployment import receipts
from precad.deployment.store import Status, Store
from precad.errors import Reason
from precad.lab.bench.server import make_site
from precad.lab.processes import ServerB, Site
from precad.privacy.ledger import Ledger
from precad.protocol.states import Role
from tests.deployment import chaos_party
from tests.deployment.chaos_party import raw, text

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["__main__", "tests.deployment.chaos_party", "precad.deployment.https"])
CLIENTS, DIM, ROUNDS = 4, 140, 20_000
SHAKY = 0.04
"""The probability of each mishap of a message between the servers."""
KILL = 0.15
"""The probability that somebody is killed during a step."""
LATE = {Reason.LATE.value, Reason.FOREIGN.value, Reason.NOT_SELECTED.value, Reason.REPEATED.value}


class DiedError(Exception):
    """A party did not answer: it was killed."""


class UnreachedError(Exception):
    """A party answered with an error: B was not reached."""


class Party:
    """Server A or a client, a process forked from one that has imported all it needs."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.name = name
        self._pipe, theirs = FORKING.Pipe()
        self.process = FORKING.Process(target=chaos_party.main, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, do: str, **values: str) -> dict[str, Any]:
        try:
            self._pipe.send_bytes(json.dumps({"do": do, **values}).encode())
            answer: dict[str, Any] = json.loads(self._pipe.recv_bytes())
        except (OSError, EOFError):
            raise DiedError(self.name) from None
        if "error" in answer:
            assert answer["kind"] == "TransportError", f"{self.name}, {do}: {answer}"
            raise UnreachedError(answer["error"])
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._pipe.close()
        assert self.process.exitcode == -signal.SIGKILL, f"{self.name} ended by itself: see its words above"


class Chaos:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._generator = folder, np.random.default_rng(seed)
        self.site: Site = make_site(folder, DIM, CLIENTS, ROUNDS, client_rate=0.8)
        self.counts: Counter[str] = Counter()
        self.replies: dict[tuple[int, str], str] = {}
        self._late: list[str] = []
        self._parties: dict[str, Party] = {}
        self._b = ServerB(folder)
        self._calm = False

    def play(self, seconds: float) -> None:
        """Rounds under fire; then calm ones, in which all that is under way ends."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._attempt()
        self._calm = True
        for name in list(self._parties):
            self._parties.pop(name).kill()
        wanted = self.counts["rounds"] + 2
        while self.counts["rounds"] < wanted:
            self._attempt()

    def close(self) -> None:
        for party in self._parties.values():
            party.kill()
        self._b.stop()

    def _attempt(self) -> None:
        """A round, or as much of it as those live to see who take part."""
        try:
            self._revive_b()
            self._round()
            self.counts["rounds"] += 1
        except DiedError as died:
            self.counts["deaths seen"] += 1
            party = self._parties.pop(str(died), None)
            if party is not None:
                party.kill()
        except UnreachedError:
            self.counts["steps that did not reach B"] += 1
            if self._happens(0.1):
                self._abandon()

    def _round(self) -> None:
        begun = self._ask("alpha", "start")
        number, common = begun["round"], {"invitation": begun["invitation"], "model": begun["model"]}
        for name, told in begun["told"].items():
            if self._happens(0.05):
                self.counts["clients that stayed away"] += 1
                continue
            try:
                reply = self._ask(name, "answer", told=told, **common)["reply"]
            except DiedError:
                self._parties.pop(name).kill()
                if self._happens(0.5):
                    continue
                reply = self._ask(name, "answer", told=told, **common)["reply"]
            assert self.replies.setdefault((number, name), reply) == reply, f"{name} answered twice in round {number}"
            self._deliver(reply)
        if not self._ask("alpha", "finish")["opened"]:
            self.counts["rounds with too few"] += 1

    def _deliver(self, reply: str) -> None:
        """A reply that is lost, late, doubled or damaged, or simply comes."""
        if self._happens(0.05):
            self.counts["replies lost or late"] += 1
            self._late.append(reply)
            return
        if self._late and self._happens(0.3):
            late = self._late.pop()
            verdict = self._ask("alpha", "submit", reply=late)["verdict"]
            assert verdict in LATE or verdict is None, verdict
            self.counts["late replies delivered"] += 1
        if self._happens(0.05):
            self.counts["damaged replies"] += 1
            damaged = bytearray(raw(reply))
            damaged[self._generator.integers(len(damaged))] ^= 1 + self._generator.integers(255)
            kept = self._ask("alpha", "submit", reply=text(bytes(damaged)))["verdict"] is None
            self.counts["damaged replies kept by A, for B to reject"] += kept  # A cannot look into B's part
        for _ in range(2 if self._happens(0.05) else 1):
            assert self._ask("alpha", "submit", reply=reply)["verdict"] is None

    def _abandon(self) -> None:
        """A gives up a round, if it may."""
        with suppress(DiedError, UnreachedError, AssertionError):
            self._ask("alpha", "abandon")
            self.counts["rounds given up"] += 1

    def _ask(self, name: str, do: str, **values: str) -> dict[str, Any]:
        if name not in self._parties:
            rate, seed = 0.0 if self._calm else SHAKY, int(self._generator.integers(1 << 31))
            self._parties[name] = Party(name, self.folder, name, seed, rate)
        if self._happens(KILL):
            threading.Timer(self._generator.uniform(0, 0.6), self._kill_somebody, (self._generator.random(),)).start()
        return self._parties[name].ask(do, **values)

    def _kill_somebody(self, lot: float) -> None:
        names = ["alpha", "beta"] if lot < 0.7 else sorted(self._parties)
        if self._calm or not names:
            return
        name = names[int(lot * 1e6) % len(names)]
        if name == "beta":
            if self._b.started:
                self._b.process.kill()
        elif name in self._parties:
            self._parties[name].process.kill()
        self.counts[f"kills of {name if name in ('alpha', 'beta') else 'clients'}"] += 1

    def _revive_b(self) -> None:
        if self._b.started and self._b.process.poll() is None:
            return
        try:
            self._b.start()
        except RuntimeError:  # it was killed while it started
            if self._calm:
                raise
            raise DiedError("beta") from None

    def _happens(self, probability: float) -> bool:
        return not self._calm and bool(self._generator.random() < probability)


def prove(chaos: Chaos) -> dict[str, int]:
    """All that must hold at the end; else an ``AssertionError``. What there was of it."""
    counts, opened = prove_books(chaos.site)
    _check_notes(chaos.folder / "notes", opened)
    return counts


def prove_books(site: Site) -> tuple[dict[str, int], set[int]]:
    """The part that the books of all parties prove: nothing was lost or counted twice. Counts, and what was opened."""
    task = site.task
    logs = {role: receipts.read(site.settings(role).audit_log) for role in Role}
    own_logs = [path for name in task.members for path in (site.folder / name).glob("*.audit.log")]
    files = [str(site.settings(role).audit_log) for role in Role] + [str(path) for path in own_logs]
    command = [sys.executable, "-m", "precad", "audit", *files, "--task", str(site.folder / "task.json")]
    audited = subprocess.run(command, capture_output=True, text=True, check=False)
    assert audited.returncode == 0, audited.stderr
    events = [receipts.parse(line).events for line in logs[Role.A]]
    opened = [each for each in events if each.kind == receipts.OPENED]
    assert f"all {len(opened)} opened rounds" in audited.stdout
    assert len({each.round for each in opened}) == len(opened), "a round was opened twice"
    verdicts = [verdict for each in opened for verdict in each.verdicts]
    assert len({verdict.header for verdict in verdicts}) == len(verdicts), "a submission counts twice"
    valid = Counter(verdict.client for verdict in verdicts if verdict.verdict == receipts.VALID)
    models = []
    for role in Role:
        models.append(_check_store(site, role, dict(valid)))
    assert np.array_equal(*models)
    for name in task.members:
        with closing(site.client(name)) as client:
            assert client.participations() >= valid[name]
            assert client.ledger.verify() or not client.participations()
    counts = {"opened": len(opened), "abandoned": len(events) - len(opened), "submissions opened": sum(valid.values())}
    return counts, {each.round for each in opened}


def _check_store(site: Site, role: Role, valid: dict[str, int]) -> Any:
    """Every round is settled or abandoned; the ledger counts each valid submission once."""
    own, task = site.settings(role), site.task
    ledger = Ledger(own.store, task.digest.hex(), task.terms)
    ledger.verify()
    assert ledger.participations() == valid
    with closing(Store(own.store, task, task.server(role).name)) as store:
        rows = store._connection.execute("SELECT number, status FROM rounds ORDER BY number").fetchall()
        assert {status for _, status in rows} <= {Status.SETTLED.value, Status.ABANDONED.value}
        assert len(rows) == len(store.log()) == len(receipts.read(own.audit_log))
        assert store._connection.execute("SELECT count(*) FROM submissions").fetchone() == (0,)
        return store.model()


def _check_notes(path: Path, opened: set[int]) -> None:
    """Each message of either server had one form, ever; noisy shares were sent in opened rounds alone."""
    sent: dict[tuple[int, str, str], str] = {}
    shared = set()
    for line in path.read_text().splitlines():
        kind, number, what, sender, form = json.loads(line)
        if kind == "sent":
            assert sent.setdefault((number, what, sender), form) == form, f"{sender} sent two {what} in round {number}"
            shared |= {number} if what == "share" else set()
    assert shared == opened


def run(folder: Path, seconds: float, seed: int) -> dict[str, int]:
    """Play and prove; the counts."""
    chaos = Chaos(folder, seed)
    try:
        chaos.play(seconds)
    finally:
        chaos.close()
    return {**dict(sorted(chaos.counts.items())), **prove(chaos)}


if __name__ == "__main__":
    with TemporaryDirectory(prefix="precad-chaos-") as place:
        found = run(Path(place), 60 * float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
        print(json.dumps(found, indent=2))  # noqa: T201
