"""Rounds for tests: parameters, updates, and a driver of the pure steps."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from precad.errors import Rejected
from precad.mpc.prg import digest
from precad.mpc.secret import Secret
from precad.mpc.single_use import Once
from precad.protocol import states, submission
from precad.protocol.messages import Check, Gate, Masked, Message, NoisyShare, Nonce, NormOpening, PartA, decode, encode
from precad.protocol.params import Params, Round, Validation
from precad.protocol.round import ServerSecrets
from precad.protocol.states import Checking, Opened, Role
from precad.protocol.submission import Submission
from precad.protocol.triples import dealing
from precad.protocol.triples import norm as norm_triples
from precad.protocol.triples.dealing import Plan

OTHER = {Role.A: Role.B, Role.B: Role.A}


def make_round(dim: int = 140, validation: Validation = Validation.PROOF, **changes: object) -> Round:
    params = Params(
        dim=dim,
        clients=10,
        record_bound=2.0,
        client_bound=30.0,
        noise_multiplier=1.0,
        validation=validation,
        **changes,  # type: ignore[arg-type]
    )
    return Round(params, digest(b"precad test", b"task"), 3, digest(b"precad test", b"model"))


M = TypeVar("M", bound=Message)


def message_sizes(round_: Round, kind: type[Message], clients: int = 0, level: int = 0) -> dict[str, int]:
    shape = submission.proof_shape(round_.params)
    if kind in (Masked, NormOpening, Gate):
        plan = Plan(round_.params.dim, clients)
        return (
            plan.masked_sizes if kind is Masked else plan.norm_sizes if kind is NormOpening else plan.gate_sizes(level)
        )
    if kind is Check:
        return {"wires": shape.entry_wires + shape.bit_wires, "sums": 2}
    if kind is PartA:
        return submission.part_a_sizes(round_.params)
    return {"share": round_.params.dim} if kind is NoisyShare else {}


def run_states(
    round_: Round,
    submissions: Mapping[str, Submission],
    secrets: Mapping[Role, ServerSecrets],
    tamper: Callable[[bytes, type[Message], Role], bytes] = lambda raw, _kind, _to: raw,
) -> Opened:
    """Both servers through ``states.py``, all messages through their bytes; their results must agree."""
    collecting = {role: states.Collecting(round_, role, frozenset(submissions)) for role in Role}

    def deliver(message: M, to: Role) -> M:
        """Through the bytes, and through whatever the test does to them on their way."""
        clients = len(agreed[to][0].headers) if to in agreed else 0
        sizes = message_sizes(round_, type(message), clients, getattr(message, "level", 0))
        return decode(tamper(encode(message), type(message), to), type(message), **sizes)

    rejected: dict[str, Rejected] = {}
    kept: dict[tuple[Role, str], states.Accepted] = {}
    for client, sent in submissions.items():
        for role in Role:
            received = states.receive(collecting[role], client, sent.header, part_of(sent, role))
            if isinstance(received, Rejected):
                rejected[client] = received
            else:
                collecting[role], kept[role, client] = received
    closing = {role: states.close(collecting[role]) for role in Role}
    agreed: dict[Role, tuple[states.Agreed, Nonce]] = {}
    agreed |= {
        role: states.agree(closing[role][0], deliver(closing[OTHER[role]][1], role), secrets[role].nonce)
        for role in Role
    }
    checking = {role: states.challenge(agreed[role][0], deliver(agreed[OTHER[role]][1], role)) for role in Role}
    for client in sorted(checking[Role.A].headers) if round_.params.validation is Validation.PROOF else ():
        own = {role: states.check(checking[role], kept[role, client]) for role in Role}
        checking = {role: states.judge(checking[role], own[role], deliver(own[OTHER[role]], role)) for role in Role}
    if round_.params.validation is Validation.TRIPLES:
        checking = _run_triples(checking, kept, deliver)
    tallied = {
        role: states.aggregate(
            checking[role],
            (
                states.restore(checking[role], client, part_of(submissions[client], role))
                for client in checking[role].valid
            ),
            secrets[role].noise,
        )
        for role in Role
    }
    revealed = {role: states.reveal(tallied[role][0], deliver(tallied[OTHER[role]][1], role)) for role in Role}
    opened = {role: states.finish(revealed[role][0], deliver(revealed[OTHER[role]][1], role)) for role in Role}
    assert np.array_equal(opened[Role.A].noisy_sum, opened[Role.B].noisy_sum)
    assert opened[Role.A].valid == opened[Role.B].valid
    return Opened(opened[Role.A].noisy_sum, opened[Role.A].valid, {**opened[Role.A].rejected, **rejected})


def part_of(sent: Submission, role: Role) -> bytes:
    return sent.part_a if role is Role.A else sent.part_b


def _run_triples(
    checking: Mapping[Role, Checking],
    kept: Mapping[tuple[Role, str], states.Accepted],
    deliver: Callable[[Any, Role], Any],
) -> dict[Role, Checking]:
    clients = sorted(checking[Role.A].headers)
    deals = dealing.deal(checking[Role.A].round, clients, checking[Role.A].closed, Secret.fresh(), Secret.fresh())
    masking = {
        Role.A: states.begin_triples(checking[Role.A], Once("the deal", deals[0])),
        Role.B: states.begin_triples(checking[Role.B], Once("the deal", deals[1])),
    }
    for client in clients:
        own = {role: states.mask(checking[role], masking[role], kept[role, client]) for role in Role}
        masking = {
            role: norm_triples.absorb(masking[role], own[role], deliver(own[OTHER[role]], role)) for role in Role
        }
    opening = {role: norm_triples.open_norms(masking[role]) for role in Role}
    at: dict[Role, Any] = {
        role: norm_triples.compare(opening[role][0], deliver(opening[OTHER[role]][1], role)) for role in Role
    }
    while isinstance(at[Role.A], tuple):
        at = {role: norm_triples.step(at[role][0], deliver(at[OTHER[role]][1], role)) for role in Role}
    return {role: states.decide(checking[role], at[role]) for role in Role}
