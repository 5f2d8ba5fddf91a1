"""What precad puts into Flower's messages: one ConfigRecord, of these keys; and what mod and app say to each other."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message

from precad.deployment.task import Task
from precad.mpc.prg import Digest, digest

RECORD = "precad"

ASK = "ask"
"""A → node: 32 fresh bytes. Which client are you?"""
NAME = "name"
"""Node → A: the client's name in the roster,"""
PROOF = "proof"
"""and its signature of the question: see :func:`introduction`."""

INVITATION = "invitation"
"""A → node: the round, with the model in the message's arrays."""
TOLD = "told"
"""A → node: what became of its last submission."""
REPLY = "reply"
"""Node → A: the sealed submission."""

LOCAL = "precad-local"
"""Mod → app, by record: a ConfigRecord of :class:`LocalTerms`. It never comes from A."""
SUM = "precad-sum"
"""App → mod, by record: an ArrayRecord with the update on the grid. It never leaves the node."""


@dataclass(frozen=True)
class LocalTerms:
    """R, p, f and |D_i|, from the client's own copy of the task."""

    record_bound: float
    record_rate: float
    fractional_bits: int
    records: int

    @classmethod
    def of(cls, task: Task, client: str) -> "LocalTerms":
        """Those of a client."""
        bounds = task.bounds
        return cls(bounds.record_bound, task.training.record_rate, bounds.fractional_bits, task.members[client].records)


def introduction(task: Digest, ask: bytes, node: int) -> Digest:
    """What a client signs to show that a node is its own: else one node could keep another's client out."""
    return digest(b"precad node", task, ask, node.to_bytes(8, "little"))


def read(message: Message, key: str) -> bytes | None:
    """The bytes under a key; None if the message has none there."""
    if message.has_error() or not message.has_content():
        return None
    record = message.content.get(RECORD)
    value = record.get(key) if isinstance(record, ConfigRecord) else None
    return value if isinstance(value, bytes) else None
