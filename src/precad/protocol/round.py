"""One round in memory: Algorithm 1 of the paper, lines 3 to 6, over n submissions and two servers.

It drives ``states.py``, the same steps that a deployed server takes, so that local training, benchmarks and tests run
under the same checks and the same pins.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.errors import Rejected
from precad.mpc import sharing
from precad.mpc.cores import on_usable_cores, usable_cores
from precad.mpc.prg import Digest
from precad.mpc.secret import Redacted, Secret
from precad.mpc.single_use import SingleUse
from precad.privacy import clipping
from precad.protocol import digests, states, submission
from precad.protocol.messages import Check, Masked, Message, Tally
from precad.protocol.params import Round, Validation
from precad.protocol.states import Accepted, Checking, Collecting, Opened, Role, Tallied
from precad.protocol.submission import Submission
from precad.protocol.triples import dealing
from precad.protocol.triples import norm as norm_triples
from precad.protocol.triples.norm import Decided, Masking

_State = TypeVar("_State")
_Message = TypeVar("_Message", bound=Message)
_Result = TypeVar("_Result")


@dataclass(frozen=True, repr=False)
class ServerSecrets(Redacted):
    """A server's randomness for one round."""

    nonce: Secret
    noise: Secret
    deal: Secret
    """What the dealer gives this server in validation by triples."""

    @classmethod
    def fresh(cls) -> "ServerSecrets":
        """From the operating system's generator."""
        return cls(Secret.fresh(), Secret.fresh(), Secret.fresh())


def nonces_of(secrets_a: ServerSecrets, secrets_b: ServerSecrets) -> Digest:
    """What binds a round to the nonces of its two servers."""
    return digests.nonces(*(digests.commit_nonce(secrets.nonce) for secrets in (secrets_a, secrets_b)))


class Stage(Enum):
    """The steps of a round that both servers take."""

    RECEIVE = "receive"
    CLOSE = "close"
    AGREE = "agree"
    CHALLENGE = "challenge"
    CHECK = "check"
    JUDGE = "judge"
    MASK = "mask"
    ABSORB = "absorb"
    GATES = "gates"
    AGGREGATE = "aggregate"
    REVEAL = "reveal"
    OPEN = "open"


SIDE_BY_SIDE = {Stage.RECEIVE, Stage.CHECK, Stage.MASK, Stage.ABSORB, Stage.AGGREGATE, Stage.OPEN}
"""The stages that spend their time in kernels and ciphers, which hold no lock. The others are short: in two threads
they would wait for each other's turn at the interpreter for longer than they run."""


class Servers:
    """Runs servers A and B, each on a core of its own, and carries their messages.

    A benchmark that times the steps, or a test that alters the messages, passes a subclass to :func:`run_round`.
    """

    def both(self, stage: Stage, step: Callable[[Role], _Result]) -> dict[Role, _Result]:
        """The same step at both servers."""
        if stage not in SIDE_BY_SIDE or usable_cores() == 1:
            return {role: step(role) for role in Role}
        b = _thread_of_b().submit(step, Role.B)
        a = step(Role.A)
        return {Role.A: a, Role.B: b.result()}

    def send(self, message: _Message, to: Role) -> _Message:  # noqa: ARG002 - for subclasses
        """Carry a message to a server."""
        return message

    def exchange(
        self, stage: Stage, sent: Mapping[Role, tuple[_State, _Message]], step: Callable[[_State, _Message], _Result]
    ) -> dict[Role, _Result]:
        """Each server takes its next step with the other's message."""
        received = {role: self.send(sent[role.other][1], role) for role in Role}
        return self.both(stage, lambda role: step(sent[role][0], received[role]))


def client_submits(round_: Round, client: str, update: NDArray[np.floating]) -> Submission:
    """Algorithm 2, lines 7 and 8: clip the update to C, put it on the grid, split it into two shares."""
    x = clipping.encode_clipped(update, round_.params.client_bound, round_.params.fractional_bits)
    return submission.submit(round_, client, x)


def run_round(
    round_: Round,
    submissions: Mapping[str, Submission],
    secrets_a: ServerSecrets,
    secrets_b: ServerSecrets,
    servers: Servers | None = None,
) -> Opened:
    """What both servers do with the submissions of the selected clients (paper, Algorithm 1, lines 3 to 6).

    The round is bound to both servers' nonces: ``round_.nonces`` is :func:`nonces_of` their secrets.
    """
    servers, secrets = servers or Servers(), {Role.A: secrets_a, Role.B: secrets_b}

    # Line 3: the servers receive the shares, and close the round.
    collecting = {role: Collecting(round_, role, frozenset(submissions)) for role in Role}
    received = servers.both(Stage.RECEIVE, lambda role: _receive(collecting[role], submissions))
    kept = {role: {c: x for c, x in received[role].items() if isinstance(x, Accepted)} for role in Role}
    closing = servers.both(
        Stage.CLOSE, lambda role: states.close(collecting[role], (each.header for each in kept[role].values()))
    )
    agreed = servers.exchange(
        Stage.AGREE, closing, lambda state, peer: states.agree(state, peer, secrets[state.role].nonce)
    )

    # Line 4: they verify ‖Δ_i‖ ≤ C, learning nothing else.
    checking = servers.exchange(Stage.CHALLENGE, agreed, states.challenge)
    if round_.params.validation is Validation.PROOF:
        checking = _validate_by_proof(servers, checking, kept)
    if round_.params.validation is Validation.TRIPLES:
        checking = _validate_by_dealt_triples(servers, checking, kept, secrets)

    # Line 5: each adds its own noise to its share of the sum of the valid updates.
    def add_up(role: Role) -> tuple[Tallied, Tally]:
        valid = (kept[role][client] for client in checking[role].valid)
        return states.aggregate(checking[role], valid, secrets[role].noise)

    tallied = servers.both(Stage.AGGREGATE, add_up)

    # Line 6: they exchange the noisy shares and open the sum, which update.py adds to the model.
    revealed = servers.exchange(Stage.REVEAL, tallied, states.reveal)
    opened = servers.exchange(Stage.OPEN, revealed, states.finish)[Role.A]
    refused = {c: x for role in (Role.B, Role.A) for c, x in received[role].items() if isinstance(x, Rejected)}
    return Opened(opened.noisy_sum, opened.valid, {**opened.rejected, **refused})


def _receive(state: Collecting, submissions: Mapping[str, Submission]) -> dict[str, Accepted | Rejected]:
    def receive(client: str) -> Accepted | Rejected:
        sent = submissions[client]
        return states.receive(state, client, sent.header, sent.part_a if state.role is Role.A else sent.part_b, None)

    together = sharing.at_once(state.round.params.dim)
    return dict(zip(submissions, on_usable_cores(receive, submissions, together), strict=True))


Kept = Mapping[Role, Mapping[str, Accepted]]


def _validate_by_proof(servers: Servers, checking: Mapping[Role, Checking], kept: Kept) -> dict[Role, Checking]:
    """The check of each submission, one message about each (PROTOCOL §4)."""
    clients = list(checking[Role.A].headers)
    together = sharing.at_once(checking[Role.A].round.params.dim)

    def check(role: Role) -> list[Check]:
        return on_usable_cores(lambda client: states.check(checking[role], kept[role][client]), clients, together)

    own = servers.both(Stage.CHECK, check)
    theirs = {role: [servers.send(check, role) for check in own[role.other]] for role in Role}

    def judge(role: Role) -> Checking:
        messages = zip(clients, own[role], theirs[role], strict=True)
        return states.conclude(
            checking[role], [client for client, *pair in messages if states.judge(checking[role], *pair)]
        )

    return servers.both(Stage.JUDGE, judge)


def _validate_by_dealt_triples(
    servers: Servers, checking: Mapping[Role, Checking], kept: Kept, secrets: Mapping[Role, ServerSecrets]
) -> dict[Role, Checking]:
    """With the dealer, a third party, in the same memory (PROTOCOL §5)."""
    state = checking[Role.A]
    seeds = secrets[Role.A].deal, secrets[Role.B].deal
    deal_a, deal_b = dealing.deal(state.round, sorted(state.headers), state.closed, *seeds)
    masking = {
        Role.A: states.begin_triples(checking[Role.A], SingleUse("the deal", deal_a)),
        Role.B: states.begin_triples(checking[Role.B], SingleUse("the deal", deal_b)),
    }

    decided = validate_by_triples(
        servers, masking, lambda role, state, client: states.mask(checking[role], state, kept[role][client])
    )
    return {role: states.decide(checking[role], decided[role]) for role in Role}


def validate_by_triples(
    servers: Servers, masking: dict[Role, Masking], mask: Callable[[Role, Masking, str], Masked]
) -> dict[Role, Decided]:
    """Both servers through ``triples/norm.py``, a submission at a time: ``mask`` gives a server's message about one."""

    def absorb(masking: dict[Role, Masking], client: str) -> dict[Role, Masking]:
        own = servers.both(Stage.MASK, lambda role: mask(role, masking[role], client))
        theirs = {role: servers.send(own[role.other], role) for role in Role}
        return servers.both(Stage.ABSORB, lambda role: norm_triples.absorb(masking[role], own[role], theirs[role]))

    for client in masking[Role.A].clients:
        masking = absorb(masking, client)
    opening = servers.both(Stage.GATES, lambda role: norm_triples.open_norms(masking[role]))
    at = servers.exchange(Stage.GATES, opening, norm_triples.compare)
    for _ in masking[Role.A].plan.layers:
        at = servers.exchange(Stage.GATES, at, norm_triples.step)
    return servers.exchange(Stage.GATES, at, norm_triples.decide)


@cache
def _thread_of_b() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "server B")
