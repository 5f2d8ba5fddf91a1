"""A server's rounds on its store: what A and B do alike (PROTOCOL §4, §6, §10).

An exchange of a round is this server's message, :meth:`Server.own`, and the other's, :meth:`Server.take`. Both may be
repeated, in this process or after a crash: a message's bytes never vary, and another message of the other server is
refused for ever.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import receipts, sealing
from precad.deployment.keys import is_signed, sign
from precad.deployment.receipts import Events
from precad.deployment.replay import Replay
from precad.deployment.sealing import EpochKey
from precad.deployment.store import Kept, RoundRow, Status, Store, digest_of_theirs
from precad.deployment.task import Task
from precad.deployment.transport import Exchange
from precad.errors import ProtocolError, Reason, Rejected
from precad.privacy.ledger import Ledger
from precad.protocol import digests, states, submission
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Header, decode, encode
from precad.protocol.params import Validation
from precad.protocol.states import Role
from precad.protocol.update import Model

T = TypeVar("T")


class Server:
    """A server of a task. Not for use by several threads at once. ``durable=False`` is for simulations."""

    role: ClassVar[Role]

    def __init__(
        self, task: Task, key: Ed25519PrivateKey, path: Path, model: NDArray[np.float64], *, durable: bool = True
    ) -> None:
        self.task, self._key = task, key
        self.identity, self.peer = task.server(self.role), task.server(self.role.other)
        if key.public_key().public_bytes_raw() != self.identity.key:
            raise ValueError(f"the key is not the one that the task gives for server {self.identity.name}")
        if model_digest(model) != task.model or model.size != task.bounds.dim:
            raise ValueError("the initial model is not the one that the task names")
        self.store = Store(path, task, self.identity.name, durable=durable)
        self.store.start_from(Model.initial(model, task.training.schedule.optimiser))
        self.ledger = Ledger(path, task.digest.hex(), task.terms, durable=durable)
        self._current: Replay | None = None

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def last(self) -> RoundRow | None:
        """The round that was begun last."""
        return self.store.last_round()

    def begin(self, number: int, selected: frozenset[str]) -> RoundRow:
        """Begin a round; one that is not over by then is abandoned, unless this server's noisy share has left."""
        last = self.last()
        if last is not None:
            if number <= last.number:
                raise ProtocolError(f"round {number} is not after round {last.number}")
            if last.status in (Status.REVEALED, Status.OPENED):
                raise ProtocolError(f"round {last.number} is not settled: it must be, before another begins")
            if last.status in (Status.OPEN, Status.CLOSED):
                self.abandon(last)
        if self.store.opened_rounds() >= self.task.training.rounds:
            raise ProtocolError(f"all {self.task.training.rounds} rounds of the task were opened")
        return self.store.begin(number, selected)

    def abandon(self, row: RoundRow) -> None:
        """Give up a round whose noisy share has not left, and destroy its submissions; the model stays."""
        if row.status not in (Status.OPEN, Status.CLOSED):
            raise ProtocolError(f"round {row.number} is {row.status.value} and cannot be abandoned")
        events = Events(task=self.task.digest.hex(), round=row.number, kind=receipts.ABANDONED, model=row.model.hex())
        self.store.abandon(row.number, receipts.next_line(self.store.last_line(), events, self._key).as_text())

    def within_cap(self, names: frozenset[str]) -> frozenset[str]:
        """Those of the roster whose updates may be opened once more."""
        counts, cap = self.ledger.participations(), self.task.training.participations
        return frozenset(name for name in names if name in self.task.members and counts.get(name, 0) < cap)

    def epoch_key(self, number: int) -> EpochKey:
        """This server's sealing key in a round."""
        epoch = self.task.epoch(number)
        return self.store.epoch_key(epoch, lambda: EpochKey.fresh(self.task, self.identity, epoch, self._key))

    def sign_model(self, row: RoundRow) -> Blob:
        """This server's word that a round starts from this model."""
        return sign(self._key, sealing.model_statement(self.task.digest, row.number, row.model))

    def receive(self, number: int, header: bytes, signature: bytes, sealed: bytes, relayed: bytes) -> Rejected | None:
        """Take in a submission: who sent it, what for, whether the sealed part is its own. None: it is kept."""
        row = self.last()
        if row is None or row.number != number or row.status is not Status.OPEN:
            return Rejected(Reason.LATE)
        try:
            head = decode(header, Header)
        except ProtocolError:
            return Rejected(Reason.MALFORMED)
        if head.client not in row.selected:
            return Rejected(Reason.NOT_SELECTED)
        if not is_signed(self.task.members[head.client].identity.key, digests.header(head), signature):
            return Rejected(Reason.SIGNATURE)
        replay = self._replay(row)
        if submission.foreign(replay.round, head.client, head) is not None:
            return Rejected(Reason.FOREIGN)
        known = replay.headers.get(head.client)
        if known is not None:
            return None if encode(known) == header else Rejected(Reason.REPEATED)
        part = sealing.unseal(self.epoch_key(number).private, sealed, header, self.identity)
        if part is None:
            return Rejected(Reason.SEAL)
        received = states.receive(replay.collecting, head.client, header, part, known)
        if isinstance(received, Rejected):
            return received
        self.store.keep(number, Kept(head.client, header, signature, part, relayed), digests.header(head))
        replay.headers[head.client] = received.header
        return None

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """The submissions that are received inside are on the disk together."""
        try:
            with self.store.together():
                yield
        except BaseException:
            self._current = None
            raise

    def exchanges(self) -> list[Exchange]:
        """What the servers exchange after the submissions."""
        wanted = list(Exchange)[2:]
        if self.task.bounds.validation is Validation.NONE:
            wanted.remove(Exchange.CHECKS)
        return wanted

    def taken(self, number: int, what: Exchange) -> bool:
        """Whether the other server's message in an exchange was taken."""
        return self.store.pinned(number, digest_of_theirs(what)) is not None

    def own(self, number: int, what: Exchange) -> bytes:
        """This server's message in an exchange."""
        return self._guarded(number, lambda replay: replay.own(what))

    def take(self, number: int, what: Exchange, message: bytes) -> None:
        """The other server's message in an exchange, checked against this server's own, then pinned."""
        self._guarded(number, lambda replay: replay.take(what, message))

    def _guarded(self, number: int, step: Callable[[Replay], T]) -> T:
        """A step of the current round. If it fails, the next begins from the store again."""
        row = self.last()
        if row is None or row.number != number or row.status is Status.ABANDONED:
            raise ProtocolError(f"round {number} is not the current round")
        try:
            return step(self._replay(row))
        except BaseException:
            self._current = None
            raise

    def _replay(self, row: RoundRow) -> Replay:
        if self._current is None or self._current.number != row.number:
            self._current = Replay(self.task, self.role, self._key, self.store, self.ledger, row)
        return self._current
