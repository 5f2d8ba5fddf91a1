"""The servers: the sum of the valid shares plus noise (paper, Algorithm 1, line 5; PROTOCOL §6)."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field, sharing
from precad.mpc.field import FieldVector
from precad.mpc.prg import Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy.noise import integer_gaussian
from precad.protocol.params import Round


def noisy_sum(round_: Round, server: str, shares: Iterable[FieldVector], noise_seed: Secret) -> FieldVector:
    """One server's share of Σ x_i, plus its own integer Gaussian. The last entry of a share, h, is left out."""
    dim = round_.params.dim
    total = field.total((share[:dim] for share in shares), dim)
    stream = Stream(noise_seed, Purpose.NOISE, round_.context(server))
    noise = field.embed(integer_gaussian(round_.params.noise_std, dim, stream))
    return field.add(total, noise, out=noise)


def open_sum(a: FieldVector, b: FieldVector) -> NDArray[np.int64]:
    """Σ x_i + ξ_A + ξ_B on the grid, from the two noisy shares: the only thing that is ever opened."""
    return field.lift(sharing.reconstruct(a, b))
