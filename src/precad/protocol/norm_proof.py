"""Validation by a proof that the client makes: no dealer, no third party (PROTOCOL §4).

The client proves, on shares, that its integer vector x has ‖x‖² ≤ S *over the integers*, not only mod p:

1. S − x·x is a number of w bits (mod p);
2. 128 random 0/1 projections of x, each u_j = Z_j·x − h with h ≈ ½·Σ x_i, lie in [−τ, τ): numbers of k bits after
   adding τ. This closes the wrap-around: a vector with ‖x‖² ≥ p/2 passes with probability below 2^-128;
3. every bit is a bit, and x·x is what the client says, by polynomial identities at a random point r.

All the client's claims form one vector, the *tail*: the bits, the values of P, the values of the P_n. Each server's
check is then a linear function of its shares, and one message. ``docs/security.md`` has the lemmas and their proofs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field, fixed_point, projection, wires
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Context, Digest, Purpose, Stream
from precad.mpc.projection import ROWS
from precad.mpc.secret import Redacted, Secret

V_BITS = 57
"""The weights v_j have 57 bits: a sum of 128 of them fits in a word, which is what makes vᵀZ fast."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a proof, from d and S. Parameters outside the lemmas' conditions are a ``ValueError``."""

    dim: int
    squared_bound: int

    def __post_init__(self) -> None:
        if self.window > fixed_point.MAX_WINDOW:
            raise ValueError(
                f"Lemma 3 (wrap-around, small entries) needs τ ≤ √p/16 = 2^26, got τ = {self.window} for S = "
                f"{self.squared_bound}"
            )
        if self.dim > fixed_point.MAX_DIM:
            raise ValueError(f"Lemma 3 (wrap-around, small entries) needs d ≤ 2^32, got {self.dim}")

    @cached_property
    def window(self) -> int:
        """τ."""
        return fixed_point.window(self.squared_bound)

    @cached_property
    def norm_bits(self) -> int:
        """w, the bits of S − x·x."""
        return self.squared_bound.bit_length()

    @cached_property
    def projection_bits(self) -> int:
        """k, the bits of u_j + τ."""
        return self.window.bit_length()

    @cached_property
    def bits(self) -> int:
        """L = w + 128·k."""
        return self.norm_bits + ROWS * self.projection_bits

    @cached_property
    def wire(self) -> int:
        """m, the number of entries of a wire."""
        return wires.length(self.dim)

    @cached_property
    def entry_wires(self) -> int:
        """The number of wires that x is cut into."""
        return wires.count(self.dim, self.wire)

    @cached_property
    def bit_wires(self) -> int:
        """The number of wires that the bits are cut into."""
        return wires.count(self.bits, self.wire)

    @cached_property
    def tail(self) -> int:
        """The length of the tail: the bits, P at 0..2m but m, each P_n at 0 and m+1..2m."""
        return self.bits + 2 * self.wire + self.bit_wires * (self.wire + 1)

    @cached_property
    def online_soundness(self) -> float:
        """Lemma 1: a false proof passes one challenge with at most this probability."""
        return 1 / P + 2 * self.wire / (P - self.wire) + 2.0 ** (61 - V_BITS) / P

    @cached_property
    def offline_soundness(self) -> float:
        """Lemmas 2 and 3: a fixed vector that wraps passes all projections with at most this probability."""
        normal = 2 * self.window / (math.sqrt(P / 8) * math.sqrt(2 * math.pi))
        berry_esseen = 2 * 0.56 * 2 * self.window / math.sqrt(P / 2)
        return float(max(0.5, normal + berry_esseen) ** ROWS)

    @cached_property
    def honest_redraw(self) -> float:
        """Lemma 4: an honest client has to draw new salts with at most this probability (Hoeffding)."""
        return ROWS * 2 * math.exp(-2 * (self.window - 1) ** 2 / max(self.squared_bound, 1))


def prove(shape: Shape, x: NDArray[np.int64], h: int, masks: FieldVector, z: Stream) -> FieldVector | None:
    """The client's tail for x, ‖x‖² ≤ S, or None if a projection leaves its window and new salts are needed."""
    u = projection.project(x, z) - h + shape.window
    if not ((u >= 0) & (u < 2 * shape.window)).all():
        return None
    m = shape.wire
    polynomial = wires.sum_of_squares(x, masks[: shape.entry_wires], m)
    slack = shape.squared_bound - int(polynomial[1 : m + 1].sum())  # a wire has its entries at 1..m: Σ P(j) = x·x
    bits = np.concatenate([_bits(np.array([slack]), shape.norm_bits), _bits(u, shape.projection_bits)])
    squares = wires.squares(bits, masks[shape.entry_wires :], m)
    return np.concatenate([bits, polynomial[:m], polynomial[m + 1 :], squares])


@dataclass(frozen=True)
class Challenge:
    """What the servers draw after closing, as the linear functions that each applies to its shares."""

    at_r: FieldVector
    """ℓ_0(r)..ℓ_m(r): a wire's value at r from its mask and entries."""
    wire_weights: FieldVector
    """w_n: the weight of each bit-wire."""
    v_tables: FieldVector
    v_sum: int
    tail_weights: FieldVector
    """P(r) + Σ w_n·P_n(r), as a function of the tail …"""
    tail_constant: int
    """… and of the constant S, which A alone adds."""
    bit_weights: FieldVector
    """Σ_j v_j·Σ_i 2^i·β_ji, as a function of the bits."""


def derive_challenge(shape: Shape, seed: Digest, context: Context) -> Challenge:
    """The challenge of a round: r ∈ F∖{1..m}, w_n, v_j, from H of both nonces."""
    m = shape.wire
    stream = Stream(Secret(seed), Purpose.CHALLENGE, context)
    r = int(stream.field(1)[0])
    while 1 <= r <= m:
        r = int(stream.field(1)[0])
    weights, v = stream.field(shape.bit_wires), stream.field(ROWS) >> np.uint64(61 - V_BITS)
    at_r = wires.lagrange(2 * m + 1, r)
    at_m = int(at_r[m])
    powers = np.array([pow(2, i, P) for i in range(max(shape.norm_bits, shape.projection_bits))], np.uint64)
    bit_parts = field.outer(weights, at_r[1 : m + 1])[: shape.bits]
    norm = slice(0, shape.norm_bits)
    bit_parts[norm] = field.axpy(-at_m, powers[norm], bit_parts[norm])
    p_parts = np.array([(int(at_r[j]) - at_m * (1 <= j < m)) % P for j in range(2 * m + 1) if j != m], np.uint64)
    p_n_parts = field.outer(weights, np.concatenate([at_r[:1], at_r[m + 1 :]]))
    return Challenge(
        at_r=wires.lagrange(m + 1, r),
        wire_weights=weights,
        v_tables=projection.tables(v),
        v_sum=int(v.astype(object).sum()) % P,
        tail_weights=np.concatenate([bit_parts, p_parts, p_n_parts]),
        tail_constant=at_m * shape.squared_bound % P,
        bit_weights=np.concatenate([np.zeros_like(powers[norm]), field.outer(v, powers[: shape.projection_bits])]),
    )


@dataclass(frozen=True, repr=False)
class Shares(Redacted):
    """What one server holds of a submission, expanded: its shares of (x, h), of the tail and of the wires at 0."""

    share: Iterable[FieldVector]
    """In blocks, each a multiple of a wire's length but the last."""
    tail: FieldVector
    masks: FieldVector


@dataclass(frozen=True, repr=False)
class Opening(Redacted):
    """One server's shares of what is opened of a submission: f_n(r) and g_n(r); P(r) + Σ w_n·P_n(r) and Λ."""

    wires: FieldVector
    sums: FieldVector


def open_check(shape: Shape, challenge: Challenge, shares: Shares, z: Stream, *, leader: bool) -> Opening:
    """A server's message about one submission (server steps 1 and 2). The leader, A, adds the public constants."""
    bits, masks = shares.tail[: shape.bits], shares.masks
    opened = np.empty(shape.entry_wires + shape.bit_wires, np.uint64)
    wires.evaluate(bits, masks[shape.entry_wires :], challenge.at_r, opened[shape.entry_wires :])
    polynomial = field.dot(shares.tail, challenge.tail_weights)
    inside, start, h = -field.dot(bits, challenge.bit_weights), 0, 0
    for block in shares.share:
        x = block[: shape.dim - start]
        own = slice(start // shape.wire, start // shape.wire + wires.count(x.size, shape.wire))
        wires.evaluate(x, masks[own], challenge.at_r, opened[own])
        inside += projection.weighted_product(challenge.v_tables, z, x)
        start, h = start + x.size, int(block[-1])
    inside -= challenge.v_sum * h
    if leader:
        polynomial += challenge.tail_constant
        inside += challenge.v_sum * shape.window
    return Opening(opened, np.array([polynomial % P, inside % P], np.uint64))


def accepts(shape: Shape, challenge: Challenge, a: Opening, b: Opening) -> bool:
    """Whether the two servers' openings show a valid submission (server step 3)."""
    opened, (polynomial, inside) = field.add(a.wires, b.wires), (int(s) for s in field.add(a.sums, b.sums))
    entries, bits = opened[: shape.entry_wires], opened[shape.entry_wires :]
    squares = field.dot(entries, entries) + field.dot(field.mul(bits, bits), challenge.wire_weights)
    return inside == 0 and squares % P == polynomial


def _bits(values: NDArray[np.int64], count: int) -> FieldVector:
    return ((values[:, None] >> np.arange(count)) & 1).astype(np.uint64).ravel()
