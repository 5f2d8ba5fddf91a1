"""All that crosses a wire, and its one binary codec.

A message is a frozen dataclass; its bytes are a header and its fields in order, each padded with zeros to a
multiple of 8 bytes, all numbers little-endian::

    "precad" | version: 1 byte | kind: 1 byte | length of the whole message: 8 bytes
    int            8 bytes
    Digest, Secret 32 bytes
    str            length: 8 bytes, then 1 to 64 bytes of UTF-8
    FieldVector    count: 8 bytes, then 8 bytes an entry, every entry below p

Every message has exactly one encoding, and :func:`decode` accepts nothing else: any other byte string is a
``ProtocolError``. Nothing is allocated that the input does not already hold; vectors are read-only views of
it. No secret prints: the ``repr`` of a message shows shapes.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NewType, TypeVar, get_type_hints

import numpy as np

from precad.errors import ProtocolError
from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import DIGEST_BYTES
from precad.mpc.secret import SECRET_BYTES, Redacted, Secret

VERSION = 1
MAX_NAME_BYTES = 64

Digest = NewType("Digest", bytes)
"""32 bytes that H made."""

_HEADER = struct.Struct("<6sBBQ")
_MAGIC = b"precad"


class Message(Redacted):
    """Base of all messages."""


M = TypeVar("M", bound=Message)


@dataclass(frozen=True, repr=False, eq=False)
class ShareForA(Message):
    """Client → A: its share of the update (paper, Algorithm 2, line 8)."""

    task: Digest
    round: int
    client: str
    share: FieldVector


@dataclass(frozen=True, repr=False, eq=False)
class SeedForB(Message):
    """Client → B: the seed of its share of the update."""

    task: Digest
    round: int
    client: str
    seed: Secret


@dataclass(frozen=True, repr=False, eq=False)
class NoisyShare(Message):
    """A ↔ B: the sum of shares with the sender's noise added (paper, Algorithm 1, line 5)."""

    task: Digest
    round: int
    share: FieldVector


_KINDS: tuple[type[Message], ...] = (ShareForA, SeedForB, NoisyShare)


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    parts: list[bytes | memoryview] = [b""]
    for name, codec in _LAYOUTS[type(message)]:
        parts += codec.write(getattr(message, name))
    size = _HEADER.size + sum(len(part) for part in parts)
    parts[0] = _HEADER.pack(_MAGIC, VERSION, _KINDS.index(type(message)), size)
    return b"".join(parts)


def decode(data: bytes | memoryview, expected: type[M]) -> M:
    """The message in ``data``, which must be of the ``expected`` type; anything else is a ``ProtocolError``."""
    reader = _Reader(memoryview(data).cast("B"))
    magic, version, kind, size = _HEADER.unpack(reader.take(_HEADER.size))
    if magic != _MAGIC:
        raise ProtocolError("not a precad message")
    if version != VERSION:
        raise ProtocolError(f"message version {version}, this program speaks version {VERSION}")
    if kind != _KINDS.index(expected):
        raise ProtocolError(f"message of kind {kind}, expected {expected.__name__}")
    if size != len(reader.data):
        raise ProtocolError(f"message of {len(reader.data)} bytes says that it has {size}")
    values = [codec.read(reader) for _, codec in _LAYOUTS[expected]]
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


def _write_int(value: int) -> list[bytes | memoryview]:
    return [value.to_bytes(8, "little")]


def _write_digest(value: bytes) -> list[bytes | memoryview]:
    if len(value) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, got {len(value)}")
    return [value]


def _write_name(value: str) -> list[bytes | memoryview]:
    raw = value.encode()
    if not 1 <= len(raw) <= MAX_NAME_BYTES:
        raise ValueError(f"a name has 1 to {MAX_NAME_BYTES} bytes, got {len(raw)}")
    return [len(raw).to_bytes(8, "little"), raw, bytes(-len(raw) % 8)]


def _read_name(reader: _Reader) -> str:
    size = reader.integer()
    if not 1 <= size <= MAX_NAME_BYTES:
        raise ProtocolError(f"a name has 1 to {MAX_NAME_BYTES} bytes, got {size}")
    raw = bytes(reader.take(size))
    if any(reader.take(-size % 8)):
        raise ProtocolError("padding is not zero")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a name is not UTF-8") from None


def _write_vector(value: FieldVector) -> list[bytes | memoryview]:
    if not field.is_canonical(value):
        raise ValueError("a vector to send has an entry of p or more")
    return [value.size.to_bytes(8, "little"), value.view(np.uint8).data]


def _read_vector(reader: _Reader) -> FieldVector:
    vector = np.frombuffer(reader.take(8 * reader.integer()), np.uint64)
    vector.flags.writeable = False
    if not field.is_canonical(vector):
        raise ProtocolError("a field element is not below p")
    return vector


_CODECS: dict[Any, _Codec] = {
    int: _Codec(_write_int, _Reader.integer),
    Digest: _Codec(_write_digest, lambda reader: Digest(bytes(reader.take(DIGEST_BYTES)))),
    Secret: _Codec(lambda secret: [secret.value], lambda reader: Secret(bytes(reader.take(SECRET_BYTES)))),
    str: _Codec(_write_name, _read_name),
    FieldVector: _Codec(_write_vector, _read_vector),
}


def _codecs(kind: type[Message]) -> tuple[tuple[str, _Codec], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, _CODECS[hints[f.name]]) for f in fields(kind))  # type: ignore[arg-type]


_LAYOUTS = {kind: _codecs(kind) for kind in _KINDS}
