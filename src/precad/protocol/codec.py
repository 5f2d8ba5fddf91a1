"""The fields of messages as bytes: one encoding each, and no other is read (see ``messages.py``)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np

from precad.errors import ProtocolError
from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import DIGEST_BYTES, MAX_NAME_BYTES, Digest, check_name
from precad.mpc.secret import SECRET_BYTES, Secret
from precad.protocol.triples.beaver import Words

Blob = NewType("Blob", bytes)
"""Bytes of any length that the codec does not look into: a key, a signature, something sealed."""


@dataclass
class Reader:
    """Takes fields off the front of a message."""

    data: memoryview
    at: int = 0

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        if size > len(self.data) - self.at:
            raise ProtocolError(f"message ends after {len(self.data)} bytes, in the middle of a field")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def integer(self) -> int:
        """The next number."""
        return int.from_bytes(self.take(8), "little")


@dataclass(frozen=True)
class Codec:
    """How one type of field is written and read."""

    write: Callable[[Any], list[bytes | memoryview]]
    read: Callable[[Reader], Any]
    fixed: int
    """The bytes of an empty one …"""
    each: int | None = 0
    """… and of each entry, before padding; None if entries differ in length."""
    below_p: bool = False


def _write_int(value: int) -> list[bytes | memoryview]:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"a number to send must be in [0, 2^64), got {value}")
    return [value.to_bytes(8, "little")]


def _write_digest(value: bytes) -> list[bytes | memoryview]:
    if len(value) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, got {len(value)}")
    return [value]


def _write_blob(value: bytes) -> list[bytes | memoryview]:
    return [len(value).to_bytes(8, "little"), value, bytes(-len(value) % 8)]


def _read_blob(reader: Reader, lengths: range = range(1 << 64)) -> Blob:
    size = reader.integer()
    if size not in lengths:
        raise ProtocolError(f"a name has {lengths.start} to {lengths.stop - 1} bytes, got {size}")
    raw = Blob(bytes(reader.take(size)))
    if any(reader.take(-size % 8)):
        raise ProtocolError("padding is not zero")
    return raw


def _write_name(value: str) -> list[bytes | memoryview]:
    check_name(value)
    return _write_blob(value.encode())


def _read_name(reader: Reader) -> str:
    raw = _read_blob(reader, range(1, MAX_NAME_BYTES + 1))
    try:
        name = raw.decode()
        check_name(name)
    except ValueError:
        raise ProtocolError("a name is not printable UTF-8") from None
    return name


def _tuple_of(item: Codec) -> Codec:
    """A count, and then the items; their lengths may differ unless they have a fixed one."""

    def write(values: tuple[Any, ...]) -> list[bytes | memoryview]:
        return [len(values).to_bytes(8, "little"), *(part for value in values for part in item.write(value))]

    def read(reader: Reader) -> tuple[Any, ...]:
        return tuple(item.read(reader) for _ in range(reader.integer()))

    return Codec(write, read, 8, each=None if item.each else item.fixed)


def _write_vector(value: FieldVector) -> list[bytes | memoryview]:
    if not field.is_canonical(value):
        raise ValueError("a vector to send has an entry of p or more")
    return _write_words(Words(value))


def _write_words(value: Words) -> list[bytes | memoryview]:
    return [value.size.to_bytes(8, "little"), value.view(np.uint8).data]


def _read_words(reader: Reader) -> Words:
    return Words(np.frombuffer(reader.take(8 * reader.integer()), np.uint64))


_DIGEST = Codec(_write_digest, lambda reader: Digest(bytes(reader.take(DIGEST_BYTES))), DIGEST_BYTES)
_NAME = Codec(_write_name, _read_name, 8, each=1)
_BLOB = Codec(_write_blob, _read_blob, 8, each=1)

CODECS: dict[Any, Codec] = {
    int: Codec(_write_int, Reader.integer, 8),
    Digest: _DIGEST,
    Secret: Codec(lambda secret: [secret.value], lambda reader: Secret(bytes(reader.take(SECRET_BYTES))), SECRET_BYTES),
    str: _NAME,
    tuple[Digest, ...]: _tuple_of(_DIGEST),
    tuple[str, ...]: _tuple_of(_NAME),
    Blob: _BLOB,
    tuple[Blob, ...]: _tuple_of(_BLOB),
    FieldVector: Codec(_write_vector, _read_words, 8, each=8, below_p=True),
    Words: Codec(_write_words, _read_words, 8, each=8),
}
"""How every type of field is written and read."""
