"""The hash H and the generator of pseudo-random vectors (PROTOCOL §3).

One purpose, one stream: if the share and a mask came from one stream, an opening would reveal the update.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import NewType

import numpy as np
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from precad.mpc.field import FieldVector, P
from precad.mpc.kernels import kernel
from precad.mpc.secret import Secret

DIGEST_BYTES = 32
MAX_NAME_BYTES = 64

Digest = NewType("Digest", bytes)
"""32 bytes that H made."""

_CHUNK_WORDS = 1 << 14  # 128 KiB: the words are still in cache when they are masked
_ZEROS = bytes(8 * _CHUNK_WORDS)
_P = np.uint64(P)


def digest(purpose: bytes, *parts: bytes) -> Digest:
    """H: BLAKE2b-256, personalised with ``purpose`` (at most 16 bytes), over length-prefixed parts."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES, person=purpose)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return Digest(state.digest())


def vector_digest(x: FieldVector) -> Digest:
    """BLAKE3 of a vector's words, to stand for the vector in H: eight times faster than BLAKE2b on long data."""
    return Digest(blake3(x.view(np.uint8).data, derive_key_context="precad 1 vector").digest())


class Purpose(Enum):
    """What a stream is for; each value is a separate domain."""

    SHARE = b"precad share"
    WIRE = b"precad wire"
    TAIL = b"precad tail"
    Z = b"precad Z"
    CHALLENGE = b"precad challenge"
    NOISE = b"precad noise"
    ROUND_Z = b"precad round Z"
    SQUARE = b"precad square"
    SQUARE_SHARE = b"precad norm"
    MASK = b"precad mask"
    MASK_BITS = b"precad mask bits"
    AND = b"precad and"
    SELECTION = b"precad selection"
    SAMPLE = b"precad sample"


@dataclass(frozen=True)
class Context:
    """What every stream is bound to: the task's digest, the round, and the name of the party that draws it."""

    task: Digest
    round: int
    party: str

    def __post_init__(self) -> None:
        if len(self.task) != DIGEST_BYTES:
            raise ValueError(f"task must be a digest of {DIGEST_BYTES} bytes, got {len(self.task)}")
        if type(self.round) is not int or not 0 <= self.round < 1 << 64:
            raise ValueError(f"round must be a whole number in [0, 2^64), got {self.round}")
        check_name(self.party)

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """The context as inputs of :func:`digest`."""
        return self.task, self.round.to_bytes(8, "little"), self.party.encode()


def check_name(name: str) -> None:
    """Refuse a name that is not printable text of 1 to 64 bytes."""
    if not (isinstance(name, str) and name.isprintable() and 1 <= len(name.encode()) <= MAX_NAME_BYTES):
        raise ValueError(f"a name is printable text of 1 to {MAX_NAME_BYTES} bytes, got {name!r}")


class Stream:
    """The PRG, a cryptographic stream of 64-bit words: AES-128-CTR, key ‖ initial counter = H(seed, purpose, context).

    Masks and differential-privacy noise are drawn from this type alone; a numpy generator is another type,
    and refused.
    """

    def __init__(self, seed: Secret, purpose: Purpose, context: Context) -> None:
        self.purpose = purpose
        material = digest(purpose.value, seed.value, *context.parts())
        self._cipher: CipherContext = Cipher(algorithms.AES(material[:16]), modes.CTR(material[16:])).encryptor()

    def fill_words(self, out: NDArray[np.uint64]) -> None:
        """Overwrite ``out`` with the stream's next words, little-endian."""
        if out.dtype != np.uint64 or out.ndim != 1 or not out.flags.c_contiguous:
            raise ValueError(f"expected a contiguous uint64 vector, got {out.dtype} of shape {out.shape}")
        target = out.view(np.uint8).data
        for start in range(0, len(target), len(_ZEROS)):
            part = target[start : start + len(_ZEROS)]
            self._cipher.update_into(memoryview(_ZEROS)[: len(part)], part)

    def fill_field(self, out: FieldVector) -> None:
        """Overwrite ``out`` with uniform field elements.

        Each word keeps its low 61 bits; the value p is discarded and the next word used, so the elements
        are exactly uniform if the words are.
        """
        filled = 0
        while filled < out.size:
            part = out[filled : filled + _CHUNK_WORDS]
            self.fill_words(part)
            filled += _keep_field_elements(part)

    def field(self, size: int) -> FieldVector:
        """``size`` uniform field elements."""
        out = np.empty(size, np.uint64)
        self.fill_field(out)
        return out


@kernel
def _keep_field_elements(words: NDArray[np.uint64]) -> int:
    """Mask each word to 61 bits, move those other than p to the front, and return how many there are."""
    found = False
    for i in range(words.size):
        words[i] &= _P
        found |= words[i] == _P
    if not found:
        return words.size
    kept = 0
    for i in range(words.size):
        if words[i] != _P:
            words[kept] = words[i]
            kept += 1
    return kept
