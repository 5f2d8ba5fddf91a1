"""The parameters of a task, checked at birth, and the integers that follow from them (PROTOCOL §2, §3)."""

import math
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property

from precad.mpc import fixed_point
from precad.mpc.prg import Context, Digest, digest
from precad.privacy import clipping, noise
from precad.privacy.terms import Adversary, Terms

MIN_NOISE_STD = 8
"""In grid units: both servers' rounded noises then sum to one rounded noise, within 2^-800 (security.md, Lemma 7)."""


class Validation(Enum):
    """How the servers learn that an update is within C."""

    PROOF = "proof"
    """By a proof that the client makes (PROTOCOL §4): the default."""
    TRIPLES = "triples"
    """By Beaver triples from a dealer and a comparison gate: the paper's own protocol (PROTOCOL §5)."""
    NONE = "none"
    """Not at all: the paper's faster version. Privacy holds; one malicious client can set the sum to anything."""


class Unit(Enum):
    """What one neighbouring data set lacks."""

    RECORD = "record"
    """One record: sensitivity R'."""
    CLIENT = "client"
    """All of a client's records, whatever its local training: sensitivity C."""


class Normalise(Enum):
    """What the opened sum is divided by (PROTOCOL §2)."""

    CONSTANT = "constant"
    """N = q·Σ p·|D_i| over all clients; q·n if the unit is the client: public, and the same in every round."""
    REALISED = "realised"
    """The paper's Σ p·|D_i| over the valid clients, or their number, which tells who took part.

    With nobody valid the model stays as it is.
    """


@dataclass(frozen=True, kw_only=True)
class Params:
    """What all parties of a task agree on.

    Raises:
        ValueError: A combination is impossible; the message names the number, the value and the bound.

    Example:
        >>> Params(dim=26_010, clients=100, record_bound=2, client_bound=30, noise_multiplier=1).fractional_bits
        16
    """

    dim: int
    """d, the number of the model's parameters."""
    clients: int
    """n, the number of clients in the roster."""
    record_bound: float
    """R, the bound on the norm of one record's gradient."""
    client_bound: float
    """C, the bound on the norm of a client's update."""
    noise_multiplier: float
    """σ: each server's noise has standard deviation σ times the sensitivity."""
    validation: Validation = Validation.PROOF
    noise: Adversary = Adversary.SERVER
    """Who sees σ: each server adds σ·R', or σ·R'/√2 where the noise is to protect against clients only."""
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        if type(self.dim) is not int or not 1 <= self.dim <= fixed_point.MAX_DIM:
            raise ValueError(f"dim must be a whole number in [1, 2^32], got {self.dim}")
        if type(self.clients) is not int or self.clients < 1:
            raise ValueError(f"clients must be a whole number of at least 1, got {self.clients}")
        fixed_point.check_positive("noise_multiplier", self.noise_multiplier)
        fixed_point.check_grid_bound("client_bound", self.client_bound, self.fractional_bits)
        fixed_point.check_grid_bound("record_bound", self.record_bound, self.fractional_bits)
        if not MIN_NOISE_STD <= self.noise_std <= noise.MAX_STD:
            raise ValueError(
                f"noise_multiplier = {self.noise_multiplier} and a sensitivity of {self.sensitivity:.6g} give noise of "
                f"{self.noise_std:.3g} grid units, outside [{MIN_NOISE_STD}, 2^40]"
            )
        fixed_point.check_sum_fits(self.clients, self.client_bound, self.noise_std, self.fractional_bits)

    @cached_property
    def fractional_bits(self) -> int:
        """f, the number of fractional bits of the grid."""
        return fixed_point.choose_fractional_bits(self.client_bound)

    @cached_property
    def digest(self) -> Digest:
        """H of all parameters, exactly."""
        values = (f"{item.name}={_exact(getattr(self, item.name), item.type)}" for item in fields(self))
        return digest(b"precad params", *(value.encode() for value in values))

    @cached_property
    def squared_bound(self) -> int:
        """S, the largest squared norm of an update on the grid."""
        return fixed_point.squared_bound(self.client_bound, self.fractional_bits)

    @cached_property
    def sensitivity(self) -> float:
        """How far one unit moves the encoded sum: R' for a record, C for a client."""
        if self.unit is Unit.CLIENT:
            return self.client_bound
        return clipping.sensitivity(self.record_bound, self.dim, self.fractional_bits)

    @cached_property
    def noise_std(self) -> float:
        """The standard deviation of each server's noise in grid units: σ·R'·2^f, or σ·R'·2^f/√2."""
        return self.noise.noise_of_each(math.ldexp(self.noise_multiplier * self.sensitivity, self.fractional_bits))

    @cached_property
    def noise_over_bound(self) -> float:
        """σ̃: the standard deviation of all noise in an opened sum, which is both servers', over C."""
        return math.ldexp(math.sqrt(2) * self.noise_std, -self.fractional_bits) / self.client_bound

    def terms(self, record_rate: float, delta: float, unit: Unit | None = None) -> Terms:
        """What a participation costs at δ, if a record is in a sample with probability ``record_rate``.

        Args:
            record_rate: p.
            delta: δ.
            unit: Whose cost, if not that of the unit that the noise is made for. Of a record where clients are
                protected: it may turn the client's update from one within C into any other, 2·C apart. Of a client
                where records are protected: its update, within C, may vanish.
        """
        unit = unit or self.unit
        moved = 1.0
        if unit is not self.unit:
            moved = 2.0 if unit is Unit.RECORD else self.client_bound / self.sensitivity
        return Terms(
            sigma=self.noise.noise_of_each(self.noise_multiplier) / moved,
            record_rate=record_rate if unit is self.unit is Unit.RECORD else 1.0,
            delta=delta,
            dim=self.dim,
        )


@dataclass(frozen=True)
class Round:
    """What one round is bound to: the task's parameters and digest, the round's number, the model, both nonces."""

    params: Params
    task: Digest
    number: int
    model: Digest
    nonces: Digest
    """H of the commitments to both servers' nonces (:func:`precad.protocol.digests.nonces`)."""

    def context(self, party: str) -> Context:
        """What the streams of ``party`` are bound to in this round."""
        return Context(self.task, self.number, party)


def _exact(value: object, kind: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return float(value).hex() if kind is float else str(value)  # type: ignore[arg-type] # a number: 30 is 30.0
