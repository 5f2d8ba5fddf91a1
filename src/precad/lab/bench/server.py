"""Server B under load, over HTTPS with mutual TLS on the loopback: one large round, and a soak of many small ones.

Server A and the clients are in this process, on files of their own; B is a process of its own, as its operator runs it.
The clients' time is not counted. At the end nothing may be missing: every submission has a verdict that both servers
signed, both have the same model, both ledgers count every submission once, and the audit logs agree.
"""

import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from precad.deployment import receipts
from precad.deployment.client import Client
from precad.deployment.leader import Leader
from precad.deployment.parties import Parties
from precad.deployment.store import Store
from precad.deployment.task import Training
from precad.deployment.transport import Exchange, Transport
from precad.errors import PrecadError
from precad.lab.processes import Memory, ServerB, Site, free_port
from precad.protocol.digests import model_digest
from precad.protocol.params import Params, Unit
from precad.protocol.states import Role
from precad.protocol.update import Schedule

LOAD = (1, 200, 122_570)
SOAK = (1_000, 10, 1_000)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one run showed. Memory is B's, resident, in MiB."""

    rounds: int
    clients: int
    dim: int
    round_s: float
    """Both servers' time for a round, the mean: from its beginning to the signed receipt."""
    server_b_s: float
    """How long A waited for B in it: B's work, HTTP and TLS."""
    server_b_submissions_per_s: float
    round_s_first_tenth: float
    round_s_last_tenth: float
    mib_start: float
    mib_tenth: float
    mib_end: float
    mib_peak: float
    submissions: int
    verdicts: int
    """Verdicts *valid*, signed by both servers, that the clients heard: as many as submissions, or the run fails."""
    audit: str


def run(load: tuple[int, int, int] = LOAD, soak: tuple[int, int, int] = SOAK) -> dict[str, dict[str, object]]:
    """Both runs, each given as rounds, clients and d."""
    return {"load": asdict(measure(*load)), "soak": asdict(measure(*soak))}


def measure(rounds: int, clients: int, dim: int) -> Figures:
    """So many rounds in which all clients submit."""
    for name, value in (("rounds", rounds), ("clients", clients), ("dim", dim)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if sys.platform != "linux":
        raise PrecadError(f"this benchmark reads memory from /proc, which {sys.platform} does not have")
    with TemporaryDirectory(prefix="precad-bench-") as folder:
        site, server = make_site(Path(folder), dim, clients, rounds), ServerB(Path(folder))
        with server.running(), site.transport() as transport:
            driven = _Driven(site, server, transport)
            driven.play(rounds)
        audited = _check_books(site, driven)
        driven.leader.close()
        return driven.figures(audited)


def make_site(folder: Path, dim: int, clients: int, rounds: int, client_rate: float = 1.0) -> Site:
    """The folders of two servers and of the clients, each of which may take part in every round."""
    bounds = Params(
        dim=dim, clients=clients, record_bound=1.0, client_bound=1.0, noise_multiplier=1000.0, unit=Unit.CLIENT
    )
    training = Training(
        client_rate=client_rate,
        record_rate=1.0,
        rounds=rounds,
        schedule=Schedule(learning_rate=1.0),
        delta=1e-5,
        budget=10.0,
        participations=rounds,
    )
    records = {f"client-{number:04}": 1 for number in range(clients)}
    Parties.new(np.zeros(dim), bounds, training, records).save_apart(folder, free_port())
    return Site(folder)


class _Timed:
    """A's way to B, with a watch."""

    def __init__(self, transport: Transport) -> None:
        self._transport, self.seconds = transport, 0.0

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """See :class:`Transport`."""
        start = time.perf_counter()
        try:
            return self._transport.exchange(round_, what, body)
        finally:
            self.seconds += time.perf_counter() - start


class _Driven:
    """Server A and the clients."""

    def __init__(self, site: Site, server: ServerB, transport: Transport) -> None:
        self._site, self._server, self._way = site, server, _Timed(transport)
        self.leader: Leader = site.settings(Role.A).open_leader(self._way)
        self.seconds: list[float] = []
        self.memory: list[Memory] = [server.memory()]
        self.submissions = self.verdicts = 0

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            replies, spent = self._collect()
            start = time.perf_counter()
            for reply in replies:
                verdict = self.leader.submit(reply)
                if verdict is not None:
                    raise PrecadError(f"server A rejected an honest submission: {verdict.reason.value}")
            self.leader.finish_round()
            self.seconds.append(spent + time.perf_counter() - start)
            self.memory.append(self._server.memory())
        for name in self._site.task.members:
            with closing(self._site.client(name)) as client:
                self._hear(client)

    def _collect(self) -> tuple[list[bytes], float]:
        """Begin a round; all replies, and the servers' seconds alone."""
        start = time.perf_counter()
        self.leader.start_round()
        invitation, model = self.leader.invitation(), self.leader.model()
        spent, replies = time.perf_counter() - start, []
        for name in sorted(self.leader.selected()):
            with closing(self._site.client(name)) as client:
                self._hear(client)
                replies.append(client.answer(client.join(invitation, model), np.full(model.size, 1e-3)))
        self.submissions += len(replies)
        return replies, spent

    def _hear(self, client: Client) -> None:
        told = self.leader.told(client.name)
        if told is not None:
            self.verdicts += client.hear(told) == receipts.VALID

    def figures(self, audited: str) -> Figures:
        rounds, task = len(self.seconds), self._site.task
        tenth = max(1, rounds // 10)
        return Figures(
            rounds=rounds,
            clients=len(task.roster),
            dim=task.bounds.dim,
            round_s=float(np.mean(self.seconds)),
            server_b_s=self._way.seconds / rounds,
            server_b_submissions_per_s=self.submissions / self._way.seconds,
            round_s_first_tenth=float(np.mean(self.seconds[:tenth])),
            round_s_last_tenth=float(np.mean(self.seconds[-tenth:])),
            mib_start=self.memory[0].now,
            mib_tenth=self.memory[tenth].now,
            mib_end=self.memory[-1].now,
            mib_peak=self.memory[-1].peak,
            submissions=self.submissions,
            verdicts=self.verdicts,
            audit=audited,
        )


def _check_books(site: Site, driven: _Driven) -> str:
    """Nothing is missing and nothing counts twice; else a :class:`PrecadError`. What the audit says."""
    task, rounds, own = site.task, len(driven.seconds), site.settings(Role.B)
    with closing(Store(own.store, task, task.server_b.name)) as store:
        log_b, model_b = receipts.read(own.audit_log), model_digest(store.model())
        written = store.log()
    expected = dict.fromkeys(task.members, rounds)
    ledger_b = task.open_ledger(own.store)
    checks = {
        "a submission has no verdict": driven.submissions == driven.verdicts == rounds * len(task.roster),
        "the servers have different models": model_digest(driven.leader.model()) == model_b,
        "server A's ledger miscounts": driven.leader.ledger.participations() == expected,
        "server B's ledger miscounts": ledger_b.participations() == expected,
        "server B's audit log is not what its store holds": log_b == written,
    }
    for fault, fine in checks.items():
        if not fine:
            raise PrecadError(f"{fault} after {rounds} rounds")
    ledger_b.verify()
    return receipts.audit(task, driven.leader.store.log(), log_b, {})
