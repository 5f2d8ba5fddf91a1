"""The servers: the sum of the valid shares plus noise (paper, Algorithm 1, line 5; PROTOCOL §6)."""

import math
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field, sharing
from precad.mpc.cores import each_on_usable_cores
from precad.mpc.field import FieldVector
from precad.mpc.prg import Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy.noise import integer_gaussian
from precad.protocol.params import Params, Round, Validation

_DEVIATIONS = 7.0
"""e^(−7²/2) < 2^-35."""


def noisy_sum(round_: Round, server: str, shares: Iterable[Iterable[FieldVector]], noise_seed: Secret) -> FieldVector:
    """One server's share of Σ x_i, plus its own integer Gaussian: on the cores, with one sum in memory for each.

    A share comes in blocks, which are taken one after the other. Its last entry, h, is left out.
    """
    dim, sums = round_.params.dim, list[FieldVector]()

    def noise() -> Iterator[FieldVector]:
        stream = Stream(noise_seed, Purpose.NOISE, round_.context(server))
        yield field.embed(integer_gaussian(round_.params.noise_std, dim, stream))

    def add(blocks: Iterable[FieldVector]) -> None:
        try:
            total = sums.pop()  # that no other thread adds to
        except IndexError:
            total = np.zeros(dim, np.uint64)
        start = 0
        for block in blocks:
            into = total[start : start + block.size]
            field.accumulate(into, block[: into.size])
            start += block.size
        sums.append(total)

    for _ in each_on_usable_cores(add, chain([noise()], shares), sharing.at_once(dim)):
        pass
    return field.total(sums, dim)


def open_sum(a: FieldVector, b: FieldVector) -> NDArray[np.int64]:
    """Σ x_i + ξ_A + ξ_B on the grid, from the two noisy shares: the only thing that is ever opened."""
    return field.lift(sharing.reconstruct(a, b))


def longest_sum(params: Params, valid: int) -> float:
    """The length, on the grid, that the noisy sum of so many valid updates exceeds with a probability below 2^-35.

    n·C·2^f + √2·s·(√d + 7) + √d: a Gaussian vector of standard deviation √2·s is longer than √2·s·(√d + t) with
    probability at most e^(−t²/2), and rounding moves each of two noises by at most ½ a coordinate. Without validation
    an update has any length, and so has the sum.
    """
    if params.validation is Validation.NONE:
        return math.inf
    root = math.sqrt(params.dim)
    updates = valid * math.ldexp(params.client_bound, params.fractional_bits)
    return updates + math.sqrt(2) * params.noise_std * (root + _DEVIATIONS) + root
