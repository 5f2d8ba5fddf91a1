"""From the clients' updates to the sum that the model moves by: PRECAD, and what it is compared with.

All get the same updates, clipped and on the same grid, and draw noise from the same sampler, so that differences are
due to the protocol alone. Only ``plain`` takes updates that nobody clipped, and may defend itself by a robust rule in
place of their mean.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.errors import PrecadError, Reason, Rejected
from precad.mpc import field, fixed_point
from precad.mpc.prg import Purpose, Stream
from precad.privacy import clipping
from precad.privacy.noise import integer_gaussian
from precad.protocol import submission
from precad.protocol.params import Round, Validation
from precad.protocol.round import run_round
from precad.protocol.states import Role
from precad.protocol.submission import Submission
from precad.simulation.forging import forge
from precad.simulation.hyperparameters import Hyperparameters, Protocol
from precad.simulation.randomness import Randomness
from precad.simulation.user_code import explained, load_plugin

Grid = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Updates:
    """What some of the selected clients would send."""

    honest: Mapping[str, Grid]
    """Within C, on the grid."""
    malicious: Mapping[str, Floats]
    """Anything. In ``plain`` nobody clips, and all are here."""


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


class Aggregator:
    """Plays rounds of the chosen protocol.

    ``ideal`` leaves out the shares and proofs of PRECAD: one trusted party checks the norms, adds up, and draws both
    servers' noises from their own streams. The servers would open the same numbers, to the bit (but with the
    probability below 2^-55 that a forged proof is taken); it is for experiments on accuracy, where nobody is protected.
    """

    def __init__(
        self, hyperparameters: Hyperparameters, randomness: Randomness, expected: float, *, ideal: bool = False
    ) -> None:
        """``expected`` is q·n, the mean number of clients in a round."""
        self._hyperparameters, self._randomness, self._ideal = hyperparameters, randomness, ideal
        self._tau = hyperparameters.honest_clients or max(1, round(expected))
        name = hyperparameters.defence
        self._defence = None if name is None else _defence(name)

    def __call__(self, round_: Round, groups: Iterable[Updates]) -> Aggregate:
        """One round."""
        protocol = self._hyperparameters.protocol
        if protocol is Protocol.PLAIN:
            return _plain(round_, groups) if self._defence is None else self._defended(round_, groups, self._defence)
        if protocol is Protocol.PRECAD:
            return (_ideal if self._ideal else _precad)(round_, groups, self._randomness)
        if protocol is Protocol.CDP:
            return _cdp(round_, groups, self._randomness)
        share = 1.0 if protocol is Protocol.LDP else 1 / math.sqrt(self._tau)
        return _noise_of_clients(round_, groups, self._randomness, share, clip=self._hyperparameters.clip_after_noise)

    def _defended(self, round_: Round, groups: Iterable[Updates], defence: Defence) -> Aggregate:
        """A robust mean of whatever comes, times the number of clients."""
        sent = {client: update for updates in groups for client, update in updates.malicious.items()}
        if not sent:
            return Aggregate(np.zeros(round_.params.dim), frozenset(), {})
        malicious = math.ceil(self._hyperparameters.assumed_malicious * len(sent))
        told = DefenceTerms(malicious, round_.params.client_bound)
        name = f"the defence {self._hyperparameters.defence}"
        with explained(f"{name} fails"):
            mean = np.asarray(defence(np.stack(list(sent.values())), told), np.float64)
        if mean.shape != (round_.params.dim,):
            raise PrecadError(f"{name} must return a vector of {round_.params.dim} entries, got shape {mean.shape}")
        return Aggregate(mean * len(sent), frozenset(sent), {})


def _defence(name: str) -> Defence:
    """Those of the lab are loaded as a person's own are: training itself needs none of them."""
    defence: Defence = (
        load_plugin("defence", name) if ":" in name else load_plugin("defences", "precad.lab.defences:named")(name)
    )
    return defence


def _plain(round_: Round, groups: Iterable[Updates]) -> Aggregate:
    """The sum of whatever comes."""
    total, accepted = np.zeros(round_.params.dim), set[str]()
    for updates in groups:
        for update in updates.malicious.values():
            total += update
        accepted |= updates.malicious.keys()
    return Aggregate(total, frozenset(accepted), {})


def _ideal(round_: Round, groups: Iterable[Updates], randomness: Randomness) -> Aggregate:
    """What :func:`_precad` opens, without its cryptography."""
    params = round_.params
    total = np.zeros(params.dim, np.int64)
    for role in Role:
        noise = randomness.server(round_.number, role.value).noise
        total += integer_gaussian(
            params.noise_std, params.dim, Stream(noise, Purpose.NOISE, round_.context(role.value))
        )
    accepted, rejected = _add_checked(round_, groups, total, check=params.validation is not Validation.NONE)
    total = field.lift(field.embed(total))
    return Aggregate(fixed_point.decode(total, params.fractional_bits), accepted, rejected)


def _precad(round_: Round, groups: Iterable[Updates], randomness: Randomness) -> Aggregate:
    """The whole protocol in memory: every client's submission, both servers."""
    submissions: dict[str, Submission] = {}
    for updates in groups:

        def submit(client: str, updates: Updates = updates) -> Submission:
            attempts = count()
            if client in updates.honest:
                x = updates.honest[client]
                return submission.submit(
                    round_, client, x, lambda: randomness.client(round_.number, client, next(attempts))
                )
            return _submit_anything(round_, client, updates.malicious[client], randomness)

        clients = [*updates.honest, *updates.malicious]
        submissions |= zip(clients, on_both_cores(submit, clients), strict=True)
    secrets_a, secrets_b = (randomness.server(round_.number, role.value) for role in Role)
    opened = run_round(round_, submissions, secrets_a, secrets_b)
    total = fixed_point.decode(opened.noisy_sum, round_.params.fractional_bits)
    return Aggregate(total, opened.valid, opened.rejected)


def _submit_anything(round_: Round, client: str, update: Floats, randomness: Randomness) -> Submission:
    """A malicious client follows the protocol where that serves it, and else forges the best proof that it can."""
    x = _on_the_grid(update, round_.params.fractional_bits)
    secrets = randomness.client(round_.number, client)
    within = clipping.squared_norm(x) <= round_.params.squared_bound
    if within or round_.params.validation is Validation.NONE:
        return submission.submit(round_, client, x, lambda: secrets)
    return forge(round_, client, field.embed(x), secrets=secrets)


def _cdp(round_: Round, groups: Iterable[Updates], randomness: Randomness) -> Aggregate:
    """The trusted server sees every update, and rejects those over C."""
    stream = randomness.stream(Purpose.NOISE, round_.context("server"))
    total = integer_gaussian(_noise_std(round_), round_.params.dim, stream)
    accepted, rejected = _add_checked(round_, groups, total, check=True)
    return Aggregate(fixed_point.decode(total, round_.params.fractional_bits), accepted, rejected)


def _add_checked(
    round_: Round, groups: Iterable[Updates], total: Grid, *, check: bool
) -> tuple[frozenset[str], dict[str, Rejected]]:
    """Add to ``total`` the updates within C, or all without a ``check``; who was accepted and who was not."""
    params, accepted, rejected = round_.params, set[str](), dict[str, Rejected]()
    for updates in groups:
        for x in updates.honest.values():
            total += x
        accepted |= updates.honest.keys()
        for client, update in updates.malicious.items():
            x = _on_the_grid(update, params.fractional_bits)
            if check and clipping.squared_norm(x) > params.squared_bound:
                rejected[client] = Rejected(Reason.INVALID)
            else:
                total += x
                accepted.add(client)
    return frozenset(accepted), rejected


def _noise_of_clients(
    round_: Round, groups: Iterable[Updates], randomness: Randomness, share: float, *, clip: bool
) -> Aggregate:
    """Each honest client adds ``share`` of the noise σ·R' to its update; malicious ones add none.

    With ``clip`` the server, which sees every submission, cuts it to C.
    """
    params, total, accepted = round_.params, np.zeros(round_.params.dim, np.int64), set[str]()
    f = params.fractional_bits

    def cut(x: Grid) -> Grid:
        return clipping.encode_clipped(fixed_point.decode(x, f), params.client_bound, f) if clip else x

    for updates in groups:

        def noisy(client: str, updates: Updates = updates) -> Grid:
            stream = randomness.stream(Purpose.NOISE, round_.context(client))
            return cut(updates.honest[client] + integer_gaussian(share * _noise_std(round_), params.dim, stream))

        for sent in on_both_cores(noisy, updates.honest):
            total += sent
        for update in updates.malicious.values():
            total += cut(_on_the_grid(update, f))
        accepted |= updates.honest.keys() | updates.malicious.keys()
    return Aggregate(fixed_point.decode(total, params.fractional_bits), frozenset(accepted), {})


def _noise_std(round_: Round) -> float:
    """σ·R' on the grid, whatever the two servers of PRECAD would add."""
    return math.ldexp(round_.params.noise_multiplier * round_.params.sensitivity, round_.params.fractional_bits)


def _on_the_grid(update: Floats, fractional_bits: int) -> Grid:
    """A malicious update as integers, cut off where exact norms end."""
    limit = math.ldexp(1.0, 47 - fractional_bits)
    return fixed_point.encode(np.clip(np.nan_to_num(update), -limit, limit), fractional_bits)


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def on_both_cores(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Simulated clients side by side: their kernels and ciphers hold no lock."""
    return list(_pool().map(work, items))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "client")
