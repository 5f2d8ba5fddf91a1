"""A client of a task: what it refuses, what it counts, and what it sends (PROTOCOL §9).

Its state is one SQLite file. A round is counted, and the reply stored, before the reply is given out: asked again, in
this process or after a crash, it gives the same bytes.
"""

import logging
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from precad.deployment import receipts, sealing
from precad.deployment.data_file import Mark
from precad.deployment.data_ledger import DataLedger, SpentError
from precad.deployment.disk import OWNER, claim, connect, in_words, transaction
from precad.deployment.keys import is_signed, sign
from precad.deployment.receipts import Events, Verdict
from precad.deployment.task import Task
from precad.errors import PrecadError, ProtocolError
from precad.mpc.prg import Digest, digest
from precad.privacy import clipping
from precad.protocol import digests, submission
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Head, Header, Invitation, Sealed, Told, decode, encode
from precad.protocol.params import Round

LOG = logging.getLogger("precad.client")
ASK_BYTES = 32
"""Of the question by which server A asks a node of Flower who it is."""


class RefusedError(PrecadError):
    """What a client does not do, and why. Nothing was sent."""


class ForGoodError(RefusedError):
    """A refusal that no later attempt mends."""

    exit_code = 1


class SpentOutError(ForGoodError):
    """A client that has taken part as often as it may."""


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
        durable: False does not wait for the disk, for simulations: in these the time of a reply need not be hidden.
        data: The folder of its data set's ledger, of `precad data new`: every round that it joins is counted there too.

    Raises:
        ValueError: The name or the key is not in the roster, the task costs more than its budget, or it samples
            records and names no reply time.
    """

    def __init__(
        self,
        task: Task,
        name: str,
        key: Ed25519PrivateKey,
        path: Path,
        *,
        durable: bool = True,
        data: Path | None = None,
    ) -> None:
        if name not in task.members:
            raise ValueError(f"{name} is not in the task's roster")
        if key.public_key().public_bytes_raw() != task.members[name].identity.key:
            raise ValueError(f"the key is not the one that the roster gives for {name}")
        if durable:
            task.check_reply_time()
        self.task, self.name, self._key, self._data = task, name, key, data
        self._connection = connect(path, _SCHEMA, durable=durable)
        claim(self._connection, path, "state", task, name, _SCHEMA)
        with in_words():
            self.ledger = task.open_ledger(path, durable=durable)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def introduce(self, ask: bytes, node: int) -> bytes:
        """The proof that a node of Flower is this client's, for a question of server A's."""
        if len(ask) != ASK_BYTES or not 0 <= node < 1 << 64:
            raise RefusedError(f"a question of {len(ask)} bytes for node {node}: it must have {ASK_BYTES}")
        return bytes(sign(self._key, introduction(self.task.digest, ask, node)))

    def join(self, invitation: bytes, model: NDArray[np.float64]) -> Joined:
        """Check an invitation and the model that came with it, before any training: see :meth:`join_model`."""
        return self.join_model(invitation, _digest_of(model))

    def join_model(self, invitation: bytes, model: Digest | None) -> Joined:
        """Check an invitation, and the digest of the model that came with it; None for what is no model.

        A round that is joined is counted in the ledger of the data set, if there is one; asked again, it counts once.

        Raises:
            RefusedError: One is not in order, or a budget, this client's or its data's, is spent; nothing was counted
                or sent.
            StoreError: The ledger of the data set is not the one of before, or has forgotten something.
        """
        try:
            message = decode(invitation, Invitation)
            if message.task != self.task.digest:
                raise ProtocolError("an invitation to another task than the one that was joined")
            nonces = digests.nonces(message.nonce_a, message.nonce_b)
            statement = sealing.start_statement(message.task, message.round, message.model, nonces)
            both = ((self.task.server_a, message.signature_a), (self.task.server_b, message.signature_b))
            for server, signature in both:
                if not is_signed(server.key, statement, signature):
                    raise ProtocolError(f"server {server.name} did not sign the model of round {message.round}")
            epoch = self.task.epoch(message.round)
            sealing_a = sealing.check_announced(self.task, self.task.server_a, epoch, message.sealing_a)
            sealing_b = sealing.check_announced(self.task, self.task.server_b, epoch, message.sealing_b)
        except ProtocolError as error:
            raise RefusedError(str(error)) from None
        if model != message.model:
            raise RefusedError(f"the model is not the one that both servers signed for round {message.round}")
        round_ = self.task.round(message.round, message.model, nonces)
        with in_words():
            reply = self._answered(round_)
        if reply is None:
            self._check_cap(message.round)
            self._count_for_the_data(message.round)
        return Joined(round_, sealing_a, sealing_b, reply)

    def answer(self, joined: Joined, update: NDArray[np.floating], zeros: Sealed | None = None) -> bytes:
        """Clip an update to C, split, seal, count and store it. What was answered stays so.

        An update that is not a finite vector of the model's length is replaced by zeros, and the log says so: a client
        that stayed silent would tell of its records.

        Args:
            joined: What is answered.
            update: Any float vector.
            zeros: What to send if it cannot be sealed: training may have used up the process's memory, or its files.

        Returns:
            The reply for server A.
        """
        if joined.reply is not None:
            return joined.reply
        try:
            sent = self.seal(joined, self._encoded(update))
        except Exception:
            if zeros is None:
                raise
            LOG.exception("an update of zeros is sent in place of one that cannot be sealed")
            sent = zeros
        return self._count_and_store(joined.round, decode(sent.header, Header), encode(sent))

    def seal(self, joined: Joined, x: NDArray[np.int64]) -> Sealed:
        """A submission of an update on the grid, split and sealed to both servers. Nothing is counted or stored."""
        sent = submission.submit(joined.round, self.name, x, head=self._head())
        part_a = sealing.seal(joined.sealing_a, sent.part_a, sent.header, self.task.server_a)
        part_b = sealing.seal(joined.sealing_b, sent.part_b, sent.header, self.task.server_b)
        return Sealed(Blob(sent.header), sealing.sign_header(self._key, sent.header), part_a, part_b)

    def seal_zeros(self, joined: Joined) -> Sealed:
        """A submission of zeros, to fall back on, or to time."""
        return self.seal(joined, np.zeros(self.task.bounds.dim, np.int64))

    def _encoded(self, update: NDArray[np.floating]) -> NDArray[np.int64]:
        bounds = self.task.bounds
        try:
            x = clipping.encode_clipped(update, bounds.client_bound, bounds.fractional_bits)
            if x.shape != (bounds.dim,):
                raise ValueError(f"expected {bounds.dim} entries, got {x.size}")
        except Exception as error:
            LOG.error("an update of zeros is sent in place of one that cannot be: %s", error)
            return np.zeros(bounds.dim, np.int64)
        return x

    def rehearsed(self) -> float | None:
        """The seconds that a rehearsal of a round took; None before there was one."""
        with in_words():
            row = self._connection.execute("SELECT seconds FROM rehearsal").fetchone()
        return None if row is None else float(row[0])

    def note_rehearsal(self, seconds: float) -> None:
        """Keep what a rehearsal took."""
        with transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO rehearsal VALUES (0, ?)", (seconds,))

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
        head = receipts.head_of(events)
        signed = (
            (self.task.server_a, told.signature_a, told.head_a),
            (self.task.server_b, told.signature_b, told.head_b),
        )
        for server, signature, head_signature in signed:
            if not (is_signed(server.key, statement, signature) and is_signed(server.key, head, head_signature)):
                raise RefusedError(f"server {server.name} did not sign the verdict on round {told.round}")
        if len(sent) == 1:
            heard = encode(Head(told.round, told.next_model, told.head_a, told.head_b))
            with transaction(self._connection):
                self._append(events)
                self._connection.execute("INSERT OR REPLACE INTO heard VALUES (0, ?)", (heard,))
        return told.verdict

    def last_heard(self) -> int:
        """The last round whose verdict this client knows; -1 if it knows of none."""
        head = self._head()
        return decode(head, Head).round if head else -1

    def last_sent(self) -> int:
        """The last round that this client has answered; -1 if there is none."""
        with in_words():
            (last,) = self._connection.execute("SELECT max(round) FROM sent").fetchone()
        return -1 if last is None else int(last)

    def _head(self) -> Blob:
        """The last head that both servers signed, for the next header: a server that has forgotten it will notice."""
        with in_words():
            row = self._connection.execute("SELECT head FROM heard").fetchone()
        return Blob(b"" if row is None else row[0])

    def participations(self) -> int:
        """In how many rounds this client has sent."""
        with in_words():
            return self.ledger.participations().get(self.name, 0)

    def log(self, round_: int | None = None) -> list[str]:
        """The audit log, or its lines on a round: what this client sent, and nothing about others."""
        lines = "SELECT line FROM log WHERE round = coalesce(?, round) ORDER BY number"
        with in_words():
            return [line for (line,) in self._connection.execute(lines, (round_,))]

    def write_log(self, path: Path) -> None:
        """Bring the audit log's file up to date. The state holds the log too: the file may wait, a reply may not."""
        try:
            receipts.write(path, self.log())
        except Exception:
            LOG.exception("the file of the audit log was not written")

    def _append(self, events: Events) -> None:
        """Add a line to the log, inside a transaction."""
        last = self._connection.execute("SELECT line FROM log ORDER BY number DESC LIMIT 1").fetchone()
        line = receipts.next_line(None if last is None else last[0], events, self._key).as_text()
        self._connection.execute("INSERT INTO log (round, line) VALUES (?, ?)", (events.round, line))

    def _answered(self, round_: Round) -> bytes | None:
        """What was answered in this round, if it was; a round before the last, or begun a second time, is refused."""
        last = self._connection.execute("SELECT round, reply FROM sent ORDER BY round DESC").fetchone()
        if last is None or round_.number > last[0]:
            return None
        if round_.number < last[0]:
            raise RefusedError(
                f"round {round_.number} is over: this client has answered round {last[0]}. If the servers have not "
                "come so far, their stores were set back"
            )
        reply = bytes(last[1])
        header = decode(decode(reply, Sealed).header, Header)
        if (header.model, header.nonces) != (round_.model, round_.nonces):
            raise RefusedError(
                f"round {round_.number} was answered for another model, or under other nonces: a server began it twice"
            )
        return reply

    def _check_cap(self, number: int) -> None:
        cap = self.task.training.participations
        with in_words():
            spent = self.participations() >= cap
            counted = spent and any(entry.round == number for entry in self.ledger.entries())
        if spent and not counted:
            raise SpentOutError(f"this client has taken part {cap} times, which is its budget: it sits out")

    def _count_for_the_data(self, number: int) -> None:
        """Count a round in the data set's ledger before training, so that nothing can stand against it afterwards."""
        row = self._connection.execute("SELECT data, number, link FROM data").fetchone()
        mark = None if row is None else Mark(*row)
        if self._data is None:
            if mark is not None:
                raise RefusedError(f"this client's rounds are counted in the data set's ledger {mark.data}: name it")
            return
        with closing(DataLedger(self._data)) as ledger:
            ledger.adopt(self.task, self.name, [entry.round for entry in self.ledger.entries()], mark)
            try:
                ledger.count(self.task, self.name, number)
            except SpentError as error:
                raise ForGoodError(str(error)) from None
            finally:
                with transaction(self._connection):
                    self._connection.execute("INSERT OR REPLACE INTO data VALUES (0, ?, ?, ?)", astuple(ledger.mark()))

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
            known = self._answered(round_)
            if known is not None:
                return known
            self._connection.execute("DELETE FROM sent")
            self._connection.execute("INSERT INTO sent VALUES (?, ?)", (round_.number, reply))
            self._append(events)
        return reply


def introduction(task: Digest, ask: bytes, node: int) -> Digest:
    """What a client signs to show that a node of Flower is its own: else one node could keep another's client out."""
    return digest(b"precad node", task, ask, node.to_bytes(8, "little"))


def _digest_of(model: NDArray[np.float64]) -> Digest | None:
    try:
        return model_digest(model)
    except ValueError:
        return None


_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS rehearsal (id INTEGER PRIMARY KEY CHECK (id = 0), seconds REAL NOT NULL)",
    """CREATE TABLE IF NOT EXISTS data (
        id INTEGER PRIMARY KEY CHECK (id = 0), data TEXT NOT NULL, number INTEGER NOT NULL, link TEXT NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS sent (round INTEGER PRIMARY KEY, reply BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS heard (id INTEGER PRIMARY KEY CHECK (id = 0), head BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS log (
        number INTEGER PRIMARY KEY AUTOINCREMENT, round INTEGER NOT NULL, line TEXT NOT NULL)""",
)
BESIDE_LEDGER = (OWNER, *_SCHEMA)
"""What a client's file holds beside its ledger."""
