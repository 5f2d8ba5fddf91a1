"""A forger as strong as the protocol lets it be: it lies only where it must.

So each kind of false vector fails exactly the check that is there for it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from precad.mpc import field, sharing, wires
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Stream
from precad.mpc.projection import ROWS
from precad.protocol import digests, submission
from precad.protocol.messages import Header, PartA, PartB, decode, encode
from precad.protocol.norm_proof import Shape
from precad.protocol.params import Round, Validation
from precad.protocol.submission import ClientSecrets, Submission

Edit = Callable[[FieldVector], None]
"""A change to a vector, in place."""


def forge(
    round_: Round,
    client: str,
    x: FieldVector,
    *,
    h: int | None = None,
    claimed_h: int | None = None,
    proof_of: FieldVector | None = None,
    edit_bits: Edit | None = None,
    edit_tail: Edit | None = None,
    edit_share: Edit | None = None,
    secrets: ClientSecrets | None = None,
) -> Submission:
    """Submit any x ∈ F^d, with the most plausible proof there is.

    Shared is (x, ``h``); proved is ``proof_of``, with ``claimed_h``. ``edit_bits`` changes the bits before their
    squares are claimed, ``edit_tail`` any claim, ``edit_share`` the words of A's share before they are committed to.
    """
    secrets = secrets or ClientSecrets.fresh()
    h = int(field.lift(x).astype(object).sum()) // 2 if h is None else h
    share = sharing.share_a(np.append(x, np.uint64(h % P)), secrets.seed_b, round_.context(client))
    words = _edited(share, edit_share)
    commitment_a = digests.commit_a(secrets.salt_a, words)
    commitment_b = digests.commit_b(secrets.salt_b, secrets.seed_b)
    tail = np.empty(0, np.uint64)
    if round_.params.validation is Validation.PROOF:
        masks = [submission.masks_of(round_, client, seed) for seed in (secrets.seed_a, secrets.seed_b)]
        z = submission.projections(round_, client, commitment_a, commitment_b)
        proved, proved_h = x if proof_of is None else proof_of, h if claimed_h is None else claimed_h
        claims = _forged_tail(submission.proof_shape(round_.params), proved, proved_h, field.add(*masks), z, edit_bits)
        tail = field.sub(_edited(claims, edit_tail), submission.tail_b(round_, client, secrets.seed_b))
    part_a = PartA(secrets.salt_a, secrets.seed_a, commitment_b, words, tail)
    part_b = PartB(secrets.salt_b, secrets.seed_b, commitment_a)
    named = digests.part_a(part_a, commitment_a), digests.part_b(part_b, commitment_b)
    header = Header(round_.task, round_.number, round_.model, round_.nonces, client, commitment_a, commitment_b, *named)
    return Submission(encode(header), _encode_anything(part_a), encode(part_b))


def _edited(vector: FieldVector, edit: Edit | None) -> FieldVector:
    changed = vector.copy()
    if edit is not None:
        edit(changed)
    return changed


def _encode_anything(part: PartA) -> bytes:
    """The bytes of a part whose share may have words of p or more, which the codec would not send."""
    raw = encode(replace(part, share=np.zeros_like(part.share)))
    start = len(raw) - 8 * (part.tail.size + 1 + part.share.size)
    return raw[:start] + part.share.tobytes() + raw[start + 8 * part.share.size :]


def _forged_tail(
    shape: Shape, x: FieldVector, h: int, masks: FieldVector, z: Stream, edit_bits: Edit | None
) -> FieldVector:
    """The claims of an honest prover, computed mod p; a number with too many bits loses the upper ones."""
    slack = (shape.squared_bound - field.dot(x, x)) % P
    u = [(value - h + shape.window) % P for value in _project(x, z)]
    bits = [slack >> i & 1 for i in range(shape.norm_bits)]
    bits += [value >> i & 1 for value in u for i in range(shape.projection_bits)]
    beta = _edited(np.array(bits, np.uint64), edit_bits)
    m, values, polynomial = shape.wire, np.empty(shape.entry_wires, np.uint64), []
    for t in range(2 * m + 1):
        wires.evaluate(x, masks[: shape.entry_wires], wires.lagrange(m + 1, t), values)
        polynomial.append(field.dot(values, values))
    claims = np.array(polynomial[:m] + polynomial[m + 1 :], np.uint64)
    return np.concatenate([beta, claims, wires.squares(beta, masks[shape.entry_wires :], m)])


def _project(x: FieldVector, z: Stream) -> list[int]:
    """The 128 entries of Z·x mod p."""
    columns = _columns(z, x.size)
    low, high = (x & np.uint64(0xFFFFFFFF)).astype(np.int64), (x >> np.uint64(32)).astype(np.int64)
    return [(int(a) + (int(b) << 32)) % P for a, b in zip(low @ columns, high @ columns, strict=True)]


def _columns(z: Stream, dim: int) -> NDArray[np.int64]:
    """The first columns of Z, one in each row of the result."""
    words = np.empty(2 * dim, np.uint64)
    z.fill_words(words)
    return np.unpackbits(words.view(np.uint8).reshape(dim, ROWS // 8), axis=1, bitorder="little").astype(np.int64)


def honest(round_: Round) -> FieldVector:
    """A vector well within its bound."""
    return scaled(round_, 0.4)


def just_over(round_: Round) -> FieldVector:
    """The smallest squared norm over the bound: S + 1, as a sum of squares, each as large as what is left."""
    rest, entries = round_.params.squared_bound + 1, list[int]()
    while rest:
        entries.append(math.isqrt(rest))
        rest -= entries[-1] ** 2
    return _with_entries(round_, entries)


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
    return _with_entries(round_, next([a, 1, root] for a in count(1) for root in square_roots(-(a * a + 1))))


def square_roots(n: int) -> list[int]:
    """A square root of n mod p ≡ 3 mod 4, or nothing: half of all numbers have one."""
    root = pow(n, (P + 1) // 4, P)
    return [root] if (root * root - n) % P == 0 else []


def known_projections(round_: Round, client: str) -> FieldVector:
    """A huge vector with x·x ≡ 0 whose 128 projections are all 0, for the Z of *another* submission of the client.

    A client that knew Z before it fixed x would win like this; it needs 131 dimensions.
    """
    decoy = forge(round_, client, np.zeros(round_.params.dim, np.uint64))
    header = decode(decoy.header, Header)
    z = submission.projections(round_, client, header.commitment_a, header.commitment_b)
    a, b, c = _kernel(_columns(z, ROWS + 3))
    aa, ab, roots = field.dot(a, a), 0, list[int]()
    while not roots:  # for half of all b there is a t for which the square of t·a + b is 0
        b = field.add(b, c)
        ab = field.dot(a, b)
        roots = square_roots(ab * ab - aa * field.dot(b, b))
    return _with_entries(round_, field.axpy((roots[0] - ab) * pow(aa, -1, P), a, b).tolist())


def best_ground_salts(round_: Round, client: str, x: FieldVector, tries: int) -> ClientSecrets:
    """The salts out of many under which the most rows of Z miss the one entry of x, its first."""
    extended = np.append(x, np.uint64(int(x[0]) // 2))
    first = ClientSecrets.fresh()
    share = sharing.share_a(extended, first.seed_b, round_.context(client))
    commitment_a = digests.commit_a(first.salt_a, share)

    def hits(secrets: ClientSecrets) -> int:
        commitment_b = digests.commit_b(secrets.salt_b, secrets.seed_b)
        return int(_columns(submission.projections(round_, client, commitment_a, commitment_b), 1).sum())

    return min((replace(first, salt_b=ClientSecrets.fresh().salt_b) for _ in range(tries)), key=hits)


def _with_entries(round_: Round, entries: list[int]) -> FieldVector:
    """A vector with these first entries, and zeros."""
    x = np.zeros(round_.params.dim, np.uint64)
    x[: len(entries)] = entries
    return x


def _kernel(columns: NDArray[np.int64]) -> list[FieldVector]:
    """A basis of what the matrix of these columns maps to 0 mod p; its first columns become those of the identity."""
    matrix = columns.T.astype(object)
    rank = len(matrix)  # all of its rows, but with a probability of about 1/p
    for i in range(rank):
        pivot = i + np.flatnonzero(matrix[i:, i])[0]
        matrix[[i, pivot]] = matrix[[pivot, i]]
        matrix[i] = matrix[i] * pow(matrix[i, i], -1, P) % P
        others = np.where(np.arange(rank) == i, 0, matrix[:, i])
        matrix = (matrix - np.outer(others, matrix[i])) % P
    free = np.eye(len(columns) - rank, dtype=np.uint64)
    return [
        np.append((-solution % P).astype(np.uint64), unit) for solution, unit in zip(matrix.T[rank:], free, strict=True)
    ]
