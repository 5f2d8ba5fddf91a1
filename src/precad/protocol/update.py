"""Step 4: the noisy sum becomes the next model (paper, Algorithm 1, line 6; PROTOCOL §2)."""

import numpy as np
from numpy.typing import NDArray

from precad.mpc import fixed_point


def next_model(
    model: NDArray[np.float64],
    noisy_sum: NDArray[np.int64],
    fractional_bits: int,
    learning_rate: float,
    normaliser: float,
) -> NDArray[np.float64]:
    """θ + η/N·(Σ Δ_i + ξ_A + ξ_B): a fixed sequence of IEEE operations, so that both servers get the same bits.

    N is the public constant q·Σ p_i·|D_i| by default. The paper divides by the realised Σ_{valid} p_i·|D_i|,
    which tells everyone who took part.
    """
    if not normaliser > 0:
        raise ValueError(f"normaliser N must be above 0, got {normaliser}")
    return model + (learning_rate / normaliser) * fixed_point.decode(noisy_sum, fractional_bits)
