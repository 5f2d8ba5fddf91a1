"""The task: what all parties agree on before the first round, in one file, with one digest (PROTOCOL §9, §10).

Everything that is signed, sealed or hashed in a run is bound to that digest. To change anything, a parameter, a
client, a key, is to begin a new task, with a new ledger.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.deployment.keys import Identity, IdentityTable
from precad.files import write_file
from precad.mpc.fixed_point import check_positive
from precad.mpc.prg import DIGEST_BYTES, Digest, digest
from precad.privacy.epsilon import epsilon, most_participations
from precad.privacy.terms import Adversary, Terms
from precad.protocol.digests import model_digest
from precad.protocol.messages import VERSION
from precad.protocol.params import Normalise, Params, Round, Unit, Validation
from precad.protocol.states import Role
from precad.protocol.update import Schedule, normaliser
from precad.tables import build, parse_json, to_table


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

    def __post_init__(self) -> None:
        for name in ("client_rate", "record_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        for name in ("rounds", "participations", "epoch_rounds"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {getattr(self, name)}")
        check_positive("budget", self.budget)
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {self.delta}")


@dataclass(frozen=True)
class Member:
    """A client of the roster."""

    identity: Identity
    records: int
    """|D_i| as declared, once."""

    def __post_init__(self) -> None:
        if type(self.records) is not int or self.records < 1:
            raise ValueError(f"records of {self.identity.name} must be a whole number above 0, got {self.records}")


@dataclass(frozen=True, kw_only=True)
class Task:
    """All of it. An impossible combination is a ``ValueError``; an empty roster is a draft, which has no digest."""

    bounds: Params
    """The protocol's parameters; the number of clients in them is that of the roster."""
    training: Training
    server_a: Identity
    server_b: Identity
    model: Digest
    """Of the initial model: see :func:`precad.protocol.digests.model_digest`."""
    roster: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        names = [self.server_a.name, self.server_b.name, *(member.identity.name for member in self.roster)]
        keys = [self.server_a.key, self.server_b.key, *(member.identity.key for member in self.roster)]
        for values, what in ((names, "name"), (keys, "key")):
            if len(set(values)) != len(values):
                raise ValueError(f"two parties have the same {what}")
        if list(names[2:]) != sorted(names[2:]):
            raise ValueError("the roster must be sorted by name")
        for server in (self.server_a, self.server_b):
            if not server.certificate:
                raise ValueError(f"server {server.name} has no certificate: its keys were made for a client")
        if self.bounds.clients != max(1, len(self.roster)):
            raise ValueError(f"the roster has {len(self.roster)} clients, the parameters say {self.bounds.clients}")
        if self.bounds.validation is Validation.TRIPLES:
            raise ValueError("validation by triples needs a dealer, and no service deals: choose proof or none")
        if self.training.participants is Participants.HIDDEN:
            if self.bounds.unit is not Unit.CLIENT:
                raise ValueError("hidden participants gain nothing with the record unit: choose public, or unit client")
            if self.training.normalise is not Normalise.CONSTANT:
                raise ValueError("the realised normaliser tells who took part: participants cannot be hidden")

    @cached_property
    def digest(self) -> Digest:
        """H of the whole task and of the protocol's version."""
        if not self.roster:
            raise ValueError("the roster is empty: add clients before the task is used")
        return digest(b"precad task", json.dumps(self.as_json(), sort_keys=True, separators=(",", ":")).encode())

    @cached_property
    def members(self) -> dict[str, Member]:
        """The roster by name."""
        return {member.identity.name: member for member in self.roster}

    def server(self, role: Role) -> Identity:
        """One of the two servers."""
        return self.server_a if role is Role.A else self.server_b

    def round(self, number: int, model: Digest) -> Round:
        """What round ``number`` from this model is bound to."""
        return Round(self.bounds, self.digest, number, model)

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

    def with_member(self, identity: Identity, records: int) -> "Task":
        """The task with one more client."""
        if identity.name in self.members:
            raise ValueError(f"{identity.name} is in the roster")
        return self._with_roster([*self.roster, Member(Identity(identity.name, identity.key), records)])

    def without_member(self, name: str) -> "Task":
        """The task without a client."""
        if name not in self.members:
            raise ValueError(f"{name} is not in the roster")
        return self._with_roster([member for member in self.roster if member.identity.name != name])

    def _with_roster(self, members: list[Member]) -> "Task":
        roster = tuple(sorted(members, key=lambda member: member.identity.name))
        return replace(self, bounds=replace(self.bounds, clients=max(1, len(roster))), roster=roster)

    def as_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "protocol": VERSION,
            "parameters": {name: value for name, value in to_table(self.bounds).items() if name != "clients"},
            "training": to_table(self.training),
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
        write_file(path, self.as_text())


def load(path: Path) -> Task:
    """The task of a file. An unknown or missing key, or another version of the protocol, is a ``ValueError``."""
    try:
        return from_json(parse_json(path.read_text()))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a task: {error}") from None


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
    """The inverse of :meth:`Task.as_json`. Every key must be there: no default of a program is part of a task."""
    version = value.get("protocol", VERSION) if isinstance(value, dict) else VERSION
    if version != VERSION:
        raise ValueError(f"protocol version {version}, this program speaks version {VERSION}")
    table = build(_TaskTable, value, "the task")
    model = Digest(bytes.fromhex(table.model))
    if len(model) != DIGEST_BYTES:
        raise ValueError(f"the model's digest has {DIGEST_BYTES} bytes, got {len(model)}")
    clients = {"clients": max(1, len(table.roster))}
    return Task(
        bounds=build(Params, table.parameters, "[parameters]", complete=True, given=clients),
        training=build(Training, table.training, "[training]", complete=True),
        server_a=table.server_a.identity(),
        server_b=table.server_b.identity(),
        model=model,
        roster=tuple(Member(each.identity(), each.records) for each in table.roster),
    )


def load_model(path: Path) -> NDArray[np.float64]:
    """The model of a .npy file."""
    try:
        model = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read a model from {path}: {error}") from None
    if not isinstance(model, np.ndarray):
        raise ValueError(f"{path} must hold one float64 vector, not an archive")
    model_digest(model)
    return model
