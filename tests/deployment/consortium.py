"""All parties of a small task in one process, each with its own file, each of which can be killed and come back."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precad.deployment import receipts
from precad.deployment.client import Client
from precad.deployment.helper import HelperServer
from precad.deployment.leader import Leader
from precad.deployment.parties import Parties
from precad.deployment.transport import Exchange, TransportError
from precad.errors import Rejected
from precad.protocol.states import Role
from tests.deployment import world


class Crash(BaseException):
    """A party is killed. Not an Exception: nothing in the program may handle it."""

    def __init__(self, party: str) -> None:
        self.party = party


class Consortium:
    def __init__(self, folder: Path, setting: Parties | None = None, data: dict[str, Path] | None = None) -> None:
        self.folder, self.world = folder, setting or world.make()
        self.data = data or {}
        """The folders of the clients' data sets' ledgers."""
        self.task = self.world.task
        self.a_process: Leader | None = None
        self.b_process: HelperServer | None = None
        self.client_processes: dict[str, Client] = {}
        self.wire: defaultdict[tuple[int, str, str], set[bytes]] = defaultdict(set)
        """All that was ever sent: (round, what, from) → messages."""
        self.hook: Callable[[str, str], None] = lambda _party, _what: None
        self.tamper: Callable[[int, Exchange, str, bytes], bytes] = lambda _round, _what, _sender, message: message

    @property
    def a(self) -> Leader:
        if self.a_process is None:
            key = self.world.servers[Role.A].signing
            self.a_process = Leader(self.task, key, self.folder / "alpha.db", world.MODEL, self)
        return self.a_process

    @property
    def b(self) -> HelperServer:
        if self.b_process is None:
            self.b_process = HelperServer(
                self.task, self.world.servers[Role.B].signing, self.folder / "beta.db", world.MODEL
            )
        return self.b_process

    def client(self, name: str) -> Client:
        if name not in self.client_processes:
            key = self.world.clients[name].signing
            state = self.folder / f"{name}.db"
            self.client_processes[name] = Client(self.task, name, key, state, data=self.data.get(name))
        return self.client_processes[name]

    def kill(self, party: str) -> None:
        process: Leader | HelperServer | Client | None
        if party == "alpha":
            process, self.a_process = self.a_process, None
        elif party == "beta":
            process, self.b_process = self.b_process, None
        else:
            process = self.client_processes.pop(party, None)
        if process is not None:
            process.close()

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """A's transport to B. If B dies, A sees a connection that broke."""
        self.wire[round_, what.value, "alpha"].add(body)
        self.hook("alpha", f"send {what.value}")
        try:
            answer = self.b.exchange(round_, what, self.tamper(round_, what, "alpha", body))
        except Crash as crash:
            if crash.party != "beta":
                raise
            self.kill("beta")
            raise TransportError("the connection broke") from None
        self.wire[round_, what.value, "beta"].add(answer)
        self.hook("alpha", f"got {what.value}")
        return self.tamper(round_, what, "beta", answer)

    def reply(self, name: str, update: NDArray[np.float64] | None = None) -> bytes:
        told = self.a.told(name)
        if told is not None:
            assert self.client(name).hear(told) == receipts.VALID
        joined = self.client(name).join(self.a.invitation(), self.a.model())
        answer = self.client(name).answer(joined, np.full(world.DIM, 0.5) if update is None else update)
        self.wire[joined.round.number, "reply", name].add(answer)
        return answer

    def collect(self) -> dict[str, Rejected | None]:
        self.a.start_round()
        return {name: self.a.submit(self.reply(name)) for name in sorted(self.a.selected())}

    def round(self) -> NDArray[np.float64]:
        verdicts = self.collect()
        assert all(verdict is None for verdict in verdicts.values()), verdicts
        return self.a.finish_round()

    def rounds_until(self, settled: int, tries: int = 50) -> None:
        """Play until so many rounds are settled, whoever dies."""
        for _ in range(tries):
            try:
                if len(self.a.store.log()) >= settled:
                    return
                self.round()
            except Crash as crash:
                self.kill(crash.party)
            except TransportError:
                continue
        raise AssertionError("no progress")

    def close(self) -> None:
        for party in ("alpha", "beta", *self.world.clients):
            with suppress(Exception):
                self.kill(party)

    def check(self) -> None:
        """What must hold whatever happened: every message had one form, all is counted once, all logs agree."""
        rounds = len(self.a.store.log())
        for (number, what, sender), messages in self.wire.items():
            assert len(messages) == 1, f"{sender} sent {len(messages)} different {what} in round {number}"
        assert np.array_equal(self.a.model(), self.b.store.model())
        counts = dict.fromkeys(self.world.clients, rounds)
        assert self.a.ledger.participations() == counts
        assert self.b.ledger.participations() == counts
        assert self.a.ledger.verify()
        for name in counts:
            assert self.client(name).participations() == rounds
        logs = {name: self.client(name).log() for name in counts}
        receipts.audit(self.task, self.a.store.log(), self.b.store.log(), logs)
