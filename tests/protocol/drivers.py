"""Rounds for tests: parameters, and servers that speak over a wire."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from precad.mpc.prg import digest
from precad.mpc.secret import Secret
from precad.protocol.messages import Message, decode, encode
from precad.protocol.params import Params, Round, Validation
from precad.protocol.round import Servers, ServerSecrets, Stage, nonces_of, run_round
from precad.protocol.states import Opened, Role
from precad.protocol.submission import Submission

M = TypeVar("M", bound=Message)
R = TypeVar("R")
Tamper = Callable[[Message, Role], Message]
"""What happens to a message on its way to a server."""
SECRETS = {
    role: ServerSecrets(*(Secret(digest(b"precad test", role.value.encode(), what)) for what in (b"0", b"1", b"2")))
    for role in Role
}
"""Of the servers of every round that :func:`make_round` makes."""


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
    task, model = (digest(b"precad test", name) for name in (b"task", b"model"))
    return Round(params, task, 3, model, nonces_of(SECRETS[Role.A], SECRETS[Role.B]))


class OverTheWire(Servers):
    """Carries all messages as bytes, after whatever a test does to them; keeps what each server receives.

    What both servers open must agree.
    """

    def __init__(self, tamper: Tamper = lambda message, _to: message) -> None:
        self._tamper = tamper
        self.seen: dict[Role, list[Message]] = {role: [] for role in Role}

    def send(self, message: M, to: Role) -> M:
        vectors = {name: value.size for name, value in vars(message).items() if isinstance(value, np.ndarray)}
        received = decode(encode(self._tamper(message, to)), type(message), **vectors)
        self.seen[to].append(received)
        return received

    def both(self, stage: Stage, step: Callable[[Role], R]) -> dict[Role, R]:
        results = super().both(stage, step)
        if stage is Stage.OPEN:
            a, b = results[Role.A], results[Role.B]
            assert isinstance(a, Opened)
            assert isinstance(b, Opened)
            assert np.array_equal(a.noisy_sum, b.noisy_sum)
            assert a.valid == b.valid
        return results


def run_over_the_wire(
    round_: Round,
    submissions: Mapping[str, Submission],
    secrets: Mapping[Role, ServerSecrets],
    tamper: Tamper = lambda message, _to: message,
) -> Opened:
    return run_round(round_, submissions, secrets[Role.A], secrets[Role.B], OverTheWire(tamper))
