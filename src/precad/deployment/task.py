"""The task: what all parties agree on before the first round, in one file, with one digest (PROTOCOL §9, §10).

Everything that is signed, sealed or hashed in a run is bound to that digest. To change anything, a parameter, a
client, a key, is to begin a new task, with a new ledger.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.arrays import read_array
from precad.deployment.keys import Identity, IdentityTable
from precad.errors import ProtocolError
from precad.files import words_of, write_file
from precad.mpc.fixed_point import check_positive
from precad.mpc.prg import DIGEST_BYTES, Digest, digest
from precad.privacy.epsilon import epsilon, most_participations
from precad.privacy.ledger import Ledger, Origin
from precad.privacy.sampling import RecordTerms
from precad.privacy.terms import Adversary, Terms
from precad.protocol.digests import model_digest
from precad.protocol.messages import VERSION
from precad.protocol.params import Normalise, Params, Round, Unit, Validation
from precad.protocol.states import Role
from precad.protocol.update import Schedule, normaliser
from precad.tables import build, read_json, to_table

REPLY_SECONDS = 60.0
"""Where somebody needs a reply time and names none: longer than most clients train, shorter than a round may take."""


class TooFewError(ProtocolError):
    """A round with fewer valid submissions than the task's minimum: it can only be given up."""


class Participants(Enum):
    """Whether the participants of a round may become known outside the servers (PROTOCOL §7a)."""

    PUBLIC = "public"
    HIDDEN = "hidden"


@dataclass(frozen=True, kw_only=True)
class Training:
    """The constants of the run."""

    client_rate: float
    """q, the probability that a client is selected in a round."""
    record_rate: float
    """p, the largest probability with which a client may sample a record."""
    rounds: int
    """T."""
    schedule: Schedule
    """The optimiser, η and how it falls over the rounds."""
    delta: float
    budget: float
    """The most that the run may cost a record, or a client, in ε against a server."""
    participations: int
    """T_i, the most rounds in which a client takes part. The guarantee rests on this number."""
    normalise: Normalise = Normalise.CONSTANT
    participants: Participants = Participants.PUBLIC
    epoch_rounds: int = 16
    """The number of rounds that a sealing key serves before it is deleted."""
    minimum: int = 1
    """The fewest valid submissions of a round that is opened. Where participants are hidden it is 0."""
    reply_seconds: float = 0.0
    """How long after its invitation a client replies, to hide how many records it drew; 0: as soon as it can."""

    def __post_init__(self) -> None:
        for name in ("client_rate", "record_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name in ("rounds", "participations", "epoch_rounds"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {getattr(self, name)}")
        if type(self.minimum) is not int or self.minimum < 0:
            raise ValueError(f"minimum must be a whole number of at least 0, got {self.minimum}")
        check_positive("budget", self.budget)
        if not 0 <= self.reply_seconds < math.inf:
            raise ValueError(f"reply_seconds must be a finite number of at least 0, got {self.reply_seconds}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {self.delta}")


@dataclass(frozen=True)
class Member:
    """A client of the roster."""

    identity: Identity
    """Without a certificate it can take part through Flower alone."""
    records: int
    """|D_i| as declared, once."""

    def __post_init__(self) -> None:
        if type(self.records) is not int or self.records < 1:
            raise ValueError(f"records of {self.identity.name} must be a whole number above 0, got {self.records}")


@dataclass(frozen=True, kw_only=True)
class Task:
    """An impossible combination is a ``ValueError``. With too few clients it is a draft, without a digest."""

    bounds: Params
    """The protocol's parameters; the number of clients in them is that of the roster."""
    training: Training
    server_a: Identity
    server_b: Identity
    model: Digest
    """Of the initial model: see :func:`precad.protocol.digests.model_digest`."""
    roster: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        parties = [self.server_a, self.server_b, *(member.identity for member in self.roster)]
        names, keys = [each.name for each in parties], [each.key for each in parties]
        certificates = [each.certificate for each in parties if each.certificate]
        for values, what in ((names, "name"), (keys, "key"), (certificates, "certificate")):
            if len(set(values)) != len(values):
                raise ValueError(f"two parties have the same {what}")
        if list(names[2:]) != sorted(names[2:]):
            raise ValueError("the roster must be sorted by name")
        for server in (self.server_a, self.server_b):
            if not server.certificate:
                raise ValueError(f"server {server.name} has no certificate")
        if self.bounds.clients != max(1, len(self.roster)):
            raise ValueError(f"the roster has {len(self.roster)} clients, the parameters say {self.bounds.clients}")
        if self.bounds.validation is Validation.TRIPLES:
            raise ValueError("validation by triples needs a dealer, and no service deals: choose proof or none")
        if self.training.participants is Participants.HIDDEN:
            if self.bounds.unit is not Unit.CLIENT:
                raise ValueError("hidden participants gain nothing with the record unit: choose public, or unit client")
            if self.training.normalise is not Normalise.CONSTANT:
                raise ValueError("the realised normaliser tells who took part: participants cannot be hidden")
            if self.training.minimum:
                raise ValueError(
                    f"minimum is {self.training.minimum}: where participants are hidden it must be 0, since whether a "
                    "round is opened would tell who took part"
                )
        elif not self.training.minimum:
            raise ValueError("minimum is 0: where participants are public it must be at least 1")

    @cached_property
    def digest(self) -> Digest:
        """H of the whole task and of the protocol's version."""
        if self.is_draft:
            few = f"has {len(self.roster)} clients, fewer than the minimum of {self.training.minimum}"
            raise ValueError(f"the roster {few if self.roster else 'is empty'}: add clients before the task is used")
        return digest(b"precad task", json.dumps(self.as_json(), sort_keys=True, separators=(",", ":")).encode())

    @property
    def is_draft(self) -> bool:
        """Whether the roster has too few clients for a round to be opened."""
        return len(self.roster) < max(1, self.training.minimum)

    @cached_property
    def members(self) -> dict[str, Member]:
        """The roster by name."""
        return {member.identity.name: member for member in self.roster}

    def server(self, role: Role) -> Identity:
        """One of the two servers."""
        return self.server_a if role is Role.A else self.server_b

    def round(self, number: int, model: Digest, nonces: Digest) -> Round:
        """What round ``number`` from this model, under these commitments, is bound to."""
        return Round(self.bounds, self.digest, number, model, nonces)

    def epoch(self, number: int) -> int:
        """The epoch of a round: sealing keys change with it."""
        return number // self.training.epoch_rounds

    def normaliser(self, valid: frozenset[str]) -> float:
        """N for these valid clients."""
        return normaliser(
            self.training.normalise,
            self.bounds.unit,
            client_rate=self.training.client_rate,
            record_rate=self.training.record_rate,
            records={name: member.records for name, member in self.members.items()},
            valid=valid,
        )

    @property
    def terms(self) -> Terms:
        """What a participation costs."""
        return self.bounds.terms(self.training.record_rate, self.training.delta)

    def record_terms(self, client: str, look: float) -> RecordTerms:
        """What a client's update by record follows; ``look``: see :class:`RecordTerms`."""
        bounds, records = self.bounds, self.members[client].records
        return RecordTerms(bounds.record_bound, self.training.record_rate, bounds.fractional_bits, records, look)

    def open_ledger(self, path: Path, *, durable: bool = True) -> Ledger:
        """The ledger of this task at ``path``, made at the first call."""
        origin = Origin(unit=self.bounds.unit.value, private=True)
        return Ledger(path, self.digest.hex(), self.terms, origin, durable=durable)

    @property
    def epsilon(self) -> float:
        """What T_i participations cost against a server."""
        return epsilon(self.terms, Adversary.SERVER, self.training.participations)

    def check_budget(self) -> None:
        """Refuse a cap on participations that costs more than the budget."""
        cap, budget = self.training.participations, self.training.budget
        if self.epsilon > budget:
            paid = most_participations(self.terms, budget, cap)
            raise ValueError(
                f"{cap} participations cost ε = {self.epsilon:.3f}, above the budget {budget}, which pays for {paid}"
            )

    def check_minimum(self, participants: int) -> None:
        """Refuse to open a round with fewer valid submissions than the task wants."""
        if participants < self.training.minimum:
            raise TooFewError(
                f"{participants} valid submissions, and the task opens no round with fewer than {self.training.minimum}"
            )

    def check_reply_time(self) -> None:
        """Refuse a task in which the time of a reply would tell how many records were drawn (PROTOCOL §9)."""
        if self.terms.record_rate < 1 and not self.training.reply_seconds:
            raise ValueError(
                f"the task names no reply time, and with record_rate {self.training.record_rate} that of a reply would "
                "tell how many records were drawn: make a new task with --reply-seconds"
            )

    def with_member(self, identity: Identity, records: int) -> "Task":
        """The task with one more client."""
        if identity.name in self.members:
            raise ValueError(f"{identity.name} is in the roster")
        return self._with_roster([*self.roster, Member(identity, records)])

    def without_member(self, name: str) -> "Task":
        """The task without a client."""
        if name not in self.members:
            raise ValueError(f"{name} is not in the roster")
        return self._with_roster([member for member in self.roster if member.identity.name != name])

    def _with_roster(self, members: list[Member]) -> "Task":
        roster = tuple(sorted(members, key=lambda member: member.identity.name))
        return replace(self, bounds=replace(self.bounds, clients=max(1, len(roster))), roster=roster)

    def as_json(self) -> dict[str, Any]:
        """As it stands in the file. A reply time of 0 is left out, as in the files of earlier versions."""
        training = to_table(self.training)
        if not self.training.reply_seconds:
            del training["reply_seconds"]
        return {
            "protocol": VERSION,
            "parameters": {name: value for name, value in to_table(self.bounds).items() if name != "clients"},
            "training": training,
            "server_a": self.server_a.as_json(),
            "server_b": self.server_b.as_json(),
            "model": self.model.hex(),
            "roster": [{**member.identity.as_json(), "records": member.records} for member in self.roster],
        }

    def as_text(self) -> str:
        """The text of the file."""
        return json.dumps(self.as_json(), indent=2) + "\n"

    def save(self, path: Path) -> None:
        """Write the file."""
        write_file(path, self.as_text(), private=True)


def load(path: Path) -> Task:
    """The task of a file. An unknown or missing key, or another version of the protocol, is a ``ValueError``."""
    try:
        return from_json(read_json(path))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {words_of(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a task that this program can use: {error}") from None


@dataclass(frozen=True, kw_only=True)
class _MemberTable(IdentityTable):
    records: int


@dataclass(frozen=True, kw_only=True)
class _TaskTable:
    """A task as :meth:`Task.as_json` writes it."""

    protocol: int
    parameters: Mapping[str, Any]
    training: Mapping[str, Any]
    server_a: IdentityTable
    server_b: IdentityTable
    model: str
    roster: tuple[_MemberTable, ...]


def from_json(value: object) -> Task:
    """The inverse of :meth:`Task.as_json`.

    Every key must be there, but for a reply time of 0: no default of a program is part of a task.
    """
    version = value.get("protocol", VERSION) if isinstance(value, dict) else VERSION
    if version != VERSION:
        raise ValueError(
            f"protocol version {version!r}, this program speaks version {VERSION}: a task ends with the version that "
            "it began with. Use the precad that made it, or make a new task"
        )
    table = build(_TaskTable, value, "the task")
    model = Digest(bytes.fromhex(table.model))
    if len(model) != DIGEST_BYTES:
        raise ValueError(f"the model's digest has {DIGEST_BYTES} bytes, got {len(model)}")
    clients = {"clients": max(1, len(table.roster))}
    return Task(
        bounds=build(Params, table.parameters, "[parameters]", complete=True, given=clients),
        training=build(Training, {"reply_seconds": 0.0, **table.training}, "[training]", complete=True),
        server_a=table.server_a.identity(),
        server_b=table.server_b.identity(),
        model=model,
        roster=tuple(Member(each.identity(), each.records) for each in table.roster),
    )


def load_model(path: Path) -> NDArray[np.float64]:
    """The model of a .npy file."""
    try:
        model = read_array(path)
        model_digest(model)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read a model from {path}: {words_of(error)}") from None
    return model
