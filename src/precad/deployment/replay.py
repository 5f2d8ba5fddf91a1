"""One round of one server, replayed from what its store holds (PROTOCOL §4, §6).

States are functions of the round, the kept submissions and the pinned messages. Each is computed on demand, always
with the same result. What is random comes from one secret, which is on the disk before the round's first message: the
nonce, which this server has committed to, and the noise of each outcome. So a disk that is set back to within the
round gives the same challenge, and the same noise to the same sum; one that is set back further gives another nonce,
under which no server takes the submissions. Everything that a sent message depends on is on the disk first.
"""

import json
from dataclasses import asdict
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from precad.deployment import receipts
from precad.deployment.disk import in_words
from precad.deployment.keys import is_signed, sign
from precad.deployment.receipts import Events, Verdict
from precad.deployment.rewind import Anchor
from precad.deployment.store import Kept, Pin, RoundRow, Status, Store, digest_of_theirs
from precad.deployment.task import Task
from precad.deployment.transport import Exchange
from precad.errors import ProtocolError
from precad.mpc import fixed_point, sharing
from precad.mpc.cores import each_on_usable_cores, on_usable_cores
from precad.mpc.prg import Digest, digest
from precad.mpc.secret import Secret
from precad.mpc.single_use import Pins
from precad.privacy.ledger import Ledger
from precad.protocol import digests, states, submission
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Batch, Check, Close, Header, NoisyShare, Nonce, Receipt, Tally, decode, encode
from precad.protocol.params import Validation
from precad.protocol.states import Agreed, Checking, Collecting, Opened, Revealed, Role, Tallied
from precad.protocol.update import Model, next_model
from precad.tables import parse_json


class Replay:
    """A round's messages, own and taken."""

    def __init__(
        self,
        task: Task,
        role: Role,
        key: Ed25519PrivateKey,
        store: Store,
        ledger: Ledger,
        row: RoundRow,
        anchor: Anchor | None,
    ) -> None:
        self._task, self._role, self._key, self._store, self._ledger = task, role, key, store, ledger
        self.number, self._model, self._anchor = row.number, row.model, anchor
        self.round = task.round(row.number, row.model, Digest(self._need(Pin.NONCES)))
        self.headers = {client: decode(raw, Header) for client, raw in store.headers(row.number).items()}
        self.collecting = Collecting(self.round, role, row.selected)
        self._at_once = sharing.at_once(self.round.params.dim)

    def own(self, what: Exchange) -> bytes:
        """This server's message. Once the round is opened, what came before the noisy share is erased."""
        if what not in (Exchange.SHARE, Exchange.RECEIPT) and self._status() in (Status.OPENED, Status.SETTLED):
            raise ProtocolError(f"round {self.number} is opened, and this server's {what.value} erased")
        messages = {
            Exchange.CLOSE: self._own_close,
            Exchange.NONCE: lambda: encode(Nonce(self._agreed.closed, self._agreed.nonce)),
            Exchange.CHECKS: lambda: self._own_checks,
            Exchange.TALLY: self._own_tally,
            Exchange.SHARE: self._own_share,
            Exchange.RECEIPT: self._own_receipt,
        }
        return messages[what]()

    def take(self, what: Exchange, message: bytes) -> None:
        """The other server's message. The same again changes nothing; another one is refused."""
        known = self._store.pinned(self.number, digest_of_theirs(what))
        seen = digest(b"precad exchange", what.value.encode(), message)
        if known is not None:
            if known != seen:
                raise ProtocolError(f"the other server's {what.value} was another before, and there is no second one")
            return
        takers = {
            Exchange.CLOSE: self._take_close,
            Exchange.NONCE: self._take_nonce,
            Exchange.CHECKS: self._take_checks,
            Exchange.TALLY: self._take_tally,
            Exchange.SHARE: self._take_share,
            Exchange.RECEIPT: self._take_receipt,
        }
        takers[what](message, {digest_of_theirs(what): seen})

    def _own_close(self) -> bytes:
        if self._status() is Status.OPEN:
            self._store.advance(self.number, Status.CLOSED)
        return encode(states.close(self.collecting, self.headers.values())[1])

    def _take_close(self, message: bytes, pins: dict[str, bytes]) -> None:
        peer = decode(message, Close)
        if (peer.task, peer.round) != (self.round.task, self.number):
            raise ProtocolError("the other server closes another task or round")
        self._own_close()
        self._store.pin(self.number, pins | {Pin.THEIR_CLOSE: message})

    @cached_property
    def _agreed(self) -> Agreed:
        peer = decode(self._need(Pin.THEIR_CLOSE), Close)
        closing, _ = states.close(self.collecting, self.headers.values())
        return states.agree(closing, peer, own_nonce(self._store, self.number))[0]

    def _take_nonce(self, message: bytes, pins: dict[str, bytes]) -> None:
        states.challenge(self._agreed, decode(message, Nonce))
        self._store.pin(self.number, pins | {Pin.THEIR_NONCE: message})

    @cached_property
    def _checking(self) -> Checking:
        return states.challenge(self._agreed, decode(self._need(Pin.THEIR_NONCE), Nonce))

    @cached_property
    def _own_checks(self) -> bytes:
        clients = sorted(self._checking.headers)
        kept = self._store.kept(self.number, clients)

        def check(each: Kept) -> Blob:
            return Blob(encode(states.check(self._checking, states.restore(self._checking, each.client, each.part))))

        return encode(Batch(tuple(on_usable_cores(check, kept, self._at_once))))

    def _take_checks(self, message: bytes, pins: dict[str, bytes]) -> None:
        own, theirs = decode(self._own_checks, Batch).items, decode(message, Batch).items
        if len(theirs) != len(own):
            raise ProtocolError(f"the other server checks {len(theirs)} submissions, not {len(own)}")
        sizes, valid = submission.check_sizes(self.round.params), []
        for mine, other in zip(own, theirs, strict=True):
            check = decode(mine, Check, **sizes)
            if states.judge(self._checking, check, decode(other, Check, **sizes)):
                valid.append(check.client)
        self._store.pin(self.number, pins | {Pin.VALID: json.dumps(valid).encode()})

    @cached_property
    def _judged(self) -> Checking:
        if self.round.params.validation is Validation.NONE:
            return self._checking
        return states.conclude(self._checking, parse_json(self._need(Pin.VALID)))

    def _own_tally(self) -> bytes:
        known = self._store.pinned(self.number, Pin.OWN_TALLY)
        if known is not None:
            return known
        judged = self._judged
        self._task.check_minimum(len(judged.valid))
        kept = self._store.kept(self.number, sorted(judged.valid))
        accepted = each_on_usable_cores(
            lambda each: states.restore(judged, each.client, each.part), kept, self._at_once
        )
        tallied, tally = states.aggregate(judged, accepted, own_noise(self._store, self.number, states.outcome(judged)))
        self._store.pin(self.number, {Pin.OWN_TALLY: encode(tally), Pin.OWN_SHARE: encode(tallied.opening)})
        return encode(tally)

    @cached_property
    def _tallied(self) -> Tallied:
        tally = decode(self._need(Pin.OWN_TALLY), Tally)
        own = decode(self._need(Pin.OWN_SHARE), NoisyShare, share=self.round.params.dim)
        return Tallied(self.round, self._judged.valid, self._judged.rejected, tally, own, Pins())

    def _take_tally(self, message: bytes, pins: dict[str, bytes]) -> None:
        self._own_tally()
        states.reveal(self._tallied, decode(message, Tally))
        self._store.pin(self.number, pins | {Pin.THEIR_TALLY: message})

    @cached_property
    def _revealed(self) -> Revealed:
        return states.reveal(self._tallied, decode(self._need(Pin.THEIR_TALLY), Tally))[0]

    def _own_share(self) -> bytes:
        """The noisy share. There is no way back from here, and the budget of all in it is charged before it leaves."""
        self._need(Pin.THEIR_TALLY)
        status = self._status()
        if status is Status.CLOSED and self._anchor is not None:
            self._anchor.compare(self._store)
            self._anchor.mark(self.number, self._revealed.opening.outcome)
        if status is Status.CLOSED:
            self._store.advance(self.number, Status.REVEALED)
        if status in (Status.CLOSED, Status.REVEALED):
            with in_words():
                self._ledger.record(self.number, self._revealed.valid)
        return self._need(Pin.OWN_SHARE)

    def _take_share(self, message: bytes, pins: dict[str, bytes]) -> None:
        self._own_share()
        opened = states.finish(self._revealed, decode(message, NoisyShare, share=self.round.params.dim))
        model = self._moved(opened)
        events = json.dumps(asdict(self._events(opened, model_digest(model.theta).hex()))).encode()
        self._store.finish(self.number, model, pins | {Pin.EVENTS: events})

    def _moved(self, opened: Opened) -> Model:
        """The next model. η falls with the rounds that were opened: one that was abandoned has no part in it."""
        training, opened_before = self._task.training, self._store.opened_rounds() - 1
        return next_model(
            self._store.optimised(),
            fixed_point.decode(opened.noisy_sum, self.round.params.fractional_bits),
            self._task.normaliser(opened.valid),
            training.schedule.learning_rate_at(opened_before, training.rounds),
            training.schedule.optimiser,
        )

    def _events(self, opened: Opened, next_model: str) -> Events:
        counts, verdicts = self._ledger.participations(), []
        for client, header in sorted(self._judged.headers.items()):
            found = receipts.VALID if client in opened.valid else opened.rejected[client].reason.value
            verdicts.append(Verdict(client, digests.header(header).hex(), found, counts.get(client, 0)))
        return Events(
            task=self.round.task.hex(),
            round=self.number,
            kind=receipts.OPENED,
            model=self._model.hex(),
            next_model=next_model,
            closed=self._judged.closed.hex(),
            outcome=self._revealed.opening.outcome.hex(),
            verdicts=tuple(verdicts),
        )

    def _own_receipt(self) -> bytes:
        events = receipts.parse_events(self._need(Pin.EVENTS))
        verdicts = tuple(sign(self._key, statement) for statement in events.statements())
        signature = sign(self._key, events.digest)
        head = sign(self._key, receipts.head_of(events))
        return encode(Receipt(self.round.task, self.number, events.digest, signature, verdicts, head))

    def _take_receipt(self, message: bytes, pins: dict[str, bytes]) -> None:
        events, theirs = receipts.parse_events(self._need(Pin.EVENTS)), decode(message, Receipt)
        peer = self._task.server(self._role.other)
        if (theirs.task, theirs.round, theirs.events) != (self.round.task, self.number, events.digest):
            raise ProtocolError(f"server {peer.name} has another record of round {self.number}: compare the audit logs")
        if not is_signed(peer.key, events.digest, theirs.signature):
            raise ProtocolError(f"a receipt that server {peer.name} did not sign")
        statements = events.statements()
        signed = zip(statements, theirs.verdicts, strict=False)
        if len(theirs.verdicts) != len(statements) or not all(is_signed(peer.key, *each) for each in signed):
            raise ProtocolError(f"verdicts that server {peer.name} did not sign")
        if not is_signed(peer.key, receipts.head_of(events), theirs.head):
            raise ProtocolError(f"a head that server {peer.name} did not sign")
        line = receipts.next_line(self._store.last_line(), events, self._key, theirs.signature)
        told = receipts.tell(events, self._key, theirs) if self._role is Role.A else {}
        self._store.settle(self.number, line.as_text(), pins, told)

    def _need(self, what: Pin) -> bytes:
        value = self._store.pinned(self.number, what)
        if value is None:
            raise ProtocolError(f"an exchange of round {self.number} before its time: there is no {what.value} yet")
        return value

    def _status(self) -> Status:
        row = self._store.last_round()
        if row is None or row.number != self.number:
            raise ProtocolError(f"round {self.number} is not the current round")
        return row.status


def own_nonce(store: Store, number: int) -> Secret:
    """This server's half of the challenge of a round that is not over."""
    return Secret(digest(b"precad own nonce", _secret(store, number)))


def own_noise(store: Store, number: int, outcome: Digest) -> Secret:
    """The seed of this server's noise over what is about to be opened: another sum would have another noise."""
    return Secret(digest(b"precad own noise", _secret(store, number), outcome))


def _secret(store: Store, number: int) -> bytes:
    secret = store.pinned(number, Pin.DRAWN)
    if secret is None:
        raise ProtocolError(f"round {number} is over, and this server's secret of it erased")
    return secret
