"""All that crosses a wire, and its one binary codec.

A message is a frozen dataclass; its bytes are a header and its fields in order, each padded with zeros to a
multiple of 8 bytes, all numbers little-endian::

    "precad" | version: 1 byte | kind: 1 byte | length of the whole message: 8 bytes
    int                8 bytes
    Digest, Secret     32 bytes
    str                length: 8 bytes, then 1 to 64 bytes of UTF-8
    tuple of Digest    count: 8 bytes, then 32 bytes each
    tuple of str       count: 8 bytes, then each as above
    Blob               length: 8 bytes, then as many bytes
    tuple of Blob      count: 8 bytes, then each as above
    FieldVector        count: 8 bytes, then 8 bytes an entry, every entry below p
    Words              count: 8 bytes, then 8 bytes a word

Every message has exactly one encoding, and :func:`decode` accepts nothing else: any other byte string is a
``ProtocolError``. Nothing is allocated that the input does not already hold; vectors are read-only views of
it. No secret prints: the ``repr`` of a message shows shapes.
"""

import struct
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform, get_type_hints

import numpy as np

from precad.errors import ProtocolError
from precad.mpc.field import FieldVector, is_canonical
from precad.mpc.prg import Digest
from precad.mpc.secret import Redacted, Secret
from precad.protocol.codec import CODECS, Blob, Reader
from precad.protocol.triples.beaver import Words

VERSION = 2
NOTHING = Blob(b"")

_HEADER = struct.Struct("<6sBBQ")
_MAGIC = b"precad"


KINDS: dict[type["Message"], int] = {}
"""The number of each message on the wire."""


@dataclass_transform(frozen_default=True, eq_default=False)
class Message(Redacted):
    """Base of all messages, which it makes frozen dataclasses. A ``kind``, the number on the wire, is given once."""

    def __init_subclass__(cls, kind: int) -> None:
        KINDS[dataclass(frozen=True, repr=False, eq=False)(cls)] = kind


M = TypeVar("M", bound=Message)


class Header(Message, kind=1):
    """Client → both servers: what its submission is for, and what it consists of. The client signs it."""

    task: Digest
    round: int
    model: Digest
    nonces: Digest
    client: str
    commitment_a: Digest
    commitment_b: Digest
    part_a: Digest
    part_b: Digest
    head: Blob = NOTHING
    """The last :class:`Head` that the client has heard; empty if there is none."""


class PartA(Message, kind=2):
    """Client → A: its share of (x, h), its share of the proof's tail, and the seed of its masks."""

    salt: Secret
    seed: Secret
    commitment_b: Digest
    share: FieldVector
    tail: FieldVector


class PartB(Message, kind=3):
    """Client → B: the seed of all its shares and masks."""

    salt: Secret
    seed: Secret
    commitment_a: Digest


class Close(Message, kind=4):
    """A ↔ B: the digests of the headers that the sender has accepted; no submission comes after it."""

    task: Digest
    round: int
    headers: tuple[Digest, ...]


class Nonce(Message, kind=5):
    """A ↔ B: the sender's half of the challenge, which it committed to when the round began; and the closed set."""

    closed: Digest
    nonce: Secret


class Check(Message, kind=6):
    """A ↔ B: the sender's shares of one submission's opened wires and of its two sums (PROTOCOL §4, server step 2)."""

    client: str
    commitment_a: Digest
    commitment_b: Digest
    wires: FieldVector
    sums: FieldVector


class Tally(Message, kind=7):
    """A ↔ B: the digest of what the sender is about to open, and its commitment to the noisy share that follows."""

    outcome: Digest
    share: Digest


class NoisyShare(Message, kind=8):
    """A ↔ B: the sum of valid shares plus the sender's noise (paper, Algorithm 1, line 5), and its tally's salt."""

    outcome: Digest
    salt: Secret
    share: FieldVector


class DealA(Message, kind=9):
    """Dealer → A: the seed of all A's shares of a closed round's correlated randomness (PROTOCOL §5)."""

    closed: Digest
    seed: Secret


class DealB(Message, kind=10):
    """Dealer → B: the seed of what is free in B's shares, and the rest: of a·a, of the masks' bits, of the ANDs."""

    closed: Digest
    seed: Secret
    norms: FieldVector
    mask_bits: Words
    and_bits: Words


class Masked(Message, kind=11):
    """A ↔ B: the sender's shares of one submission's x − a, and of its masked projections."""

    client: str
    b: FieldVector
    projections: FieldVector


class NormOpening(Message, kind=12):
    """A ↔ B: the sender's shares of all submissions' masked norms, and H of all that it has seen opened before."""

    opened: Digest
    values: FieldVector


class Gate(Message, kind=13):
    """A ↔ B: the sender's shares of one level's masked bits, and H of all that it has seen opened before."""

    level: int
    opened: Digest
    words: Words


class SealingKey(Message, kind=14):
    """Server → client: the key that parts are sealed to for an epoch of rounds, signed by the server."""

    task: Digest
    server: str
    epoch: int
    key: Blob
    signature: Blob


class Begin(Message, kind=15):
    """A → B: a round, its model, A's commitment to its nonce, all signed; and the clients that A has selected."""

    task: Digest
    round: int
    model: Digest
    nonce: Digest
    signature: Blob
    selected: tuple[str, ...]


class Begun(Message, kind=16):
    """B → A: the same from B, which signs both commitments; whom of the selected B lets in, and its sealing key."""

    task: Digest
    round: int
    model: Digest
    nonce: Digest
    signature: Blob
    selected: tuple[str, ...]
    sealing: Blob


class Invitation(Message, kind=17):
    """A → every selected client, the same bytes to all: round, model and nonces, which both servers sign; both keys."""

    task: Digest
    round: int
    model: Digest
    nonce_a: Digest
    nonce_b: Digest
    signature_a: Blob
    signature_b: Blob
    sealing_a: Blob
    sealing_b: Blob


class Sealed(Message, kind=18):
    """Client → A: the header, signed, and both parts, each sealed to its server."""

    header: Blob
    signature: Blob
    part_a: Blob
    part_b: Blob


class Relayed(Message, kind=19):
    """A → B, from a client: the header, signed, and the part that is sealed to B."""

    header: Blob
    signature: Blob
    part: Blob


class Batch(Message, kind=20):
    """A ↔ B: the messages of one exchange, one a client."""

    items: tuple[Blob, ...]


class Receipt(Message, kind=21):
    """A ↔ B: the digest of what the sender holds to have happened in a round, each verdict, the head: all signed."""

    task: Digest
    round: int
    events: Digest
    signature: Blob
    verdicts: tuple[Blob, ...]
    head: Blob


class Told(Message, kind=22):
    """A → a client: what became of its submission, and the head; both servers sign both. It names nobody else."""

    task: Digest
    round: int
    client: str
    header: Digest
    verdict: str
    next_model: Digest
    signature_a: Blob
    signature_b: Blob
    head_a: Blob
    head_b: Blob


class Head(Message, kind=23):
    """In a client's next header: a round that both servers have signed as over, and the model that it ended with."""

    round: int
    model: Digest
    signature_a: Blob
    signature_b: Blob


class Invited(Message, kind=24):
    """A → a client that asks it for news: an invitation, what became of its last submission, or both; else empty."""

    invitation: Blob
    told: Blob


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    parts: list[bytes | memoryview] = [b""]
    for name, codec in _LAYOUTS[type(message)]:
        parts += codec.write(getattr(message, name))
    size = _HEADER.size + sum(len(part) for part in parts)
    parts[0] = _HEADER.pack(_MAGIC, VERSION, KINDS[type(message)], size)
    return b"".join(parts)


def encoded_size(kind: type[Message], **lengths: int) -> int:
    """How many bytes :func:`encode` makes of a message of this kind.

    Args:
        kind: The type of the message.
        lengths: For each vector, list of digests, blob and name of the message, under its name, how many entries or
            bytes it has.
    """
    size = _HEADER.size
    for name, codec in _LAYOUTS[kind]:
        if codec.each is None or (codec.each and name not in lengths):
            raise ValueError(f"the size of {kind.__name__}.{name} does not follow from the lengths {lengths}")
        size += codec.fixed + -(-codec.each * lengths.get(name, 0) // 8) * 8
    return size


def decode(data: bytes | memoryview, expected: type[M], **sizes: int) -> M:
    """The message in ``data``, which must be of the ``expected`` type; anything else is a ``ProtocolError``.

    Each vector of the message must have the length that ``sizes`` gives under its name.
    """
    view = memoryview(data)
    reader = Reader((view if isinstance(view.obj, bytes) else memoryview(bytes(view))).cast("B"))
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
            if value.size != sizes[name]:
                raise ProtocolError(f"{expected.__name__}.{name} has {value.size} entries, expected {sizes[name]}")
            if codec.below_p and not is_canonical(value):
                raise ProtocolError(f"{expected.__name__}.{name} has an entry that is not below p")
        values.append(value)
    if reader.at != size:
        raise ProtocolError(f"{size - reader.at} bytes after the end of {expected.__name__}")
    return expected(*values)


_LAYOUTS = {kind: [(name, CODECS[hint]) for name, hint in get_type_hints(kind).items()] for kind in KINDS}
