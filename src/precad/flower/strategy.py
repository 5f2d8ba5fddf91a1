"""Server A inside a Flower ServerApp: a strategy around an app's own (PROTOCOL §2, §10).

The inner strategy says what training is sent, and sees each new model; who takes part, what is summed and how the
model moves is the protocol's, which server B must be able to repeat.
"""

import logging
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from precad.deployment import config, receipts
from precad.deployment.helper import HelperServer
from precad.deployment.https import HttpTransport
from precad.deployment.keys import is_signed
from precad.deployment.leader import Leader
from precad.deployment.parties import Parties
from precad.deployment.task import Training
from precad.errors import Reason, Rejected
from precad.flower import wire
from precad.flower.mod import MARK
from precad.flower.wire import Layout, vector_of
from precad.protocol.params import Params
from precad.protocol.states import Role

LOG = logging.getLogger("flwr.precad")
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ServerA:
    """Server A with its way to B, and the file of its audit log."""

    leader: Leader
    audit_log: Path

    @classmethod
    def deployed(cls, settings: Path) -> "ServerA":
        """Open server A of an a.toml, with server B where that file says.

        Raises:
            ValueError: The file, the task or the key cannot be read; the message names it.
        """
        own = config.load(settings)
        transport = HttpTransport(own.load_task(), own.host, own.port, own.pair())
        return cls(own.open_leader(transport), own.audit_log)

    @classmethod
    def simulated(
        cls, folder: Path, model: NDArray[np.float64], bounds: Params, training: Training, *, records: int = 1
    ) -> "ServerA":
        """Make both servers and all clients of a new task in one folder: to try out, private for nobody.

        What is written does not wait for the disk.

        Args:
            folder: Where to put everything; a folder of an earlier simulation is made anew.
            model: The initial model: see :func:`vector_of`.
            bounds: The protocol's parameters; ``bounds.clients`` is the number of clients.
            training: The constants of the run.
            records: |D_i| of each client, which counts if the unit is a record.
        """
        if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} holds other things than a simulation, and is not removed")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        (folder / MARK).touch()
        records_of = {f"client-{number:04}": records for number in range(bounds.clients)}
        parties = Parties.new(model, bounds, training, records_of, servers=("server-a", "server-b"))
        parties.save(folder)
        key_a, key_b = (parties.servers[role].signing for role in (Role.A, Role.B))
        helper = HelperServer(parties.task, key_b, folder / "b.db", model, durable=False)
        leader = Leader(parties.task, key_a, folder / "a.db", model, helper, durable=False)
        return cls(leader, folder / "a.audit.log")

    def write_log(self) -> None:
        """Bring the audit log's file up to date."""
        receipts.extend(self.audit_log, self.leader.store.log)


class PrecadStrategy(Strategy):
    """Server A of a task: ``PrecadStrategy(FedAvg(), ServerA.deployed(Path("a.toml")))``.

    Clients evaluate nothing: give ``start`` an ``evaluate_fn``.

    Args:
        inner: The app's own strategy. It must leave the one mean that it is given as it is, as FedAvg and FedProx do;
            the step size is the task's.
        server: Server A, with its way to B.
        patience: The seconds for which the first round waits until new nodes say which client they are.

    Raises:
        ValueError: The inner strategy changes the model, which both servers must compute alike.
    """

    def __init__(self, inner: Strategy, server: ServerA, *, patience: float = 120.0) -> None:
        if not patience > 0:
            raise ValueError(f"patience must be above 0 seconds, got {patience}")
        self._inner, self._server, self._leader = inner, server, server.leader
        self._directory = Directory(server, patience)
        self._planned: Message | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As Flower's own. The initial arrays give names and shapes; the numbers are the task's, or a later round's."""
        current = self._shaped(initial_arrays)
        return super().start(grid, current, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Begin a round with B, and invite the clients that both servers let in."""
        number = self._leader.start_round()
        current = self._shaped(arrays)
        planned = next(iter(self._inner.configure_train(server_round, current, config, grid)), None)
        if planned is None:
            raise ValueError("the inner strategy must send at least one node something to train")
        self._planned = planned
        nodes = self._directory.nodes(grid)
        invited = {name: nodes[name] for name in sorted(self._leader.selected()) if name in nodes}
        LOG.info("round %d of the task: %d clients are invited", number, len(invited))
        return self._invitations(invited, planned)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the submissions, close, validate and open with B; show the next model to the inner strategy."""
        if self._planned is None:
            raise ValueError("no round was configured")
        received = list(replies)
        answers = [reply for reply in received if not reply.has_error()]
        with self._leader.all_or_none():
            verdicts = Counter(self._submit(reply) for reply in answers)
        silent = len(received) - len(answers)
        LOG.info("kept %d submissions; %d clients sent nothing", verdicts.pop(None, 0), silent)
        for rejected, count in verdicts.items():
            LOG.warning("rejected %d: %s", count, rejected.reason.value if rejected is not None else "")
        self._leader.finish_round()
        self._server.write_log()
        current = self._shaped(_only_arrays(self._planned))
        weight = str(getattr(self._inner, "weighted_by_key", "num-examples"))
        content = RecordDict({"arrays": current, "metrics": MetricRecord({weight: 1})})
        shown, metrics = self._inner.aggregate_train(server_round, [Message(content, reply_to=self._planned)])
        if shown is None or not np.array_equal(vector_of(shown), vector_of(current)):
            raise ValueError(
                f"{type(self._inner).__name__} changes the model that both servers computed: use FedAvg or FedProx"
            )
        return current, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: a client's evaluation would be in the clear."""
        del server_round, arrays, config, grid
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        del server_round, replies
        return None

    def summary(self) -> None:
        """Log the task, and the inner strategy's summary."""
        task = self._leader.task
        LOG.info("\t├──> PRECAD: task %s with server %s", task.digest.hex()[:16], task.server_b.name)
        cost, delta = task.epsilon, task.training.delta
        LOG.info("\t├──> a client's cost against a server is at most ε = %.3f at δ = %g", cost, delta)
        self._inner.summary()

    def _shaped(self, arrays: ArrayRecord) -> ArrayRecord:
        """The current model in the shapes of these arrays."""
        return Layout.of(arrays).record(self._leader.model(), np.float32)

    def _invitations(self, nodes: dict[str, int], planned: Message) -> list[Message]:
        """The inner strategy's message for each client, with the signed model in place of its arrays."""
        invitation = self._leader.invitation()
        signed = Layout.of(_only_arrays(planned)).record(self._leader.model(), np.float64)
        messages = []
        for name, node in nodes.items():
            content = RecordDict(
                {key: signed if isinstance(item, ArrayRecord) else item for key, item in planned.content.items()}
            )
            content[wire.RECORD] = ConfigRecord({wire.INVITATION: invitation})
            told = self._leader.told(name)
            if told is not None:
                content.config_records[wire.RECORD][wire.TOLD] = told
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
        return messages

    def _submit(self, reply: Message) -> Rejected | None:
        sealed = wire.read(reply, wire.REPLY)
        return Rejected(Reason.MALFORMED) if sealed is None else self._leader.submit(sealed)


class Directory:
    """Which node is which client: a node is asked once, and the client signs the answer."""

    def __init__(self, server: ServerA, patience: float) -> None:
        self._task, self._patience = server.leader.task, patience
        self._asked: set[int] = set()
        self._waiting: dict[str, tuple[int, bytes]] = {}
        self._names: dict[int, str] = {}

    def nodes(self, grid: Grid) -> dict[str, int]:
        """The clients that are there. New nodes are given time to answer; silent ones are not waited for again."""
        present = list(grid.get_node_ids())
        new = self._ask(grid, [node for node in present if node not in self._asked])
        deadline = time.monotonic() + self._patience
        self._listen(grid)
        while new & self._waiting.keys() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            self._listen(grid)
        return {self._names[node]: node for node in present if node in self._names}

    def _ask(self, grid: Grid, nodes: list[int]) -> set[str]:
        asked, messages = [(node, secrets.token_bytes(32)) for node in nodes], []
        for node, ask in asked:
            content = RecordDict({wire.RECORD: ConfigRecord({wire.ASK: ask})})
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
        sent = dict(zip(grid.push_messages(messages), asked, strict=True)) if nodes else {}
        self._asked.update(nodes)
        self._waiting.update(sent)
        return set(sent)

    def _listen(self, grid: Grid) -> None:
        for reply in grid.pull_messages(list(self._waiting)) if self._waiting else ():
            node, ask = self._waiting.pop(reply.metadata.reply_to_message_id, (0, b""))
            name, proof = wire.read(reply, wire.NAME), wire.read(reply, wire.PROOF)
            member = self._task.members.get((name or b"").decode(errors="replace"))
            statement = wire.introduction(self._task.digest, ask, node)
            if member is None or proof is None or not is_signed(member.identity.key, statement, proof):
                LOG.warning("node %d does not show that it is a client of the task", node)
                continue
            self._names[node] = member.identity.name


def _only_arrays(message: Message) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ValueError(f"the inner strategy sends {len(records)} records of arrays to train, expected one")
    return records[0]
