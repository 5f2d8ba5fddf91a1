"""What all test vectors are made of: secrets that do not change, rounds, and the list that they go to."""

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import Digest, digest
from precad.mpc.secret import Secret
from precad.protocol import states, submission
from precad.protocol.codec import Blob
from precad.protocol.messages import (
    encode,
)
from precad.protocol.params import Params, Round, Unit
from precad.protocol.round import ServerSecrets, nonces_of
from precad.protocol.states import Role
from precad.protocol.submission import ClientSecrets, Submission
from tests.reference.transcripts import Table, as_table, expected, judged


def named(name: str) -> Digest:
    return digest(b"precad test", name.encode())


def secrets_of(client: str) -> ClientSecrets:
    return ClientSecrets(*(Secret(named(f"{client} {what}")) for what in ("seed A", "seed B", "salt A", "salt B")))


SERVERS = {
    role: ServerSecrets(*(Secret(named(f"{role.name} {what}")) for what in ("nonce", "noise", "deal"))) for role in Role
}


KEYS = {name: Ed25519PrivateKey.from_private_bytes(named(f"key of {name}")) for name in ("alpha", "beta", "bank")}


def public(name: str) -> str:
    return KEYS[name].public_key().public_bytes_raw().hex()


def make_round(dim: int, number: int = 7, **changes: Any) -> Round:
    values = {
        "clients": 3,
        "record_bound": 2.0**-9,
        "client_bound": 2.0**-8,
        "noise_multiplier": 4.0,
        "unit": Unit.CLIENT,
    }
    params = Params(dim=dim, **{**values, **changes})
    return Round(params, named("task"), number, named("model"), nonces_of(SERVERS[Role.A], SERVERS[Role.B]))


def entries_of(dim: int) -> FieldVector:
    """Small numbers of both signs, as field elements: C is 256 on the grid."""
    return field.embed(np.random.default_rng(dim).integers(-40, 41, dim).astype(np.int64))


def nonces() -> Table:
    return {f"nonce_{role.name.lower()}": SERVERS[role].nonce.value.hex() for role in Role}


class Book:
    """The vectors, in order."""

    def __init__(self) -> None:
        self.vectors: list[Table] = []

    def add(self, kind: str, name: str, why: str, given: Table, *, malicious: bool = False) -> Table:
        answer = expected(kind, given)
        self.vectors.append(
            {"name": name, "kind": kind, "malicious": malicious, "why": why, "given": given, "expected": answer}
        )
        return answer

    def lies(self, kind: str, why: str, given: Table, changes: dict[str, Table]) -> None:
        """What a malicious party makes of a right ``given``."""
        for name, change in changes.items():
            self.add(kind, name, why, {**given, **change}, malicious=True)


def submit(round_: Round, client: str, x: FieldVector | None = None, head: bytes = b"") -> Submission:
    integers = field.lift(entries_of(round_.params.dim) if x is None else x)
    drawn = secrets_of(client)
    return submission.submit(round_, client, integers, lambda: drawn, Blob(head))


def shown(sent: Submission) -> Table:
    return {name: getattr(sent, name).hex() for name in ("header", "part_a", "part_b")}


def transcript(round_: Round, sent: dict[str, Submission], selected: list[str]) -> Table:
    """A whole round of honest servers, as a ``given``."""
    checking, _, kept, _ = judged(round_, sent, selected, {role: SERVERS[role].nonce for role in Role})
    tables: Table = {}
    for role in Role:
        state = checking[role]
        valid = [kept[role][client] for client in sorted(state.valid)]
        tallied, tally = states.aggregate(state, valid, SERVERS[role].noise)
        side = role.name.lower()
        tables |= {f"tally_{side}": encode(tally).hex(), f"share_{side}": encode(tallied.opening).hex()}
    listed = [{"client": client, **shown(each)} for client, each in sent.items()]
    return {"round": as_table(round_), "selected": selected, "submissions": listed, **nonces(), **tables}
