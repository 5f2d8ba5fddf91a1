"""What must hold after a storm: by the books of all parties, by the marks of both anchors, by the logs; and what a
server says whose disk is set back then.
"""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from signal import Signals

from precad.deployment import receipts
from precad.deployment.store import Status
from precad.protocol.states import Role
from tests.deployment import chaos
from tests.deployment.storm_parties import FLOWER, NATIVE
from tests.deployment.storm_site import StormSite
from tests.deployment.storm_watch import Watch

SECONDS = 90.0
"""For a round to end, and for a server to say that it was set back."""
AFTERWARDS = 10.0
"""Seconds for which nothing is opened, after that."""
SET_BACK = "this server's store was set back, and must not be used"
OVER = {Status.SETTLED.value, Status.ABANDONED.value}


def settle(site: StormSite) -> None:
    """No app and no client any more; the round under way is finished, or given up, as an operator does."""
    site.leave()
    deadline = time.monotonic() + SECONDS
    while True:
        state = _state(site, Role.A)
        if state in OVER or state == Status.OPEN.value:
            site.end("server-a", Signals.SIGTERM)
            if _state(site, Role.A) in OVER | {Status.OPEN.value}:
                break
            site.begin("server-a")
        assert time.monotonic() < deadline, f"the last round does not end: it is {state}"
        time.sleep(0.2)
    site.end("server-b", Signals.SIGTERM)
    for role in Role:
        if _state(site, role) not in OVER:
            _precad("abandon", "--config", str(site.site.settings_file(role)))


def prove(site: StormSite, watch: Watch) -> dict[str, int]:
    """All that must hold; else an ``AssertionError``. What there was of it."""
    counts, opened = chaos.prove_books(site.site)
    task = site.site.task
    for role in Role:
        own, name = site.site.settings(role), f"{task.server(role).name}-{task.digest.hex()[:16]}"
        assert own.anchor is not None
        marks = {path.name for path in own.anchor.iterdir()} - {f"{name}-begun"}
        assert marks == {f"{name}-{number}" for number in opened}, "a noisy share left, and its round was not opened"
    watch.look()
    assert len(set(watch.opened)) == len(watch.opened), "a round was opened twice"
    assert set(watch.opened) <= opened, "a round that was opened is lost"
    events = [receipts.parse(line).events for line in receipts.read(site.site.settings(Role.A).audit_log)]
    counted = [verdict.client for each in events for verdict in each.verdicts if verdict.verdict == receipts.VALID]
    for kind, names in (("native clients", NATIVE), ("clients on Flower", FLOWER)):
        counts[f"submissions of {kind} opened"] = sum(client in names for client in counted)
    return {**counts, "lines about a full disk": watch.full, "longest time without a line, s": round(watch.longest)}


class SetBack:
    """The disk of one server, as it was at an earlier time. The seed says whose, and if its audit log goes with it."""

    def __init__(self, site: StormSite, seed: int) -> None:
        self._site, self._role = site, Role.B if seed % 2 == 0 else Role.A
        self._with_log = seed // 2 % 2 == 1
        self.name = f"server-{self._role.name.lower()}"
        self._copy = site.folder / "earlier"

    @property
    def copied(self) -> bool:
        """Whether there is a copy."""
        return self._copy.exists()

    def copy(self) -> None:
        """Keep the files of a server that does not run."""
        self._copy.mkdir()
        for path in self._files():
            shutil.copy2(path, self._copy)

    def play(self) -> dict[str, int]:
        """Put the files back and start all again: the server refuses, now and the next time, and nothing opens."""
        for path in self._files():
            path.unlink()
        for path in self._copy.iterdir():
            shutil.copy2(path, self._site.volumes[self._role].folder)
        before = self._opened()
        others = [f"client-{name}" for name in NATIVE]
        for name in ["server-b", "server-a", *others]:
            self._site.begin(name)
        self._hear_refusal()
        self._site.begin(self.name)
        self._hear_refusal()
        time.sleep(AFTERWARDS)
        assert self._opened() == before, "a round was opened after a disk was set back"
        assert _state(self._site, self._role).startswith(SET_BACK)
        what = "store with its audit log" if self._with_log else "store"
        return {f"refusals of {self.name}, whose {what} was set back": 2}

    def _hear_refusal(self) -> None:
        """The server ends with its sentence."""
        deadline = time.monotonic() + SECONDS
        while self._site.runs(self.name):
            assert time.monotonic() < deadline, f"{self.name} runs on a disk that was set back"
            time.sleep(0.2)
        last = re.sub(r"\s+", " ", self._site.last_words(self.name))
        assert SET_BACK in last, last

    def _opened(self) -> list[int]:
        return [self._site.site.settings(role).status()["rounds opened"] for role in Role]

    def _files(self) -> list[Path]:
        own = self._site.site.settings(self._role)
        stores = [
            path for path in own.store.parent.glob(f"{own.store.name}*") if path.suffix not in (".lock", ".control")
        ]
        return [*stores, *([own.audit_log] if self._with_log else [])]


def _state(site: StormSite, role: Role) -> str:
    return str(site.site.settings(role).status()["state"])


def _precad(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "precad", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
