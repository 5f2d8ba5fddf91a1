"""What a client seals to one server. A carries the part for B: it can deliver or drop it, but not read or change it.

HPKE (RFC 9180) with ML-KEM-768 and X25519 combined: a later quantum computer does not open what was recorded today.
Every seal is bound to the task, the round, the client, the recipient and the signed header, so that a part cannot be
moved under another header. Keys serve one epoch of rounds; the server's long-term key signs them, and the private
halves are deleted (PROTOCOL §4, §10).
"""

import base64
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey, Suite

from precad.deployment.keys import Identity, is_signed, sign
from precad.deployment.task import Task
from precad.errors import ProtocolError
from precad.mpc.prg import Digest, digest, expect_answer
from precad.mpc.secret import Redacted
from precad.protocol import digests
from precad.protocol.codec import Blob
from precad.protocol.messages import Header, PartB, SealingKey, decode, encode, encoded_size

SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
PUBLIC_BYTES = 1184 + 32
PRIVATE_BYTES = 64 + 32
OVERHEAD = 1088 + 32 + 16
"""How many bytes longer a sealed part is than the part."""
PART_B_BYTES = encoded_size(PartB)


@dataclass(frozen=True, repr=False)
class EpochKey(Redacted):
    """A server's sealing key for one epoch, as its store keeps it."""

    private: bytes
    announced: bytes
    """The encoded :class:`SealingKey`, for clients."""

    @classmethod
    def fresh(cls, task: Task, server: Identity, epoch: int, signing: Ed25519PrivateKey) -> "EpochKey":
        """A new key, announced under the server's long-term key."""
        mlkem, x25519 = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
        public = Blob(mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw())
        signature = sign(signing, _announcement(task.digest, server.name, epoch, public))
        announced = SealingKey(task.digest, server.name, epoch, public, signature)
        return cls(mlkem.private_bytes_raw() + x25519.private_bytes_raw(), encode(announced))


def check_announced(task: Task, server: Identity, epoch: int, announced: bytes) -> bytes:
    """The public key of an announcement by this server, for this epoch; anything else is a ``ProtocolError``."""
    message = decode(announced, SealingKey)
    if (message.task, message.server, message.epoch) != (task.digest, server.name, epoch):
        raise ProtocolError(f"a sealing key of another task, server or epoch than {server.name}'s of epoch {epoch}")
    if not is_signed(server.key, _announcement(message.task, message.server, epoch, message.key), message.signature):
        raise ProtocolError(f"a sealing key that server {server.name} did not sign")
    if len(message.key) != PUBLIC_BYTES:
        raise ProtocolError(f"a sealing key has {PUBLIC_BYTES} bytes, got {len(message.key)}")
    return message.key


def seal(public: bytes, part: bytes, header: bytes, recipient: Identity) -> Blob:
    """Seal a part to a server, under a header."""
    key = MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(public[:-32]), X25519PublicKey.from_public_bytes(public[-32:])
    )
    return Blob(SUITE.encrypt(part, key, _bound_to(header, recipient)))


def unseal(private: bytes, sealed: bytes, header: bytes, recipient: Identity) -> bytes | None:
    """The part that was sealed to this server under this header; None if it was not."""
    return _decrypt(private, sealed, _bound_to(header, recipient))


def sign_header(key: Ed25519PrivateKey, header: bytes) -> Blob:
    """A client's signature of its header."""
    return sign(key, digests.header(decode(header, Header)))


def start_statement(task: Digest, round_: int, model: Digest, nonces: Digest) -> Digest:
    """What both servers sign at the start of a round: clients take no other model, and submit under no other nonces."""
    return digest(b"precad start of", task, round_.to_bytes(8, "little"), model, nonces)


def _announcement(task: Digest, server: str, epoch: int, public: bytes) -> Digest:
    return digest(b"precad seal key", task, server.encode(), epoch.to_bytes(8, "little"), public)


def _bound_to(header: bytes, recipient: Identity) -> bytes:
    """HPKE's info. The header names task, round, model and client, each is bound by itself too."""
    head = decode(header, Header)
    bound = (head.round.to_bytes(8, "little"), head.client.encode(), recipient.name.encode())
    return digest(b"precad seal", head.task, *bound, digests.header(head))


def _decrypt(private: bytes, sealed: bytes, info: bytes) -> bytes | None:
    key = MLKEM768X25519PrivateKey(
        MLKEM768PrivateKey.from_seed_bytes(private[:64]), X25519PrivateKey.from_private_bytes(private[64:])
    )
    try:
        return SUITE.decrypt(sealed, key, info)
    except InvalidTag:
        return None


def check_known_answer() -> None:
    """Stop the process if HPKE is broken here. This module checks it when it is loaded.

    RFC 9180 has no vector of this suite, and those that it has use associated data, which the library does not take.
    So the ciphertext below is our own: "precad", sealed once to the private key 0, 1, …, 95.
    """
    opened = _decrypt(bytes(range(PRIVATE_BYTES)), base64.b64decode(_KNOWN_SEALED), b"known answer")
    expect_answer("HPKE", (opened or b"nothing").hex(), b"precad".hex())


_KNOWN_SEALED = """
U4tnqTqB9SK18oX0Xa0S3bVy660GEU5a0O09iz2Vczg/JHuzlXnHETnW5L4OinVS4cK0T+ENEbobsxEYkKsOiB/mD36NN1pdTRwWnLokztDvUlbw4hMM
6sdPaPRbZ7hXj2VcXwG3s9cfH991TkOOELeyNTxt5pxaY0jBUBJCjDq1WK4MHY0fxLru+iYoTMwQYq2gAjcnr5nsDmbsW1qg2Y8/mN3xDUGq8LV5rJYO
8ZjmD0nGDUoaYmvdmQ0uzdFEr4FCo2CdvMXEwL9Xqi4awdjgTPCQRDjHzMoz73D5jE8e8GWUbRJPvwnd0DdKwtYf+kK1slz1GdogvuexKi8rmST57vKO
46asMSh/CoCKRDmLDHGy0Xx3jwMs8RUlSlmYU4rNb/Aquu0mdgpOOXYKywEFGndhER/IJYuHECKV0gUI0lG30cuFGHwCY4djUR/dZ8nueSqjKSm6KYKD
RYewRI6gpbtjkwtHOXhvJPsCaC98RqL31u2jDnDbPbUpebkTkZHnGGo1GiEEgiKUTJOCugvsheqyVc7icrcHEh/MsSEF51/BjODZL9JpSjbp3GGbNgPB
ZGc9TUFksk4fjY3vZrCusGGQbVgZvn1u+o0HpHl+CoDTGcfP1LTgbMlEtKrA38hYzgY3IuJscPFAINQ/llbChBKD/pwTd2dncy8Gj7lRqnUsBMyImWp/
qZoF/EYWUV3wDYwwFbx9AdsvlRhwpFK8V2vcmuIwNKNMvHvNTIkG/JXhPBhMgU/JoBJompZAAvzBFxgi+8T8wNTTmaGZyxZBNFGMVlNnpBSSmeY47dgv
qp4kzrl8igKpo0YBwdH0eEGw518sy1mAeYcbqNKzMmh8BdZIaRHRHu/es5yZuddsTqD6c7KgDy7WIAxqBftZCNG6oQB84HgB7ePIYeJtFSSQwDDearhW
hpJ9OqbMMYCQZnZo00txm0X9JXZeD6FmVOjQCKsSZdQo/+lDozdhZ0MgoyzG3m05SLD+YWTesDWKkbqDkD3N5LggSn0Hm3w/UUOdqybUSE0jlhSiBxTQ
m0lha6zA0txTlNRKQuLChw3AAEmfsfXlzRlk/j9+Hp6S2aw5nCZHk0sXebV2ov/G42+ElIXxNra9sz/ek+7x0QTvAgahXVZXQDc9lO1ohRlgBX6Wu2Mt
ybUsgAmhGJD00HLFEpdW5uwzRxVIopzO40fv5nrkmQ2BtBzRUPxlNc+VOJTzzKcj7VTIo4dcCH2oyYe/Okje3hGK9NFRt8qVuaRBC6DZrnh47Re/iTjx
wYVbH0HKXtiCZg12ydWEp/m2WfAvT2sk6dc/6pgD4HRyt888BamyXv4eY9UnzJknHD2Pu7HHkmBnLLNoaeuxzOtPUn+k+wWW2xoIdXQkYIuJMQCVsWyD
ICsKOVJkzPAalEdpviYF3v3t4n/Qr8PLE76CUa9jA2ouUjBOnjzF4FJoBHiCcSqjObb9LsZgK/GYOjzKkKoo52f18rYcEoLwOECBDmnL1UeDj3ZOgOCP
DtENqk4HC/oXAv4=
"""

check_known_answer()
