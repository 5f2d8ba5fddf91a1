"""Server A: it selects, invites, collects, and drives each round with B (PROTOCOL §2, §10).

The caller brings the network to the clients. Every method may be called again after a crash, and goes on from the
store.
"""

import secrets
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import sealing
from precad.deployment.keys import SIGNATURE_BYTES, is_signed
from precad.deployment.server import Server
from precad.deployment.store import Pin, RoundRow, Status
from precad.deployment.task import Task, TooFewError
from precad.deployment.transport import Exchange, Transport, submission_limit
from precad.errors import ProtocolError, Reason, Rejected
from precad.protocol import digests
from precad.protocol.codec import Blob
from precad.protocol.messages import Batch, Begin, Begun, Invitation, Relayed, Sealed, decode, encode
from precad.protocol.states import Role


class Leader(Server):
    """Server A of a task."""

    role = Role.A

    def __init__(
        self,
        task: Task,
        key: Ed25519PrivateKey,
        path: Path,
        model: NDArray[np.float64],
        transport: Transport,
        *,
        anchor: Path | None = None,
        durable: bool = True,
    ) -> None:
        super().__init__(task, key, path, model, anchor=anchor, durable=durable)
        self._transport = transport

    def model(self) -> NDArray[np.float64]:
        """The current model."""
        return self.store.model()

    def start_round(self) -> int:
        """Begin the next round, or go on with the one that is open; its number.

        A round that was closed is finished first, or given up if it has too few valid submissions; who cannot wait for
        B abandons it, if its noisy share has not left.
        """
        row = self.last()
        if row is not None and row.status in (Status.CLOSED, Status.REVEALED, Status.OPENED):
            self.end_round()
            row = self.last()
        if row is None or row.status is not Status.OPEN:
            row = self.begin(0 if row is None else row.number + 1, self.select())
        self._agree_on_start(row)
        return row.number

    def select(self) -> frozenset[str]:
        """Poisson selection: each client with probability q, independently, if its budget allows another round."""
        rate, generator = self.task.training.client_rate, secrets.SystemRandom()
        return self.within_cap(frozenset(name for name in self.task.members if generator.random() < rate))

    def selected(self) -> frozenset[str]:
        """The clients to invite: those that both servers let in. For A's eyes only."""
        return frozenset(self._begun(self._open_round().number).selected)

    def invitation(self) -> bytes:
        """What every selected client gets with the model: the same bytes for all."""
        row = self._open_round()
        begun, own = self._begun(row.number), Blob(self.epoch_key(row.number).announced)
        nonces = self.commitment(row), begun.nonce
        both = self.sign_start(row, digests.nonces(*nonces)), begun.signature
        return encode(Invitation(self.task.digest, row.number, row.model, *nonces, *both, own, begun.sealing))

    def submit(self, message: bytes) -> Rejected | None:
        """A client's reply. A bad one is a :class:`Rejected` and costs nobody else anything; None: it is kept."""
        if len(message) > submission_limit(self.task):
            return Rejected(Reason.MALFORMED)
        try:
            sealed = decode(message, Sealed)
        except ProtocolError:
            return Rejected(Reason.MALFORMED)
        if len(sealed.part_b) != sealing.PART_B_BYTES + sealing.OVERHEAD or len(sealed.signature) != SIGNATURE_BYTES:
            return Rejected(Reason.MALFORMED)
        row = self.last()
        relayed = encode(Relayed(sealed.header, sealed.signature, sealed.part_b))
        with self.all_or_none():
            return self.receive(
                -1 if row is None else row.number, sealed.header, sealed.signature, sealed.part_a, relayed
            )

    def finish_round(self) -> NDArray[np.float64]:
        """Close the round, validate, open, settle; the next model.

        Raises:
            TooFewError: The round has fewer valid submissions than the task's minimum, and can only be abandoned.
        """
        row = self.last()
        if row is None or row.status in (Status.ABANDONED, Status.SETTLED):
            raise ProtocolError("no round is under way")
        number = row.number
        if row.status in (Status.OPEN, Status.CLOSED):
            headers = self.store.headers(number)
            self.task.check_minimum(len(headers))
            self.own(number, Exchange.CLOSE)
            kept = self.store.kept(number, headers)
            relayed = Batch(tuple(Blob(each.relayed) for each in kept))
            self._transport.exchange(number, Exchange.SUBMISSIONS, encode(relayed))
        for what in self.exchanges():
            if not self.taken(number, what):
                self.take(number, what, self._transport.exchange(number, what, self.own(number, what)))
        return self.model()

    def end_round(self) -> TooFewError | None:
        """Finish the round, or give it up if it has too few valid submissions, and say so."""
        try:
            self.finish_round()
        except TooFewError as error:
            self.abandon_round()
            return error
        return None

    def told(self, client: str) -> bytes | None:
        """What became of a client's last submission, signed by both servers, for that client alone."""
        return self.store.told(client)

    def abandon_round(self, number: int | None = None) -> int:
        """Give up the current round, if its noisy share has not left; B does the same when the next one begins."""
        row = self.current(number)
        self.abandon(row)
        return row.number

    def _open_round(self) -> RoundRow:
        row = self.last()
        if row is None or row.status is not Status.OPEN:
            raise ProtocolError("no round is open")
        return row

    def _agree_on_start(self, row: RoundRow) -> None:
        """Both sign the model and both commitments; B may let in fewer clients. The first answer of B stands."""
        number = row.number
        if self.store.pinned(number, Pin.BEGUN) is not None:
            return
        own, selected = self.commitment(row), tuple(sorted(row.selected))
        begin = Begin(self.task.digest, number, row.model, own, self.sign_start(row, own), selected)
        answer = self._transport.exchange(number, Exchange.BEGIN, encode(begin))
        begun = decode(answer, Begun)
        if (begun.task, begun.round, begun.model) != (self.task.digest, number, row.model):
            raise ProtocolError(f"server {self.peer.name} begins another task, round or model")
        nonces = digests.nonces(own, begun.nonce)
        statement = sealing.start_statement(self.task.digest, number, row.model, nonces)
        if not is_signed(self.peer.key, statement, begun.signature):
            raise ProtocolError(f"server {self.peer.name} did not sign the model and both nonces")
        if not row.selected.issuperset(begun.selected):
            raise ProtocolError(f"server {self.peer.name} lets in clients that were not selected")
        sealing.check_announced(self.task, self.peer, self.task.epoch(number), begun.sealing)
        self.store.pin(number, {Pin.BEGUN: answer, Pin.NONCES: nonces})

    def _begun(self, number: int) -> Begun:
        answer = self.store.pinned(number, Pin.BEGUN)
        if answer is None:
            raise ProtocolError(f"server {self.peer.name} has not begun round {number}")
        return decode(answer, Begun)
