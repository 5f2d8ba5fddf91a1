"""A storm over both kinds of clients: kills, freezes, loss, full disks, a second app, and at last a disk set back.

``python -m tests.deployment.storm MINUTES [SEED]`` runs both servers, native clients, a SuperLink, SuperNodes and one
app after the other as their operators do. It proves at the end that nothing was lost or opened twice and that no log
fell silent, sets a server's disk back, sees it refuse, and prints the counts.
"""

import json
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from precad.protocol.states import Role
from tests.deployment import storm_proof
from tests.deployment.storm_proof import SetBack
from tests.deployment.storm_proxy import Mood
from tests.deployment.storm_site import StormSite
from tests.deployment.storm_watch import FULL, Watch

GAP = 4.0
"""Seconds between two mishaps, the mean."""
STEP = 0.2
"""Seconds between two looks at everything."""
SECOND_SECONDS = 90.0
"""Of a second app."""
CALM_SECONDS, CALM_ROUNDS = 400.0, 2
"""After the storm, so many rounds open within this time. It is the bound of every other wait too."""
KINDS = ("server-a", "server-b", "client", "keeper", "node", "superlink")
"""Of the services, each of which is killed as often as the others."""
OURS = ("server-", "client-", "keeper-")
"""The processes whose logs may not fall silent; all others are Flower's."""
REFUSED = "another app plays this task"
KEPT = re.compile(r"kept [1-9]\d* submissions")
"""What an app says of its clients' replies."""


@dataclass(frozen=True)
class Apps:
    """One after the other."""

    rounds: int
    seconds: float
    """An app that takes longer is ended."""
    pause: float
    """Seconds between two of them, at most: native clients play alone."""


STORMY, CALM = Apps(3, 120.0, 10.0), Apps(1000, 900.0, 1.0)


class Storm:
    """The weather over a site."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self.site = StormSite(folder, seed)
        self.watch = Watch(folder, [name for name in self.site.services if name.startswith(OURS)])
        self.counts: Counter[str] = Counter()
        self.set_back = SetBack(self.site, seed)
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._down: set[str] = set()
        self._deck: list[Callable[[], None]] = []
        self._apps, self._next_app = STORMY, 0.0
        self._deadlines: dict[str, float] = {}
        """Of each app that runs."""

    def play(self, seconds: float) -> None:
        """Mishaps at random times; after a third of the time the disk is copied that will be set back."""
        self.site.start()
        begun = time.monotonic()
        upset = begun + GAP
        while (now := time.monotonic()) < begun + seconds:
            self._step()
            if now > upset and self.watch.opened:
                self._draw()
                upset = now + self._generator.exponential(GAP)
            if now > begun + seconds / 3 and not self.set_back.copied and self.set_back.name not in self._down:
                self._kill(self.set_back.name)
                self.set_back.copy()

    def calm(self) -> None:
        """Everything is whole and starts again: rounds open, a second app is refused, and the first one goes on."""
        self._later.clear()
        for role in Role:
            self.site.lines[role].turn(Mood.GOOD)
            self.site.volumes[role].free()
        self.site.leave()
        self.site.end_all()
        if not self.set_back.copied:
            self.set_back.copy()
        self._deadlines.clear()
        self._down.clear()
        for name in self.site.services:
            self.site.begin(name)
        self._apps, self._next_app = CALM, 0.0
        wanted = len(self.watch.opened) + CALM_ROUNDS
        self._until(lambda: len(self.watch.opened) >= wanted, "rounds open")
        self._until(lambda: self.watch.plays, "an app plays")
        self._until(lambda: bool(KEPT.search(self.site.log(f"app-{self.counts['apps']}"))), "its clients take part")
        refused = self.counts["second apps refused"]
        self._second_app()
        self._until(lambda: self.counts["second apps refused"] > refused, "a second app is refused")
        wanted = len(self.watch.opened) + 1
        self._until(lambda: len(self.watch.opened) >= wanted, "the first app's round is opened")
        assert self.watch.plays, "the first app has gone, as a second one came"

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + CALM_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"in the calm, not within {CALM_SECONDS:g} s: {what}"
            self._step()

    def _step(self) -> None:
        """What is due happens; what has ended starts again; the logs are read."""
        now = time.monotonic()
        due = [act for when, act in self._later if when <= now]
        self._later = [each for each in self._later if each[0] > now]
        for act in due:
            act()
        for name in self.site.services:
            if name not in self._down and not self.site.runs(name):
                self._ended(name)
        self._tend_apps(now)
        self.watch.look()
        time.sleep(STEP)

    def _ended(self, name: str) -> None:
        """A server may end by itself if its disk is full as it starts, and Flower's processes may; they start again."""
        words = self.site.last_words(name)
        may = not name.startswith(OURS) or (name.startswith("server-") and FULL.search(words))
        assert may, f"{name} has ended by itself: {words[-2000:]}"
        self.counts[f"{name} ended by itself"] += 1
        self._restart(name)

    def _restart(self, name: str) -> None:
        def begin() -> None:
            self._down.discard(name)
            self.site.begin(name)

        self._down.add(name)
        self._in(self._generator.uniform(0.2, 4), begin)

    def _tend_apps(self, now: float) -> None:
        """One app after the other; what became of those that ended, or took too long."""
        for name, deadline in [*self._deadlines.items()]:
            if self.site.runs(name) and now < deadline:
                continue
            self.site.end(name)
            del self._deadlines[name]
            was_refused = REFUSED in self.site.log(name)
            kind = "apps" if name.startswith("app") else "second apps"
            self.counts[f"{kind} {'refused' if was_refused else 'that ended' if now < deadline else 'too slow'}"] += 1
            if name.startswith("app"):
                self._next_app = now + self._generator.uniform(0, self._apps.pause)
        if now > self._next_app and not any(name.startswith("app") for name in self._deadlines):
            self._start_app("app", self._apps.rounds, self._apps.seconds)

    def _start_app(self, kind: str, rounds: int, seconds: float) -> None:
        self.counts[f"{kind}s"] += 1
        name = f"{kind}-{self.counts[f'{kind}s']}".replace(" ", "-")
        self.site.begin_app(name, rounds)
        self._deadlines[name] = time.monotonic() + seconds

    def _draw(self) -> None:
        """One mishap of a shuffled deck, so that each comes soon."""
        if not self._deck:
            kills = [partial(self._kill_one, kind) for kind in KINDS]
            disks = [partial(self._fill, role) for role in Role]
            others = [self._kill_app, self._second_app, *[self._freeze] * 4, *[self._lose] * 4]
            deck = [*kills, *disks, *others]
            self._deck = [deck[place] for place in self._generator.permutation(len(deck))]
        self._deck.pop()()

    def _of_kind(self, kind: str) -> list[str]:
        return [name for name in self.site.services if name.startswith(kind) and name not in self._down]

    def _kill_one(self, kind: str) -> None:
        if names := self._of_kind(kind):
            self._kill(names[self._generator.integers(len(names))])

    def _kill(self, name: str) -> None:
        self.counts[f"kills of {name}"] += 1
        self.site.end(name)
        self._restart(name)

    def _kill_app(self) -> None:
        self.counts["kills of apps"] += self.site.send("superlink", signal.SIGKILL, apps=True) > 0

    def _freeze(self) -> None:
        names = ["app", *self._of_kind("")]
        name = names[self._generator.integers(len(names))]
        owner, is_app = ("superlink", True) if name == "app" else (name, False)
        if self.site.send(owner, signal.SIGSTOP, apps=is_app):
            self.counts[f"freezes of {name}"] += 1
            self._in(self._generator.uniform(1, 8), lambda: self.site.send(owner, signal.SIGCONT))

    def _lose(self) -> None:
        role = [*Role][self._generator.integers(2)]
        mood = [Mood.CUTTING, Mood.STALLED, Mood.REFUSING][self._generator.integers(3)]
        self.counts[f"line to {role.name}: {mood.value}"] += 1
        self.site.lines[role].turn(mood)
        self._in(self._generator.uniform(1, 8), lambda: self.site.lines[role].turn(Mood.GOOD))

    def _fill(self, role: Role) -> None:
        volume = self.site.volumes[role]
        if not volume.is_own:
            self.counts["full disks not tried: no file system can be mounted here"] += 1
            return
        self.counts[f"full disks of {role.name}"] += 1
        volume.fill()
        self._in(self._generator.uniform(3, 10), partial(self._make_room, role))

    def _make_room(self, role: Role) -> None:
        """The operator makes room, and then waits for the server's next attempt or starts it again."""
        self.site.volumes[role].free()
        name = f"server-{role.name.lower()}"
        if name not in self._down and self._generator.random() < 0.5:
            self.counts[f"restarts of {name}"] += 1
            self.site.end(name, signal.SIGTERM)
            self._restart(name)

    def _second_app(self) -> None:
        """As soon as a first one plays."""
        if self.watch.plays:
            self._start_app("second app", 1, SECOND_SECONDS)
        else:
            self._in(1.0, self._second_app)

    def _in(self, seconds: float, act: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, act))


def run(folder: Path, seconds: float, seed: int) -> dict[str, int]:
    """Play, prove, set a disk back; the counts."""
    storm = Storm(folder, seed)
    with storm.site.open():
        storm.play(seconds)
        begun = time.monotonic()
        storm.calm()
        storm.counts["seconds of the calm"] = round(time.monotonic() - begun)
        storm_proof.settle(storm.site)
        assert not storm.watch.silences, storm.watch.silences
        found = storm_proof.prove(storm.site, storm.watch)
        found |= storm.set_back.play()
    return {**dict(sorted(storm.counts.items())), **found}


def main() -> None:
    """The program, until its end or Ctrl-C. The folder, with all logs, is kept if something does not hold."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    folder = Path(mkdtemp(prefix="precad-storm-"))
    print(folder, file=sys.stderr)  # noqa: T201
    found = run(folder, 60 * float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    shutil.rmtree(folder)
    print(json.dumps(found, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
