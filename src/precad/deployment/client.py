"""A client of a task: what it refuses, what it counts, and what it sends (PROTOCOL §9).

Its state is one SQLite file. A round is counted, and the reply stored, before the reply is given out: asked again, in
this process or after a crash, it gives the same bytes.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import receipts, sealing
from precad.deployment.disk import claim, connect, in_words, transaction
from precad.deployment.keys import is_signed
from precad.deployment.receipts import Events, Verdict
from precad.deployment.task import Task
from precad.errors import PrecadError, ProtocolError
from precad.mpc.prg import Digest
from precad.privacy import clipping
from precad.privacy.ledger import Ledger
from precad.protocol import digests, submission
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Header, Invitation, Sealed, Told, decode, encode
from precad.protocol.params import Round


class RefusedError(PrecadError):
    """What a client does not do, and why. Nothing was sent."""


@dataclass(frozen=True)
class Joined:
    """An invitation that was found to be in order: its round, and the keys to seal to."""

    round: Round
    sealing_a: bytes
    sealing_b: bytes
    reply: bytes | None
    """What was answered before: to be sent again, with no new training."""


class Client:
    """One client of a task. It is not for use by several threads at once.

    Args:
        task: The client's own copy of the task.
        name: Its name in the roster.
        key: Its signing key.
        path: The file of its state, which is made if it does not exist.
        durable: False does not wait for the disk, for simulations.

    Raises:
        ValueError: The name or the key is not in the roster, or the task costs more than its budget.
    """

    def __init__(self, task: Task, name: str, key: Ed25519PrivateKey, path: Path, *, durable: bool = True) -> None:
        if name not in task.members:
            raise ValueError(f"{name} is not in the task's roster")
        if key.public_key().public_bytes_raw() != task.members[name].identity.key:
            raise ValueError(f"the key is not the one that the roster gives for {name}")
        self.task, self.name, self._key = task, name, key
        self._connection = connect(path, durable=durable)
        claim(self._connection, path, "state", task, name, _SCHEMA)
        with in_words():
            self.ledger = Ledger(path, task.digest.hex(), task.terms, durable=durable)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def join(self, invitation: bytes, model: NDArray[np.float64]) -> Joined:
        """Check an invitation and the model that came with it, before any training.

        Raises:
            RefusedError: One is not in order, or this client's budget is spent; nothing was counted or sent.
        """
        try:
            message = decode(invitation, Invitation)
            if message.task != self.task.digest:
                raise ProtocolError("an invitation to another task than the one that was joined")
            statement = sealing.model_statement(message.task, message.round, message.model)
            both = ((self.task.server_a, message.signature_a), (self.task.server_b, message.signature_b))
            for server, signature in both:
                if not is_signed(server.key, statement, signature):
                    raise ProtocolError(f"server {server.name} did not sign the model of round {message.round}")
            epoch = self.task.epoch(message.round)
            sealing_a = sealing.check_announced(self.task, self.task.server_a, epoch, message.sealing_a)
            sealing_b = sealing.check_announced(self.task, self.task.server_b, epoch, message.sealing_b)
        except ProtocolError as error:
            raise RefusedError(str(error)) from None
        if not _is_model(model, message.model):
            raise RefusedError(f"the model is not the one that both servers signed for round {message.round}")
        with in_words():
            reply = self._answered(message.round, message.model)
        if reply is None:
            self._check_cap(message.round)
        return Joined(self.task.round(message.round, message.model), sealing_a, sealing_b, reply)

    def answer(self, joined: Joined, update: NDArray[np.floating]) -> bytes:
        """Clip an update to C, split, seal, count and store it. What was answered stays so.

        Returns:
            The reply for server A.

        Raises:
            RefusedError: The update holds a NaN or an infinity; nothing was counted or sent.
        """
        bounds = self.task.bounds
        if joined.reply is not None:
            return joined.reply
        try:
            x = clipping.encode_clipped(update, bounds.client_bound, bounds.fractional_bits)
            sent = submission.submit(joined.round, self.name, x)
        except ValueError as error:
            raise RefusedError(f"the update cannot be sent: {error}") from None
        part_a = sealing.seal(joined.sealing_a, sent.part_a, sent.header, self.task.server_a)
        part_b = sealing.seal(joined.sealing_b, sent.part_b, sent.header, self.task.server_b)
        reply = Sealed(Blob(sent.header), sealing.sign_header(self._key, sent.header), part_a, part_b)
        return self._count_and_store(joined.round, decode(sent.header, Header), encode(reply))

    def hear(self, message: bytes) -> str:
        """The verdict on a submission that this client sent, if both servers signed it; it is logged once."""
        try:
            told = decode(message, Told)
        except ProtocolError as error:
            raise RefusedError(str(error)) from None
        sent = [receipts.parse(line).events for line in self.log(told.round)]
        own = Verdict(self.name, told.header.hex(), told.verdict, self.participations())
        if told.task != self.task.digest or not sent or sent[0].verdicts[0].header != own.header:
            raise RefusedError(f"a verdict on a submission that this client did not send in round {told.round}")
        events = replace(sent[0], kind=receipts.TOLD, next_model=told.next_model.hex(), verdicts=(own,))
        statement = receipts.verdict_statement(events, own)
        for server, signature in ((self.task.server_a, told.signature_a), (self.task.server_b, told.signature_b)):
            if not is_signed(server.key, statement, signature):
                raise RefusedError(f"server {server.name} did not sign the verdict on round {told.round}")
        if len(sent) == 1:
            with transaction(self._connection):
                self._append(events)
        return told.verdict

    def participations(self) -> int:
        """In how many rounds this client has sent."""
        with in_words():
            return self.ledger.participations().get(self.name, 0)

    def log(self, round_: int | None = None) -> list[str]:
        """The audit log, or its lines on a round: what this client sent, and nothing about others."""
        lines = "SELECT line FROM log WHERE round = coalesce(?, round) ORDER BY number"
        with in_words():
            return [line for (line,) in self._connection.execute(lines, (round_,))]

    def _append(self, events: Events) -> None:
        """Add a line to the log, inside a transaction."""
        last = self._connection.execute("SELECT line FROM log ORDER BY number DESC LIMIT 1").fetchone()
        line = receipts.next_line(None if last is None else last[0], events, self._key).as_text()
        self._connection.execute("INSERT INTO log (round, line) VALUES (?, ?)", (events.round, line))

    def _answered(self, number: int, model: Digest) -> bytes | None:
        """What was answered in this round, if it was; a round before the last is refused."""
        last = self._connection.execute("SELECT round, model, reply FROM sent ORDER BY round DESC").fetchone()
        if last is None or number > last[0]:
            return None
        if number < last[0]:
            raise RefusedError(f"round {number} is over: round {last[0]} was answered")
        if model != last[1]:
            raise RefusedError(f"round {number} was answered for another model")
        return bytes(last[2])

    def _check_cap(self, number: int) -> None:
        cap = self.task.training.participations
        with in_words():
            spent = self.participations() >= cap
            counted = spent and any(entry.round == number for entry in self.ledger.entries())
        if spent and not counted:
            raise RefusedError(f"this client has taken part {cap} times, which is its budget: it sits out")

    def _count_and_store(self, round_: Round, header: Header, reply: bytes) -> bytes:
        """Count first: a crash in between costs nothing, as the same round is counted once.

        If another process of this client was faster, its reply stands.
        """
        with in_words():
            self.ledger.record(round_.number, [self.name])
        verdict = Verdict(self.name, digests.header(header).hex(), receipts.SENT, self.participations())
        task, model = round_.task.hex(), round_.model.hex()
        events = Events(task=task, round=round_.number, kind=receipts.SENT, model=model, verdicts=(verdict,))
        with transaction(self._connection):
            known = self._answered(round_.number, round_.model)
            if known is not None:
                return known
            self._connection.execute("DELETE FROM sent")
            self._connection.execute("INSERT INTO sent VALUES (?, ?, ?)", (round_.number, round_.model, reply))
            self._append(events)
        return reply


def _is_model(model: NDArray[np.float64], expected: Digest) -> bool:
    try:
        return model_digest(model) == expected
    except ValueError:
        return False


_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS sent (round INTEGER PRIMARY KEY, model BLOB NOT NULL, reply BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS log (
        number INTEGER PRIMARY KEY AUTOINCREMENT, round INTEGER NOT NULL, line TEXT NOT NULL)""",
)
