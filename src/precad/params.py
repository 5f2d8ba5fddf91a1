"""The parameters of a task, checked at birth, and the integers that follow from them (PROTOCOL §2, §3)."""

import math
from dataclasses import dataclass
from functools import cached_property

from precad.mpc import fixed_point
from precad.privacy import clipping, noise


@dataclass(frozen=True, kw_only=True)
class Params:
    """What all parties of a task agree on. An impossible combination is a ``ValueError`` that says why."""

    dim: int
    """d, the number of the model's parameters."""
    clients: int
    """n, the number of clients in the roster."""
    record_bound: float
    """R, the bound on the norm of one record's gradient."""
    client_bound: float
    """C, the bound on the norm of a client's update."""
    noise_multiplier: float
    """σ: each server's noise has standard deviation σ·R'."""

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= fixed_point.MAX_DIM:
            raise ValueError(f"dim must be in [1, 2^32], got {self.dim}")
        if self.clients < 1:
            raise ValueError(f"clients must be at least 1, got {self.clients}")
        for name in ("record_bound", "client_bound", "noise_multiplier"):
            fixed_point.check_positive(name, getattr(self, name))
        if not noise.MIN_STD <= self.noise_std <= noise.MAX_STD:
            raise ValueError(
                f"noise_multiplier = {self.noise_multiplier} gives noise of {self.noise_std:.3g} grid units, "
                f"outside [{noise.MIN_STD}, 2^40]"
            )
        fixed_point.check_sum_fits(self.clients, self.client_bound, self.noise_std, self.fractional_bits)

    @cached_property
    def fractional_bits(self) -> int:
        """f, the number of fractional bits of the grid."""
        return fixed_point.choose_fractional_bits(self.client_bound)

    @cached_property
    def sensitivity(self) -> float:
        """R', the bound on what one record moves in the encoded sum, in the units of R."""
        return clipping.sensitivity(self.record_bound, self.dim, self.fractional_bits)

    @cached_property
    def noise_std(self) -> float:
        """s = σ·R'·2^f, the standard deviation of each server's noise in grid units."""
        return math.ldexp(self.noise_multiplier * self.sensitivity, self.fractional_bits)
