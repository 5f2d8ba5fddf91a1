"""What each adversary sees of a round, with all that it knows taken away: noise, and maybe a canary.

The server knows its own noise, and both adversaries know what the other clients send: these are the adversaries for
whom ε is computed (PROTOCOL §7a; paper, Table 1). The rounds are those of the program; this module only listens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError
from precad.lab.canaries.axes import Axes
from precad.lab.canaries.records import Key
from precad.mpc import field, fixed_point
from precad.privacy.terms import Adversary
from precad.protocol.aggregation import noisy_sum
from precad.protocol.params import Round
from precad.protocol.states import Role
from precad.settings import Hyperparameters, Protocol
from precad.simulation.aggregators import Aggregate, Aggregator, Collector, Grid, Updates
from precad.simulation.randomness import Randomness

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """One adversary of a run."""

    name: str
    against: Adversary
    """Whose ε is claimed for it."""
    role: Role | None = None
    """Which server's noise it knows."""


def views(protocol: Protocol) -> tuple[View, ...]:
    """Whom the ε of a protocol is claimed against.

    With ``ldp`` and ``ddp`` the clients see no more than the server, and the same is claimed.
    """
    if protocol is Protocol.PLAIN:
        raise PrecadError("protocol plain adds no noise and claims no ε: there is nothing to test")
    clients = View("clients", Adversary.CLIENTS)
    if protocol is Protocol.PRECAD:
        return (*(View(role.value, Adversary.SERVER, role) for role in Role), clients)
    return (clients,) if protocol is Protocol.CDP else (View("server", Adversary.SERVER),)


class Listening(Aggregator):
    """Plays rounds as any aggregator does, and keeps the last one."""

    def __init__(self, hyperparameters: Hyperparameters, randomness: Randomness, clients: int, *, ideal: bool) -> None:
        super().__init__(hyperparameters, randomness, clients, ideal=ideal)
        self._readable = hyperparameters.protocol is Protocol.LDP
        self._noises = randomness
        self.sent: dict[str, Grid] = {}
        """What every client of the last round sent, before any noise of its own."""
        self._own: dict[Role, Floats] = {}
        self.round: Round
        self.aggregate: Aggregate

    def collect(self, round_: Round) -> Collector:
        """Begin a round, and listen."""
        self.round, self.sent, self._own = round_, {}, {}
        return _Heard(super().collect(round_), self)

    def noise(self, view: View, axes: Axes) -> dict[Key, float]:
        """Along the direction of each canary: what hides its client's update from this adversary.

        That is what is left of the opened sum. With ``ldp`` the server reads every submission, and it is what is left
        of the client's own, if it took part.
        """
        if not self._readable:
            return axes.along(self._left(view))
        alone = {client: axes.along(self._left_alone(client)) for client in axes.clients if client in self.sent}
        return {key: alone[key[0]][key] for key in axes.keys if key[0] in alone}

    def own_noise(self, role: Role) -> Floats:
        """What this server added: its share of a sum of nothing."""
        if role not in self._own:
            seed = self._noises.server(self.round.number, role.value).noise
            self._own[role] = self.decoded(field.lift(noisy_sum(self.round, role.value, (), seed)))
        return self._own[role]

    def decoded(self, x: Grid) -> Floats:
        """As floats, what is on the grid."""
        return fixed_point.decode(x, self.round.params.fractional_bits)

    def _left(self, view: View) -> Floats:
        total = np.zeros(self.round.params.dim, np.int64)
        for name in self.aggregate.accepted:
            total += self.sent[name]
        left = self.aggregate.total - self.decoded(total)
        return left if view.role is None else left - self.own_noise(view.role)

    def _left_alone(self, client: str) -> Floats:
        alone = super().collect(self.round)
        alone.add(Updates({client: self.sent[client]}, {}))
        return alone.open().total - self.decoded(self.sent[client])


class _Heard(Collector):
    """A round that is passed on, and kept."""

    def __init__(self, inner: Collector, listener: Listening) -> None:
        self._inner, self._listener = inner, listener

    def add(self, updates: Updates) -> None:
        self._listener.sent |= updates.encoded
        self._inner.add(updates)

    def open(self) -> Aggregate:
        self._listener.aggregate = self._inner.open()
        return self._listener.aggregate
