"""Two shares of a vector (paper, §2.3; PROTOCOL §3).

B's share is expanded from a seed, so B receives 32 bytes and A the whole vector. Either share alone is
indistinguishable from uniform: B's by the security of AES-CTR as a generator, A's because it is masked by B's.
"""

from collections.abc import Iterator

import numpy as np

from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import Context, Purpose, Stream
from precad.mpc.secret import Secret

BLOCK = 1 << 16
"""How many entries of a share are worked on at a time: 512 KiB, which stay in a core's cache from step to step."""
LONG = 1 << 18
"""From so many entries on shares are worked on in threads."""


def at_once(dim: int) -> int:
    """How many shares of so many entries are worked on at once, on however many cores: 128 MiB of them, or one.

    Short ones take their turn: threads would wait for each other at the interpreter for longer than they run.
    """
    return max(1, (1 << 24) // dim) if dim >= LONG else 1


def share_a(x: FieldVector, seed_b: Secret, context: Context) -> FieldVector:
    """Server A's share: x − PRG(seed_B). Paper: Algorithm 2, line 8."""
    mask = share_b(seed_b, context, x.size)
    return field.sub(x, mask, out=mask)


def share_b(seed_b: Secret, context: Context, size: int) -> FieldVector:
    """Server B's share: PRG(seed_B)."""
    return Stream(seed_b, Purpose.SHARE, context).field(size)


def blocks_b(seed_b: Secret, context: Context, size: int) -> Iterator[FieldVector]:
    """Server B's share, :data:`BLOCK` entries at a time, each time in the same memory."""
    stream, buffer = Stream(seed_b, Purpose.SHARE, context), np.empty(min(size, BLOCK), np.uint64)
    for start in range(0, size, BLOCK):
        block = buffer[: size - start]
        stream.fill_field(block)
        yield block


def reconstruct(a: FieldVector, b: FieldVector) -> FieldVector:
    """The vector of which ``a`` and ``b`` are the shares."""
    return field.add(a, b)
