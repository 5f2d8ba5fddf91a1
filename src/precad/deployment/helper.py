"""Server B: it answers A, and trusts nothing that A could have changed (PROTOCOL §10)."""

from precad.deployment import sealing
from precad.deployment.keys import is_signed
from precad.deployment.server import Server
from precad.deployment.store import Pin, RoundRow, Status
from precad.deployment.transport import Exchange
from precad.errors import ProtocolError, Rejected
from precad.protocol import digests
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Batch, Begin, Begun, Relayed, decode, encode
from precad.protocol.states import Role


class HelperServer(Server):
    """Server B of a task: in one process with A, it is A's :class:`precad.deployment.transport.Transport` itself."""

    role = Role.B
    rejections: tuple[Rejected, ...] = ()
    """Of the last batch of submissions, for the operator's log."""

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """The answer to a message of A: the same bytes to the same message, a ``ProtocolError`` to another."""
        with self.lock:
            if what is Exchange.BEGIN:
                return self._begin(round_, body)
            if what is Exchange.SUBMISSIONS:
                return self._submissions(round_, body)
            if what not in self.exchanges():
                raise ProtocolError(f"this task has no exchange of {what.value}")
            self.take(round_, what, body)
            return self.own(round_, what)

    def abandon_round(self, number: int | None = None) -> int:
        """Give up the current round, if A cannot have let its noisy share out: A does so only with B's tally."""
        with self.lock:
            row = self.current(number)
            if row.status is Status.CLOSED and self.taken(row.number, Exchange.TALLY):
                raise ProtocolError(
                    f"round {row.number} is tallied, and server {self.peer.name} may have opened its share: it can "
                    "only be finished"
                )
            self.abandon(row)
            return row.number

    def _begin(self, number: int, body: bytes) -> bytes:
        begin = decode(body, Begin)
        if begin.task != self.task.digest:
            raise ProtocolError(f"server {self.peer.name} runs another task: compare `precad task digest`")
        if begin.round != number:
            raise ProtocolError(f"a message about round {begin.round} sent for round {number}")
        statement = sealing.start_statement(begin.task, number, begin.model, begin.nonce)
        if not is_signed(self.peer.key, statement, begin.signature):
            raise ProtocolError(f"server {self.peer.name} did not sign the model and its nonce")
        row = self.last()
        if row is None or row.number != number:
            row = self._begin_anew(number, begin)
        return self._pinned_answer(row, begin, body)

    def _begin_anew(self, number: int, begin: Begin) -> RoundRow:
        own = model_digest(self.store.model())
        if begin.model != own:
            raise ProtocolError(
                f"server {self.peer.name} starts round {number} from model {begin.model.hex()[:16]}…, "
                f"server {self.identity.name} has {own.hex()[:16]}…: one of them may have a store that was set back"
            )
        return self.begin(number, self.within_cap(frozenset(begin.selected)))

    def _pinned_answer(self, row: RoundRow, begin: Begin, body: bytes) -> bytes:
        """The answer that was pinned with A's message, or a new one. A sealing key is not part of what may vary."""
        known = self.store.pinned(row.number, Pin.BEGUN)
        if known is None:
            if row.model != begin.model or row.status is not Status.OPEN:
                raise ProtocolError(f"round {row.number} was begun from another model, or is over")
            announced = Blob(self.epoch_key(row.number).announced)
            selected = tuple(sorted(row.selected.intersection(begin.selected)))
            own = self.commitment(row)
            nonces = digests.nonces(begin.nonce, own)
            signature = self.sign_start(row, nonces)
            known = encode(Begun(self.task.digest, row.number, row.model, own, signature, selected, announced))
            self.store.pin(row.number, {Pin.BEGIN: body, Pin.BEGUN: known, Pin.NONCES: nonces})
        self.store.pin(row.number, {Pin.BEGIN: body})
        return known

    def _submissions(self, number: int, body: bytes) -> bytes:
        """Each submission that A relays is taken or not, by itself. What B holds, its Close says."""
        relayed = [decode(item, Relayed) for item in decode(body, Batch).items]
        with self.all_or_none():
            verdicts = [self.receive(number, each.header, each.signature, each.part, b"") for each in relayed]
        self.rejections = tuple(verdict for verdict in verdicts if verdict is not None)
        return encode(Batch(()))
