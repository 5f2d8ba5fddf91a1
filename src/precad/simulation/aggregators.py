"""From the clients' updates to the sum that the model moves by: PRECAD, and what it is compared with.

All get the same updates and draw noise from the same sampler, so that differences are due to the protocol alone. The
updates are clipped, on one grid. Two exceptions: ``plain`` clips nothing, and may replace the mean by a robust rule;
with ``clip_after_noise``, updates are clipped to C after the clients' noise.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError, Reason, Rejected
from precad.mpc import field, fixed_point
from precad.mpc.cores import on_usable_cores
from precad.mpc.prg import Purpose
from precad.privacy import clipping
from precad.privacy.noise import integer_gaussian
from precad.protocol import submission
from precad.protocol.aggregation import noisy_sum, open_sum
from precad.protocol.params import Round, Validation
from precad.protocol.round import run_round
from precad.protocol.states import Role
from precad.protocol.submission import ClientSecrets, Submission
from precad.settings import Hyperparameters, Protocol
from precad.simulation.forging import forge
from precad.simulation.randomness import Randomness
from precad.simulation.user_code import explained, load_plugin

Grid = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Updates:
    """What some of the selected clients would send."""

    encoded: Mapping[str, Grid]
    """On the grid, clipped as the protocol asks: of honest clients."""
    raw: Mapping[str, Floats]
    """Anything, as floats: of malicious clients; in ``plain``, where nobody clips, of all."""


@dataclass(frozen=True)
class DefenceTerms:
    """What a defence is told of a round."""

    malicious: int
    """f: how many of the round's clients it takes for malicious, at most."""
    bound: float
    """C: the norm that it takes for honest."""


Defence = Callable[[Floats, DefenceTerms], Floats]
"""From a matrix with a row for each client to one vector in place of their mean."""


@dataclass(frozen=True)
class Aggregate:
    """What a round comes to."""

    total: Floats
    """Σ Δ_i over the accepted clients, with the protocol's noise."""
    accepted: frozenset[str]
    rejected: Mapping[str, Rejected]


class Collector(ABC):
    """One round under way. It takes updates in, and opens their sum when it is told to: not before."""

    def __init__(self, round_: Round) -> None:
        self._round, self._accepted, self._rejected = round_, set[str](), dict[str, Rejected]()

    @abstractmethod
    def add(self, updates: Updates) -> None:
        """Take in what some clients send. Nothing is opened."""

    @abstractmethod
    def open(self) -> Aggregate:
        """Draw the protocol's noise, and open the sum."""

    def _aggregate(self, total: Floats) -> Aggregate:
        return Aggregate(total, frozenset(self._accepted), self._rejected)


class Aggregator:
    """Plays rounds of the chosen protocol.

    ``ideal`` leaves out the shares and proofs of PRECAD: one trusted party checks the norms, adds up, and draws both
    servers' noises from their own streams. The servers would open the same numbers, to the bit (but with the
    probability below 2^-53 that a forged proof is taken); it is for experiments on accuracy, where nobody is protected.
    """

    def __init__(
        self, hyperparameters: Hyperparameters, randomness: Randomness, clients: int, *, ideal: bool = False
    ) -> None:
        """``clients`` is n, the number of all clients of the run."""
        self._hyperparameters, self._randomness, self._ideal = hyperparameters, randomness, ideal
        self._tau = hyperparameters.tau(clients)
        name = hyperparameters.defence
        self._defence = None if name is None else _defence(name)

    def collect(self, round_: Round) -> Collector:
        """Begin a round."""
        settings, randomness, protocol = self._hyperparameters, self._randomness, self._hyperparameters.protocol
        if protocol is Protocol.PLAIN:
            return _Plain(round_) if self._defence is None else _Defended(round_, settings, self._defence)
        if protocol is Protocol.PRECAD and not self._ideal:
            return _Precad(round_, randomness)
        if protocol is Protocol.PRECAD or protocol is Protocol.CDP:
            return _Trusted(round_, randomness, ideal=protocol is Protocol.PRECAD)
        share = 1.0 if protocol is Protocol.LDP else 1 / math.sqrt(self._tau)
        return _NoisyClients(round_, randomness, share, clip=settings.clip_after_noise)


class _Precad(Collector):
    """The whole protocol in memory: every client's submission, both servers."""

    def __init__(self, round_: Round, randomness: Randomness) -> None:
        super().__init__(round_)
        self._randomness, self._submissions = randomness, dict[str, Submission]()

    def add(self, updates: Updates) -> None:
        honest = on_usable_cores(self._submit, updates.encoded.items())
        malicious = on_usable_cores(self._submit_anything, updates.raw.items())
        self._submissions |= zip((*updates.encoded, *updates.raw), (*honest, *malicious), strict=True)

    def open(self) -> Aggregate:
        secrets_a, secrets_b = (self._randomness.server(self._round.number, role.value) for role in Role)
        opened = run_round(self._round, self._submissions, secrets_a, secrets_b)
        total = fixed_point.decode(opened.noisy_sum, self._round.params.fractional_bits)
        return Aggregate(total, opened.valid, opened.rejected)

    def _submit(self, sent: tuple[str, Grid]) -> Submission:
        """An honest client, which draws again if its secrets do not suit its update."""
        (client, x), attempts = sent, count()

        def draw() -> ClientSecrets:
            return self._randomness.client(self._round.number, client, next(attempts))

        return submission.submit(self._round, client, x, draw)

    def _submit_anything(self, sent: tuple[str, Floats]) -> Submission:
        """A malicious client follows the protocol where that serves it, and else forges the best proof that it can."""
        client, update = sent
        params, x = self._round.params, _on_the_grid(update, self._round.params.fractional_bits)
        secrets = self._randomness.client(self._round.number, client)
        if clipping.squared_norm(x) <= params.squared_bound or params.validation is Validation.NONE:
            return submission.submit(self._round, client, x, lambda: secrets)
        return forge(self._round, client, field.embed(x), secrets=secrets)


class _Trusted(Collector):
    """One party sees every update, rejects those over C, and adds noise: CDP; ``ideal``, what PRECAD would open."""

    def __init__(self, round_: Round, randomness: Randomness, *, ideal: bool) -> None:
        super().__init__(round_)
        self._randomness, self._ideal = randomness, ideal
        self._total = np.zeros(round_.params.dim, np.int64)

    def add(self, updates: Updates) -> None:
        params = self._round.params
        check = not self._ideal or params.validation is not Validation.NONE
        for x in updates.encoded.values():
            self._total += x
        self._accepted |= updates.encoded.keys()
        for client, update in updates.raw.items():
            x = _on_the_grid(update, params.fractional_bits)
            if check and clipping.squared_norm(x) > params.squared_bound:
                self._rejected[client] = Rejected(Reason.INVALID)
            else:
                self._total += x
                self._accepted.add(client)

    def open(self) -> Aggregate:
        params, total = self._round.params, self._total
        if self._ideal:
            updates = {Role.A: [[field.embed(total)]], Role.B: []}
            seeds = {role: self._randomness.server(self._round.number, role.value).noise for role in Role}
            total = open_sum(*(noisy_sum(self._round, role.value, updates[role], seeds[role]) for role in Role))
        else:
            stream = self._randomness.stream(Purpose.NOISE, self._round.context("server"))
            total = total + integer_gaussian(_noise_std(self._round), params.dim, stream)
        return self._aggregate(fixed_point.decode(total, params.fractional_bits))


class _NoisyClients(Collector):
    """Each honest client adds ``share`` of the noise σ·R' to its update; malicious ones add none.

    With ``clip`` the server, which sees every submission, cuts it to C.
    """

    def __init__(self, round_: Round, randomness: Randomness, share: float, *, clip: bool) -> None:
        super().__init__(round_)
        self._randomness, self._std, self._clip = randomness, share * _noise_std(round_), clip
        self._total = np.zeros(round_.params.dim, np.int64)

    def add(self, updates: Updates) -> None:
        for sent in on_usable_cores(self._noisy, updates.encoded.items()):
            self._total += sent
        for update in updates.raw.values():
            self._total += self._cut(_on_the_grid(update, self._round.params.fractional_bits))
        self._accepted |= updates.encoded.keys() | updates.raw.keys()

    def open(self) -> Aggregate:
        return self._aggregate(fixed_point.decode(self._total, self._round.params.fractional_bits))

    def _noisy(self, sent: tuple[str, Grid]) -> Grid:
        client, x = sent
        stream = self._randomness.stream(Purpose.NOISE, self._round.context(client))
        return self._cut(x + integer_gaussian(self._std, x.size, stream))

    def _cut(self, x: Grid) -> Grid:
        params = self._round.params
        if not self._clip:
            return x
        floats = fixed_point.decode(x, params.fractional_bits)
        return clipping.encode_clipped(floats, params.client_bound, params.fractional_bits)


class _Plain(Collector):
    """The sum of whatever comes."""

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self._total = np.zeros(round_.params.dim)

    def add(self, updates: Updates) -> None:
        for update in updates.raw.values():
            self._total += update
        self._accepted |= updates.raw.keys()

    def open(self) -> Aggregate:
        return self._aggregate(self._total)


class _Defended(Collector):
    """A robust mean of whatever comes, times the number of clients."""

    def __init__(self, round_: Round, hyperparameters: Hyperparameters, defence: Defence) -> None:
        super().__init__(round_)
        self._hyperparameters, self._defence, self._sent = hyperparameters, defence, dict[str, Floats]()

    def add(self, updates: Updates) -> None:
        self._sent |= updates.raw

    def open(self) -> Aggregate:
        sent, params = self._sent, self._round.params
        if not sent:
            return self._aggregate(np.zeros(params.dim))
        malicious = math.ceil(self._hyperparameters.assumed_malicious * len(sent))
        name = f"the defence {self._hyperparameters.defence}"
        with explained(f"{name} fails"):
            mean = self._defence(np.stack(list(sent.values())), DefenceTerms(malicious, params.client_bound))
            mean = np.asarray(mean, np.float64)
        if mean.shape != (params.dim,):
            raise PrecadError(f"{name} must return a vector of {params.dim} entries, got shape {mean.shape}")
        return Aggregate(mean * len(sent), frozenset(sent), {})


def _defence(name: str) -> Defence:
    """Those of the lab are loaded as a person's own are: training itself needs none of them."""
    defence: Defence = (
        load_plugin("defence", name) if ":" in name else load_plugin("defences", "precad.lab.defences:named")(name)
    )
    return defence


def _noise_std(round_: Round) -> float:
    """σ·R' on the grid, whatever the two servers of PRECAD would add."""
    return math.ldexp(round_.params.noise_multiplier * round_.params.sensitivity, round_.params.fractional_bits)


def _on_the_grid(update: Floats, fractional_bits: int) -> Grid:
    """A malicious update as integers, cut off where exact norms end."""
    limit = math.ldexp(1.0, 47 - fractional_bits)
    return fixed_point.encode(np.clip(np.nan_to_num(update), -limit, limit), fractional_bits)
