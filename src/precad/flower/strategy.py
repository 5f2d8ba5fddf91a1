"""An app on Flower that plays server A's rounds: a strategy around its own (PROTOCOL §2, §10).

The inner strategy says what training is sent, and sees each new model; who takes part, what is summed and how the
model moves is the protocol's, which server B must be able to repeat.
"""

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

from precad.deployment.attendance import OpenRound
from precad.deployment.client import ASK_BYTES, introduction
from precad.deployment.conductor import Outcome
from precad.deployment.helper import HelperServer
from precad.deployment.keys import is_signed
from precad.deployment.leader import Leader
from precad.deployment.parties import Parties
from precad.deployment.rounds import OwnRounds, RemoteRounds, Rounds
from precad.deployment.task import Task, Training
from precad.errors import Rejected
from precad.files import make_folder, write_file
from precad.flower import wire
from precad.flower.collecting import NEWS_SECONDS, POLL_SECONDS, CollectingGrid
from precad.flower.mod import MARK
from precad.flower.wire import LOG, Layout, vector_of
from precad.protocol.params import Params
from precad.protocol.states import Role

MOST_QUESTIONS = 20
"""To one node, in a run."""


@dataclass(frozen=True)
class ServerA:
    """Server A, as an app reaches it."""

    rounds: Rounds

    @classmethod
    def at(cls, socket: Path) -> "ServerA":
        """The service of server A, `precad server --config a.toml`, at its socket. This process needs no file of A's.

        Raises:
            TransportError: Nobody answers there.
            ProtocolError: Another app plays this task.
        """
        return cls(RemoteRounds(socket))

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
        make_folder(folder, private=True, new=True)
        write_file(folder / MARK, b"")
        records_of = {f"client-{number:04}": records for number in range(bounds.clients)}
        parties = Parties.new(model, bounds, training, records_of, servers=("server-a", "server-b"))
        parties.save(folder)
        key_a, key_b = (parties.servers[role].signing for role in (Role.A, Role.B))
        helper = HelperServer(parties.task, key_b, folder / "b.db", model, durable=False)
        leader = Leader(parties.task, key_a, folder / "a.db", model, helper, durable=False)
        return cls(OwnRounds(leader, folder / "a.audit.log"))


class PrecadStrategy(Strategy):
    """Server A of a task: ``PrecadStrategy(FedAvg(), ServerA.at(Path("/run/alpha.sock")))``.

    Clients evaluate nothing: give ``start`` an ``evaluate_fn``.

    Args:
        inner: The app's own strategy. It must leave the one mean that it is given as it is, as FedAvg and FedProx do;
            the step size is the task's.
        server: Server A: its service, or a simulation.
        patience: The seconds for which a round waits until nodes say which client they are.

    Raises:
        ValueError: The inner strategy changes the model, which both servers must compute alike.
    """

    def __init__(self, inner: Strategy, server: ServerA, *, patience: float = 120.0) -> None:
        if not patience > 0:
            raise ValueError(f"patience must be above 0 seconds, got {patience}")
        self._inner, self._rounds = inner, server.rounds
        self._directory = Directory(server.rounds.task, patience)
        self._planned: tuple[OpenRound, Message] | None = None
        self._taken: dict[int, Rejected | None] = {}
        """What A said of the replies of this round that it has, by their objects."""

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
        """As Flower's own. The initial arrays give names and shapes; the numbers are the task's, or a later round's.

        Raises:
            ValueError: The timeout of a round is not longer than the task's reply time.
        """
        reply_seconds = self._rounds.task.training.reply_seconds
        if not timeout > reply_seconds:
            raise ValueError(f"timeout is {timeout:g} seconds: clients reply after {reply_seconds:g}")
        current = self._shaped(initial_arrays)
        collecting = CollectingGrid(grid, self._take, self._is_over)
        return super().start(collecting, current, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Begin a round with B, and invite the clients that both servers let in."""
        opened = self._rounds.open()
        current = Layout.of(arrays).record(opened.model, np.float32)
        planned = next(iter(self._inner.configure_train(server_round, current, config, grid)), None)
        if planned is None:
            raise ValueError("the inner strategy must send at least one node something to train")
        self._planned, self._taken = (opened, planned), {}
        nodes = self._directory.nodes(grid)
        invited = {name: nodes[name] for name in sorted(opened.selected) if name in nodes}
        LOG.info("round %d of the task: %d clients are invited", opened.number, len(invited))
        return self._invitations(opened, invited, planned)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the submissions, close, validate and open with B; show the next model to the inner strategy."""
        if self._planned is None:
            raise ValueError("no round was configured")
        opened, planned = self._planned
        received = list(replies)
        for reply in received:
            self._take(reply)
        verdicts = Counter(self._taken.values())
        silent, kept = len(received) - verdicts.total(), verdicts.pop(None, 0)
        LOG.info("kept %d submissions, rejected %d; %d clients sent nothing", kept, verdicts.total(), silent)
        for rejected, count in verdicts.items():
            LOG.warning("rejected %d: %s", count, rejected.reason.value if rejected is not None else "")
        if self._rounds.close(opened.number) is Outcome.ABANDONED:
            LOG.warning("round %d of the task is given up, and the model stays as it is", opened.number)
        current = self._shaped(_only_arrays(planned))
        weight = str(getattr(self._inner, "weighted_by_key", "num-examples"))
        content = RecordDict({"arrays": current, "metrics": MetricRecord({weight: 1})})
        shown, metrics = self._inner.aggregate_train(server_round, [Message(content, reply_to=planned)])
        if shown is None or not np.array_equal(vector_of(shown), vector_of(current)):
            raise ValueError(
                f"{type(self._inner).__name__} changes the model that both servers computed: use FedAvg or FedProx"
            )
        return current, metrics

    def _take(self, reply: Message) -> None:
        """Hand a reply to server A, once."""
        if self._planned is None or reply.has_error() or id(reply) in self._taken:
            return
        answer = wire.read(reply, wire.REPLY) or b""
        (self._taken[id(reply)],) = self._rounds.submit(self._planned[0].number, [answer])

    def _is_over(self) -> bool:
        return self._planned is not None and self._rounds.is_over(self._planned[0].number)

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
        task = self._rounds.task
        LOG.info("  ├──> PRECAD: task %s with server %s", task.digest.hex()[:16], task.server_b.name)
        cost, delta = task.epsilon, task.training.delta
        LOG.info("  ├──> a client's cost against a server is at most ε = %.3f at δ = %g", cost, delta)
        self._inner.summary()

    def _shaped(self, arrays: ArrayRecord) -> ArrayRecord:
        """The current model in the shapes of these arrays."""
        return Layout.of(arrays).record(self._rounds.model(), np.float32)

    def _invitations(self, opened: OpenRound, nodes: dict[str, int], planned: Message) -> list[Message]:
        """The inner strategy's message for each client, with the signed model in place of its arrays."""
        signed = Layout.of(_only_arrays(planned)).record(opened.model, np.float64)
        messages = []
        for name, node in nodes.items():
            content = RecordDict(
                {key: signed if isinstance(item, ArrayRecord) else item for key, item in planned.content.items()}
            )
            content[wire.RECORD] = ConfigRecord({wire.INVITATION: opened.invitation})
            told = self._rounds.told(name)
            if told is not None:
                content.config_records[wire.RECORD][wire.TOLD] = told
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
        return messages


class Directory:
    """Which node is which client: a node is asked, and the client signs the answer.

    A node that has not shown who it is, because its process failed or its answer was lost, is asked again in each
    round, up to :data:`MOST_QUESTIONS` times in a run.
    """

    def __init__(self, task: Task, patience: float) -> None:
        self._task, self._patience = task, patience
        self._asked: Counter[int] = Counter()
        self._waiting: dict[str, tuple[int, bytes]] = {}
        self._names: dict[int, str] = {}

    def nodes(self, grid: Grid) -> dict[str, int]:
        """The clients that are there. New nodes are given time to answer; silent ones are not waited for again."""
        present = list(grid.get_node_ids())
        unknown = [node for node in present if node not in self._names and self._asked[node] < MOST_QUESTIONS]
        new = {node for node in unknown if not self._asked[node]}
        self._ask(grid, unknown)
        deadline, said = time.monotonic() + self._patience, 0.0
        self._listen(grid)
        while (awaited := self._awaited() & new) and (left := deadline - time.monotonic()) > 0:
            if time.monotonic() - said > NEWS_SECONDS:
                said = time.monotonic()
                LOG.info("waiting until nodes %s say which client they are, at most %.0f s more", sorted(awaited), left)
            time.sleep(min(left, POLL_SECONDS))
            self._listen(grid)
        if awaited := self._awaited() & new:
            LOG.warning("nodes %s do not say which client they are: they are asked again later", sorted(awaited))
        return {self._names[node]: node for node in present if node in self._names}

    def _awaited(self) -> set[int]:
        return {node for node, _ in self._waiting.values()} - self._names.keys()

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        asked, messages = [(node, secrets.token_bytes(ASK_BYTES)) for node in nodes], []
        for node, ask in asked:
            content = RecordDict({wire.RECORD: ConfigRecord({wire.ASK: ask})})
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
        if nodes:
            self._waiting.update(zip(grid.push_messages(messages), asked, strict=True))
        self._asked.update(nodes)

    def _listen(self, grid: Grid) -> None:
        for reply in grid.pull_messages(list(self._waiting)) if self._waiting else ():
            node, ask = self._waiting.pop(reply.metadata.reply_to_message_id, (0, b""))
            name, proof = wire.read(reply, wire.NAME), wire.read(reply, wire.PROOF)
            member = self._task.members.get((name or b"").decode(errors="replace"))
            statement = introduction(self._task.digest, ask, node)
            if member is None or proof is None or not is_signed(member.identity.key, statement, proof):
                LOG.warning("node %d does not show that it is a client of the task, and is asked again later", node)
                continue
            self._names[node] = member.identity.name


def _only_arrays(message: Message) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ValueError(f"the inner strategy sends {len(records)} records of arrays to train, expected one")
    return records[0]
