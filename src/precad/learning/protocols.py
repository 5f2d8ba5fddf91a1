"""From the clients' updates to the sum that the model moves by: PRECAD, and what it is compared with.

All get the same updates, clipped and on the same grid, and draw noise from the same sampler, so that differences are
due to the protocol alone. Only ``plain`` takes updates that nobody clipped.
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

from precad.attacks.forging import forge
from precad.errors import Reason, Rejected
from precad.learning.hyperparameters import Hyperparameters, Protocol
from precad.learning.randomness import Randomness
from precad.mpc import field, fixed_point
from precad.mpc.prg import Purpose
from precad.params import Round, Validation
from precad.privacy import clipping
from precad.privacy.noise import integer_gaussian
from precad.protocol import submission
from precad.protocol.round import run_round
from precad.protocol.submission import Submission

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
class Aggregate:
    """What a round comes to."""

    total: Floats
    """Σ Δ_i over the accepted clients, with the protocol's noise."""
    accepted: frozenset[str]
    rejected: Mapping[str, Rejected]


def aggregate(
    hyperparameters: Hyperparameters,
    round_: Round,
    groups: Iterable[Updates],
    randomness: Randomness,
    expected: float,
) -> Aggregate:
    """One round of the chosen protocol; ``expected`` is q·n, the mean number of clients in a round."""
    if hyperparameters.protocol is Protocol.PLAIN:
        return _plain(round_, groups)
    if hyperparameters.protocol is Protocol.PRECAD:
        return _precad(round_, groups, randomness)
    if hyperparameters.protocol is Protocol.CDP:
        return _cdp(round_, groups, randomness)
    tau = hyperparameters.honest_clients or max(1, round(expected))
    share = 1.0 if hyperparameters.protocol is Protocol.LDP else 1 / math.sqrt(tau)
    return _noise_of_clients(round_, groups, randomness, share)


def _plain(round_: Round, groups: Iterable[Updates]) -> Aggregate:
    """The sum of whatever comes."""
    total, accepted = np.zeros(round_.params.dim), set[str]()
    for updates in groups:
        for update in updates.malicious.values():
            total += update
        accepted |= updates.malicious.keys()
    return Aggregate(total, frozenset(accepted), {})


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
    secrets = (randomness.server(round_.number, name) for name in ("server A", "server B"))
    opened = run_round(round_, submissions, *secrets)
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
    params, rejected, accepted = round_.params, dict[str, Rejected](), set[str]()
    stream = randomness.stream(Purpose.NOISE, round_.context("server"))
    total = integer_gaussian(_noise_std(round_), params.dim, stream)
    for updates in groups:
        forged = {client: _on_the_grid(x, params.fractional_bits) for client, x in updates.malicious.items()}
        within = {client: x for client, x in forged.items() if clipping.squared_norm(x) <= params.squared_bound}
        rejected |= {client: Rejected(Reason.INVALID) for client in forged if client not in within}
        for client, x in (*updates.honest.items(), *within.items()):
            total += x
            accepted.add(client)
    return Aggregate(fixed_point.decode(total, params.fractional_bits), frozenset(accepted), rejected)


def _noise_of_clients(round_: Round, groups: Iterable[Updates], randomness: Randomness, share: float) -> Aggregate:
    """Each honest client adds ``share`` of the noise σ·R' to its update; malicious ones add none."""
    params, total, accepted = round_.params, np.zeros(round_.params.dim, np.int64), set[str]()

    def noise(client: str) -> Grid:
        stream = randomness.stream(Purpose.NOISE, round_.context(client))
        return integer_gaussian(share * _noise_std(round_), params.dim, stream)

    for updates in groups:
        for client, drawn in zip(updates.honest, on_both_cores(noise, updates.honest), strict=True):
            total += updates.honest[client] + drawn
        for update in updates.malicious.values():
            total += _on_the_grid(update, params.fractional_bits)
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
