"""A server's rounds on its store: what A and B do alike (PROTOCOL §4, §6, §10).

An exchange of a round is this server's message, :meth:`Server.own`, and the other's, :meth:`Server.take`. Both may be
repeated, in this process or after a crash: this server repeats its message byte for byte, and refuses a second,
different message of the other server for ever.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import receipts, rewind, sealing
from precad.deployment.disk import SetBackError
from precad.deployment.keys import SIGNATURE_BYTES, Identity, is_signed, sign
from precad.deployment.receipts import Events
from precad.deployment.replay import Replay, own_nonce
from precad.deployment.rewind import Anchor
from precad.deployment.sealing import EpochKey
from precad.deployment.store import Kept, Pin, RoundRow, Status, Store, digest_of_theirs
from precad.deployment.task import Task
from precad.deployment.transport import Exchange
from precad.errors import ProtocolError, Reason, Rejected
from precad.mpc.prg import Digest
from precad.protocol import digests, states, submission
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Head, Header, decode, encode
from precad.protocol.params import Validation
from precad.protocol.states import Role
from precad.protocol.update import Model

T = TypeVar("T")
ROUNDS = 1 << 63
"""The number of a round is below this, or no file could hold it."""


def check_start(task: Task, server: Identity, key: Ed25519PrivateKey, model: NDArray[np.float64]) -> None:
    """Whether these are the key and the initial model that a task gives for a server."""
    if key.public_key().public_bytes_raw() != server.key:
        raise ValueError(f"the key is not the one that the task gives for server {server.name}")
    if model_digest(model) != task.model or model.size != task.bounds.dim:
        raise ValueError("the initial model is not the one that the task names")


class Server:
    """A server of a task. Threads that share one hold its lock. ``durable=False`` is for simulations."""

    role: ClassVar[Role]

    def __init__(
        self,
        task: Task,
        key: Ed25519PrivateKey,
        path: Path,
        model: NDArray[np.float64],
        *,
        anchor: Path | None = None,
        durable: bool = True,
    ) -> None:
        self.task, self._key = task, key
        self.identity, self.peer = task.server(self.role), task.server(self.role.other)
        check_start(task, self.identity, key, model)
        self.store = Store(path, task, self.identity.name, durable=durable)
        self.store.start_from(Model.initial(model, task.training.schedule.optimiser))
        self.ledger = task.open_ledger(path, durable=durable)
        self._anchor = None if anchor is None else Anchor(anchor, task, self.identity)
        self._current: Replay | None = None
        self.lock = threading.RLock()
        """For those who share a server between threads."""
        with self._noting_set_back():
            if self._anchor is not None:
                self._anchor.check(self.store, path)
            self.last()

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def compare_with(self, audit_log: Path) -> None:
        """Refuse to go on if the file of the audit log is ahead of the store."""
        with self._noting_set_back():
            rewind.check_log(audit_log, self.store)

    def write_log(self, audit_log: Path) -> None:
        """Bring the audit log's file up to date, unless it is ahead: a machine may be set back while it runs."""
        with self.lock:
            self.compare_with(audit_log)
            receipts.extend(audit_log, self.store.log)

    def last(self) -> RoundRow | None:
        """The round that was begun last. A store that was set back is a :class:`SetBackError`."""
        found = self.store.set_back()
        if found is not None:
            raise SetBackError(found)
        return self.store.last_round()

    def begin(self, number: int, selected: frozenset[str]) -> RoundRow:
        """Begin a round; one that is not over by then is abandoned, unless this server's noisy share has left."""
        last = self.last()
        if number >= ROUNDS:
            raise ProtocolError(f"a round's number is below 2^63, got {number}")
        if self._anchor is not None:
            with self._noting_set_back():
                self._anchor.compare(self.store)
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
        if self._anchor is not None and self._anchor.has(row.number):
            raise ProtocolError(
                f"the anchor says that round {row.number} was about to be opened: it can only be finished"
            )
        events = Events(task=self.task.digest.hex(), round=row.number, kind=receipts.ABANDONED, model=row.model.hex())
        self.store.abandon(row.number, receipts.next_line(self.store.last_line(), events, self._key).as_text())

    def abandon_round(self, number: int | None = None) -> int:
        """Give up the current round where the protocol allows it, as each server sees it; its number.

        If ``number`` is given, no other round is given up.
        """
        raise NotImplementedError

    def current(self, number: int | None) -> RoundRow:
        """The last round, which must be the one with this number, if one is given."""
        row = self.last()
        if row is None:
            raise ProtocolError("no round is under way")
        if number is not None and row.number != number:
            raise ProtocolError(f"the last round is {row.number}, not {number}: nothing was given up")
        return row

    def within_cap(self, names: frozenset[str]) -> frozenset[str]:
        """Those of the roster whose updates may be opened once more."""
        counts, cap = self.ledger.participations(), self.task.training.participations
        return frozenset(name for name in names if name in self.task.members and counts.get(name, 0) < cap)

    def epoch_key(self, number: int) -> EpochKey:
        """This server's sealing key in a round."""
        epoch = self.task.epoch(number)
        return self.store.epoch_key(epoch, lambda: EpochKey.fresh(self.task, self.identity, epoch, self._key))

    def commitment(self, row: RoundRow) -> Digest:
        """To this server's nonce in a round that is not over."""
        return digests.commit_nonce(own_nonce(self.store, row.number))

    def sign_start(self, row: RoundRow, nonces: Digest) -> Blob:
        """This server's word that a round starts from this model, under these commitments."""
        return sign(self._key, sealing.start_statement(self.task.digest, row.number, row.model, nonces))

    def receive(self, number: int, header: bytes, signature: bytes, sealed: bytes, relayed: bytes) -> Rejected | None:
        """Take in a submission: who sent it, what for, whether the sealed part is its own. None: it is kept."""
        row = self.last()
        if row is None or row.number != number or row.status is not Status.OPEN:
            return Rejected(Reason.LATE)
        if self.store.pinned(number, Pin.NONCES) is None:
            return Rejected(Reason.FOREIGN)
        try:
            head = decode(header, Header)
        except ProtocolError:
            return Rejected(Reason.MALFORMED)
        if head.client not in row.selected:
            return Rejected(Reason.NOT_SELECTED)
        if not is_signed(self.task.members[head.client].identity.key, digests.header(head), signature):
            return Rejected(Reason.SIGNATURE)
        replay = self._replay(row)
        if submission.foreign(replay.round, head.client, head) is not None or not self._remembers(head.head):
            return Rejected(Reason.FOREIGN)
        known = replay.headers.get(head.client)
        if known is not None:
            if encode(known) != header:
                return Rejected(Reason.REPEATED)
            self.store.replace_relayed(number, head.client, relayed)
            return None
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
            with self._noting_set_back(), self.store.together():
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
        if row is not None and row.number == number and row.status is Status.ABANDONED:
            raise ProtocolError(f"server {self.identity.name} has given up round {number}: it can only be given up")
        if row is None or row.number != number:
            raise ProtocolError(f"round {number} is not the current round")
        try:
            with self._noting_set_back():
                return step(self._replay(row))
        except BaseException:
            self._current = None
            raise

    def _replay(self, row: RoundRow) -> Replay:
        if self._current is None or self._current.number != row.number:
            self._current = Replay(self.task, self.role, self._key, self.store, self.ledger, row, self._anchor)
        return self._current

    def _remembers(self, shown: bytes) -> bool:
        """Whether the head that a client shows is none, or this server's own; one that it has forgotten stops it.

        A head is as long as every other: room for the submissions of all clients is what B leaves in a message of A.
        """
        if not shown:
            return True
        try:
            head = decode(shown, Head)
        except ProtocolError:
            return False
        both = head.signature_a, head.signature_b
        own = both[0] if self.role is Role.A else both[1]
        if not is_signed(self.identity.key, receipts.head_statement(self.task.digest, head.round, head.model), own):
            return False
        if rewind.has_forgotten(self.store, head):
            raise SetBackError(f"a client shows that this server has signed the end of round {head.round}")
        return all(len(signature) == SIGNATURE_BYTES for signature in both)

    @contextmanager
    def _noting_set_back(self) -> Iterator[None]:
        """What is found inside is known for ever."""
        try:
            yield
        except SetBackError as error:
            self.store.note_set_back(error.found)
            raise
