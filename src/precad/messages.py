"""All that crosses a wire, and its one binary codec.

A message is a frozen dataclass; its bytes are a header and its fields in order, each padded with zeros to a
multiple of 8 bytes, all numbers little-endian::

    "precad" | version: 1 byte | kind: 1 byte | length of the whole message: 8 bytes
    int                8 bytes
    Digest, Secret     32 bytes
    str                length: 8 bytes, then 1 to 64 bytes of UTF-8
    tuple of Digest    count: 8 bytes, then 32 bytes each
    FieldVector        count: 8 bytes, then 8 bytes an entry, every entry below p
    Words              count: 8 bytes, then 8 bytes a word

Every message has exactly one encoding, and :func:`decode` accepts nothing else: any other byte string is a
``ProtocolError``. Nothing is allocated that the input does not already hold; vectors are read-only views of
it. No secret prints: the ``repr`` of a message shows shapes.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_type_hints

import numpy as np

from precad.errors import ProtocolError
from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import DIGEST_BYTES, MAX_NAME_BYTES, Digest, check_name
from precad.mpc.secret import SECRET_BYTES, Redacted, Secret
from precad.mpc.triples import Words

VERSION = 1

_HEADER = struct.Struct("<6sBBQ")
_MAGIC = b"precad"


class Message(Redacted):
    """Base of all messages."""


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, repr=False, eq=False)
class Header(Message):
    """Client → both servers: what its submission is for, and what it consists of. The client signs it."""

    task: Digest
    round: int
    model: Digest
    client: str
    commitment_a: Digest
    commitment_b: Digest
    part_a: Digest
    part_b: Digest


@dataclass(frozen=True, repr=False, eq=False)
class PartA(Message):
    """Client → A: its share of (x, h), its share of the proof's tail, and the seed of its masks."""

    salt: Secret
    seed: Secret
    commitment_b: Digest
    share: FieldVector
    tail: FieldVector


@dataclass(frozen=True, repr=False, eq=False)
class PartB(Message):
    """Client → B: the seed of all its shares and masks."""

    salt: Secret
    seed: Secret
    commitment_a: Digest


@dataclass(frozen=True, repr=False, eq=False)
class Close(Message):
    """A ↔ B: the digests of the headers that the sender has accepted; no submission comes after it."""

    task: Digest
    round: int
    headers: tuple[Digest, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Nonce(Message):
    """A ↔ B: the sender's half of the challenge, for this closed set and no other."""

    closed: Digest
    nonce: Secret


@dataclass(frozen=True, repr=False, eq=False)
class Check(Message):
    """A ↔ B: the sender's shares of one submission's opened wires and of its two sums (PROTOCOL §4, server step 2)."""

    client: str
    commitment_a: Digest
    commitment_b: Digest
    wires: FieldVector
    sums: FieldVector


@dataclass(frozen=True, repr=False, eq=False)
class Tally(Message):
    """A ↔ B: the digest of what the sender is about to open, and of the noisy share that it will send."""

    outcome: Digest
    share: Digest


@dataclass(frozen=True, repr=False, eq=False)
class NoisyShare(Message):
    """A ↔ B: the sum of valid shares with the sender's noise added (paper, Algorithm 1, line 5)."""

    outcome: Digest
    share: FieldVector


@dataclass(frozen=True, repr=False, eq=False)
class DealA(Message):
    """Dealer → A: the seed of all A's shares of a closed round's correlated randomness (PROTOCOL §5)."""

    closed: Digest
    seed: Secret


@dataclass(frozen=True, repr=False, eq=False)
class DealB(Message):
    """Dealer → B: the seed of what is free in B's shares, and the rest: of a·a, of the masks' bits, of the ANDs."""

    closed: Digest
    seed: Secret
    norms: FieldVector
    mask_bits: Words
    and_bits: Words


@dataclass(frozen=True, repr=False, eq=False)
class Masked(Message):
    """A ↔ B: the sender's shares of one submission's x − a, and of its masked projections."""

    client: str
    b: FieldVector
    projections: FieldVector


@dataclass(frozen=True, repr=False, eq=False)
class NormOpening(Message):
    """A ↔ B: the sender's shares of all submissions' masked norms, and H of all that it has seen opened before."""

    opened: Digest
    values: FieldVector


@dataclass(frozen=True, repr=False, eq=False)
class Gate(Message):
    """A ↔ B: the sender's shares of one level's masked bits, and H of all that it has seen opened before."""

    level: int
    opened: Digest
    words: Words


KINDS: dict[type[Message], int] = {
    Header: 1,
    PartA: 2,
    PartB: 3,
    Close: 4,
    Nonce: 5,
    Check: 6,
    Tally: 7,
    NoisyShare: 8,
    DealA: 9,
    DealB: 10,
    Masked: 11,
    NormOpening: 12,
    Gate: 13,
}
"""The number of each message on the wire. A number is never given twice."""


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    parts: list[bytes | memoryview] = [b""]
    for name, codec in _LAYOUTS[type(message)]:
        parts += codec.write(getattr(message, name))
    size = _HEADER.size + sum(len(part) for part in parts)
    parts[0] = _HEADER.pack(_MAGIC, VERSION, KINDS[type(message)], size)
    return b"".join(parts)


def decode(data: bytes | memoryview, expected: type[M], **sizes: int) -> M:
    """The message in ``data``, which must be of the ``expected`` type; anything else is a ``ProtocolError``.

    Each vector of the message must have the length that ``sizes`` gives under its name.
    """
    view = memoryview(data)
    reader = _Reader((view if isinstance(view.obj, bytes) else memoryview(bytes(view))).cast("B"))
    magic, version, kind, size = _HEADER.unpack(reader.take(_HEADER.size))
    if magic != _MAGIC:
        raise ProtocolError("not a precad message")
    if version != VERSION:
        raise ProtocolError(f"message version {version}, this program speaks version {VERSION}")
    if kind != KINDS[expected]:
        names = {number: name.__name__ for name, number in KINDS.items()}
        raise ProtocolError(f"got {names.get(kind, f'a message of kind {kind}')}, expected {expected.__name__}")
    if size != len(reader.data):
        raise ProtocolError(f"message of {len(reader.data)} bytes says that it has {size}")
    values = []
    for name, codec in _LAYOUTS[expected]:
        value = codec.read(reader)
        if isinstance(value, np.ndarray):
            if name not in sizes:
                raise ValueError(f"give the length of {expected.__name__}.{name} to decode it")
            _check_vector(value, f"{expected.__name__}.{name}", sizes[name], below_p=codec.below_p)
        values.append(value)
    if reader.at != size:
        raise ProtocolError(f"{size - reader.at} bytes after the end of {expected.__name__}")
    return expected(*values)


@dataclass
class _Reader:
    data: memoryview
    at: int = 0

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise ProtocolError(f"message ends after {len(self.data)} bytes, in the middle of a field")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def integer(self) -> int:
        return int.from_bytes(self.take(8), "little")


@dataclass(frozen=True)
class _Codec:
    write: Callable[[Any], list[bytes | memoryview]]
    read: Callable[[_Reader], Any]
    below_p: bool = False


def _write_int(value: int) -> list[bytes | memoryview]:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"a number to send must be in [0, 2^64), got {value}")
    return [value.to_bytes(8, "little")]


def _write_digest(value: bytes) -> list[bytes | memoryview]:
    if len(value) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, got {len(value)}")
    return [value]


def _write_digests(values: tuple[Digest, ...]) -> list[bytes | memoryview]:
    return [len(values).to_bytes(8, "little"), *(part for value in values for part in _write_digest(value))]


def _read_digests(reader: _Reader) -> tuple[Digest, ...]:
    raw = bytes(reader.take(DIGEST_BYTES * reader.integer()))
    return tuple(Digest(raw[at : at + DIGEST_BYTES]) for at in range(0, len(raw), DIGEST_BYTES))


def _write_name(value: str) -> list[bytes | memoryview]:
    check_name(value)
    raw = value.encode()
    return [len(raw).to_bytes(8, "little"), raw, bytes(-len(raw) % 8)]


def _read_name(reader: _Reader) -> str:
    size = reader.integer()
    if not 1 <= size <= MAX_NAME_BYTES:
        raise ProtocolError(f"a name has 1 to {MAX_NAME_BYTES} bytes, got {size}")
    raw = bytes(reader.take(size))
    if any(reader.take(-size % 8)):
        raise ProtocolError("padding is not zero")
    try:
        name = raw.decode()
        check_name(name)
    except ValueError:
        raise ProtocolError("a name is not printable UTF-8") from None
    return name


def _write_vector(value: FieldVector) -> list[bytes | memoryview]:
    if not field.is_canonical(value):
        raise ValueError("a vector to send has an entry of p or more")
    return _write_words(Words(value))


def _write_words(value: Words) -> list[bytes | memoryview]:
    return [value.size.to_bytes(8, "little"), value.view(np.uint8).data]


def _read_words(reader: _Reader) -> Words:
    return Words(np.frombuffer(reader.take(8 * reader.integer()), np.uint64))


def _check_vector(vector: FieldVector, name: str, size: int, *, below_p: bool) -> None:
    if vector.size != size:
        raise ProtocolError(f"{name} has {vector.size} entries, expected {size}")
    if below_p and not field.is_canonical(vector):
        raise ProtocolError(f"{name} has an entry that is not below p")


_CODECS: dict[Any, _Codec] = {
    int: _Codec(_write_int, _Reader.integer),
    Digest: _Codec(_write_digest, lambda reader: Digest(bytes(reader.take(DIGEST_BYTES)))),
    Secret: _Codec(lambda secret: [secret.value], lambda reader: Secret(bytes(reader.take(SECRET_BYTES)))),
    str: _Codec(_write_name, _read_name),
    tuple[Digest, ...]: _Codec(_write_digests, _read_digests),
    FieldVector: _Codec(_write_vector, _read_words, below_p=True),
    Words: _Codec(_write_words, _read_words),
}


def _codecs(kind: type[Message]) -> tuple[tuple[str, _Codec], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, _CODECS[hints[f.name]]) for f in fields(kind))  # type: ignore[arg-type]


_LAYOUTS = {kind: _codecs(kind) for kind in KINDS}
