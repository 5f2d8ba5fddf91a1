"""A forger as strong as the protocol lets it be: every claim it can make true it makes true.

So a false vector is caught by the one check that is there to catch it. Used by ``cheating.py``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from precad.errors import PrecadError
from precad.messages import Header, decode
from precad.mpc import field, sharing, wires
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Stream
from precad.mpc.projection import ROWS
from precad.mpc.wires import M
from precad.params import Round
from precad.protocol import digests, submission
from precad.protocol.norm_proof import Shape
from precad.protocol.submission import ClientSecrets, Submission

Edit = Callable[[FieldVector], None]
"""A change to a tail, in place."""


def forge(
    round_: Round,
    client: str,
    x: FieldVector,
    *,
    h_error: int = 0,
    edit_tail: Edit | None = None,
    proof_of: FieldVector | None = None,
    secrets: ClientSecrets | None = None,
) -> Submission:
    """Submit any x ∈ F^d, with the most plausible proof there is.

    ``h_error`` is added to h; ``edit_tail`` changes the claims; ``proof_of`` is another vector to prove in place of x.
    """
    shape = submission.proof_shape(round_.params)
    h = int(field.lift(x).astype(object).sum()) // 2
    claimed = x if proof_of is None else proof_of

    def prove(masks: FieldVector, z: Stream) -> FieldVector:
        tail = forged_tail(shape, claimed, h, masks, z)
        if edit_tail is not None:
            edit_tail(tail)
        return tail

    extended = np.append(x, np.uint64((h + h_error) % P))
    forged = submission.assemble(round_, client, extended, secrets or ClientSecrets.fresh(), prove)
    if forged is None:
        raise PrecadError("a forger takes any secrets")
    return forged


def forged_tail(shape: Shape, x: FieldVector, h: int, masks: FieldVector, z: Stream) -> FieldVector:
    """The claims of an honest prover, computed mod p; a number with too many bits loses the upper ones."""
    slack = (shape.squared_bound - field.dot(x, x)) % P
    u = [(value - h + shape.window) % P for value in _project(x, z)]
    bits = [slack >> i & 1 for i in range(shape.norm_bits)]
    bits += [value >> i & 1 for value in u for i in range(shape.projection_bits)]
    beta = np.array(bits, np.uint64)
    polynomial = [field.dot(values, values) for values in _values(x, masks[: shape.entry_wires])]
    claims = np.array(polynomial[:M] + polynomial[M + 1 :], np.uint64)
    return np.concatenate([beta, claims, wires.squares(beta, masks[shape.entry_wires :])])


def _values(x: FieldVector, masks: FieldVector) -> Iterator[FieldVector]:
    """The values of all wires at 0, at 1, …, at 2m."""
    for t in range(2 * M + 1):
        values = np.empty(masks.size, np.uint64)
        wires.evaluate(x, masks, wires.lagrange(M + 1, t), values)
        yield values


def _project(x: FieldVector, z: Stream) -> list[int]:
    """Z·x mod p."""
    words = np.empty(2 * x.size, np.uint64)
    z.fill_words(words)
    rows = np.unpackbits(words.view(np.uint8).reshape(x.size, ROWS // 8), axis=1, bitorder="little").astype(np.int64)
    low, high = (x & np.uint64(0xFFFFFFFF)).astype(np.int64), (x >> np.uint64(32)).astype(np.int64)
    return [(int(a) + (int(b) << 32)) % P for a, b in zip(low @ rows, high @ rows, strict=True)]


def honest(round_: Round) -> FieldVector:
    """A vector well within its bound."""
    return scaled(round_, 0.4)


def just_over(round_: Round) -> FieldVector:
    """The smallest squared norm over the bound: S + 1."""
    return _with_entries(round_, _sum_of_squares(round_.params.squared_bound + 1))


def scaled(round_: Round, factor: float) -> FieldVector:
    """A vector of norm factor·C, all entries equal."""
    entry = math.ceil(factor * math.sqrt(round_.params.squared_bound / round_.params.dim))
    return np.full(round_.params.dim, entry, np.uint64)


def wrapped(round_: Round, count: int) -> FieldVector:
    """``count`` huge entries whose squares add up to a little over a multiple of p: the norm wraps to a small one."""
    count = min(count, round_.params.dim)
    generator = np.random.default_rng(count)
    entries = [int(v) for v in generator.integers(1 << 29, 1 << 30, count - 1)]
    total = sum(v * v for v in entries)
    multiple = -(-total // P) * P if total else P
    entries.append(math.isqrt(multiple - total - 1) + 1)
    return _with_entries(round_, entries)


def near_half(round_: Round, offset: int) -> FieldVector:
    """Entries near ±p/2, where the centred lift changes sign."""
    return _with_entries(round_, [(P // 2 + offset + i) % P for i in range(min(round_.params.dim, 4))])


def null_norm(round_: Round) -> FieldVector:
    """Three entries with x·x ≡ 0 mod p."""
    for a in range(1, 1000):
        rest = -(a * a + 1) % P
        root = pow(rest, (P + 1) // 4, P)  # p ≡ 3 mod 4
        if root * root % P == rest:
            return _with_entries(round_, [a, 1, root])
    raise AssertionError("half of all numbers are squares")


def known_projections(round_: Round, client: str) -> FieldVector:
    """A wrapped vector whose first 64 projections are 0, for the Z of *another* submission of the same client.

    A client that knew Z before it fixed x would win like this.
    """
    decoy = forge(round_, client, np.zeros(round_.params.dim, np.uint64))
    header = decode(decoy.header, Header)
    z = submission.projections(round_, client, header.commitment_a, header.commitment_b)
    words = np.empty(2 * 65, np.uint64)
    z.fill_words(words)
    rows = np.unpackbits(words.view(np.uint8).reshape(65, 16), axis=1, bitorder="little")[:, :64].T
    return _with_entries(round_, _kernel_vector([[int(v) for v in row] for row in rows]))


def best_ground_salts(round_: Round, client: str, tries: int) -> tuple[FieldVector, ClientSecrets]:
    """The entry ⌈√p⌉, with the salts out of many under which the most rows of Z miss it."""
    x = wrapped(round_, 1)
    extended = np.append(x, np.uint64(int(x[0]) // 2))
    first = ClientSecrets.fresh()
    share = sharing.share_a(extended, first.seed_b, round_.context(client))
    commitment_a = digests.commit_a(first.salt_a, share)
    best, fewest = first, ROWS
    words = np.empty(2, np.uint64)
    for _ in range(tries):
        secrets = replace(first, salt_b=ClientSecrets.fresh().salt_b)
        commitment_b = digests.commit_b(secrets.salt_b, secrets.seed_b)
        submission.projections(round_, client, commitment_a, commitment_b).fill_words(words)
        hits = int(np.bitwise_count(words).sum())
        if hits < fewest:
            best, fewest = secrets, hits
    return x, best


def _with_entries(round_: Round, entries: list[int]) -> FieldVector:
    """A vector with these first entries, and zeros."""
    x = np.zeros(round_.params.dim, np.uint64)
    x[: len(entries)] = entries
    return x


def _sum_of_squares(n: int) -> list[int]:
    """n as a sum of squares, greedily: each step takes the square root of what is left."""
    squares = []
    while n:
        squares.append(math.isqrt(n))
        n -= squares[-1] ** 2
    return squares


def _kernel_vector(rows: list[list[int]]) -> list[int]:
    """A non-zero vector that a matrix over F_p, wider than high, maps to 0."""
    matrix = [row[:] for row in rows]
    width = len(matrix[0])
    pivots: list[int] = []
    for column in range(width):
        pivot = next((i for i in range(len(pivots), len(matrix)) if matrix[i][column] % P), None)
        if pivot is None:
            free = column
            break
        matrix[len(pivots)], matrix[pivot] = matrix[pivot], matrix[len(pivots)]
        top = matrix[len(pivots)]
        inverse = pow(top[column], -1, P)
        top[:] = [v * inverse % P for v in top]
        for i, row in enumerate(matrix):
            if i != len(pivots) and row[column]:
                factor = row[column]
                row[:] = [(v - factor * t) % P for v, t in zip(row, top, strict=True)]
        pivots.append(column)
    result = [0] * width
    result[free] = 1
    for i, column in enumerate(pivots):
        result[column] = -matrix[i][free] % P
    return result
