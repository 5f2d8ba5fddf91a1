"""Two shares of a vector (paper, §2.3; PROTOCOL §3).

B's share is expanded from a seed, so B receives 32 bytes and A the whole vector. Either share alone is
indistinguishable from uniform: B's by the security of AES-CTR as a generator, A's because it is masked by B's.
"""

from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import Context, Purpose, Stream
from precad.mpc.secret import Secret


def share_a(x: FieldVector, seed_b: Secret, context: Context) -> FieldVector:
    """Server A's share: x − PRG(seed_B). Paper: Algorithm 2, line 8."""
    mask = share_b(seed_b, context, x.size)
    return field.sub(x, mask, out=mask)


def share_b(seed_b: Secret, context: Context, size: int) -> FieldVector:
    """Server B's share: PRG(seed_B)."""
    return Stream(seed_b, Purpose.SHARE, context).field(size)


def reconstruct(a: FieldVector, b: FieldVector) -> FieldVector:
    """The vector of which ``a`` and ``b`` are the shares."""
    return field.add(a, b)
