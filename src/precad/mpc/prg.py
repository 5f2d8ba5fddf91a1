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
    return digest_of_framed(purpose, *map(framed, parts))


def framed(part: bytes) -> bytes:
    """A part of what is hashed, after its length."""
    return len(part).to_bytes(8, "little") + part


def digest_of_framed(purpose: bytes, *parts: bytes) -> Digest:
    """H of parts that stand after their lengths, several in one if need be."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES, person=purpose)
    for part in parts:
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


def check_known_answers() -> None:
    """Stop the process if a cipher or a hash is broken here. This module checks them when it is loaded.

    The answers are published: NIST SP 800-38A, F.5.1 (four blocks); RFC 7693, appendix A; the longest input of BLAKE3's
    ``test_vectors.json``, long enough for every instruction set that the library may choose.
    """
    key, counter = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"), bytes(range(0xF0, 0x100))
    blocks = bytes.fromhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    expect_answer(
        "AES-128-CTR",
        Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(blocks).hex(),
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
        "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
    )
    expect_answer(
        "BLAKE2b",
        hashlib.blake2b(b"abc").hexdigest(),
        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
    )
    repeated = (bytes(range(251)) * 408)[:102_400]
    expect_answer(
        "BLAKE3",
        blake3(repeated, derive_key_context="BLAKE3 2019-12-27 16:29:52 test vectors context").hexdigest(),
        "4652cff7a3f385a6103b5c260fc1593e13c778dbe608efb092fe7ee69df6e9c6",
    )


def expect_answer(name: str, answer: str, known: str) -> None:
    """Compare what a primitive computes here with its known answer; another one ends the process (``SystemExit``)."""
    if answer != known:
        raise SystemExit(f"Error: {name} is broken on this machine: it answers {answer[:16]}…, not {known[:16]}…")


check_known_answers()
