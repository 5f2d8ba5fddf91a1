"""Seals: what is bound, what is signed, and that nothing can be moved."""

from dataclasses import fields, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from precad.deployment import sealing
from precad.deployment.keys import is_signed
from precad.deployment.sealing import EpochKey
from precad.errors import ProtocolError
from precad.mpc.prg import Digest
from precad.protocol import digests
from precad.protocol.codec import Blob
from precad.protocol.messages import Header, SealingKey, decode, encode
from precad.protocol.states import Role
from tests.deployment import world
from tests.messages import says

WORLD = world.make()
TASK, A, B = WORLD.task, WORLD.task.server_a, WORLD.task.server_b
KEY = EpochKey.fresh(TASK, B, 3, WORLD.servers[Role.B].signing)
PUBLIC = sealing.check_announced(TASK, B, 3, KEY.announced)
D = [Digest(bytes([i]) * 32) for i in range(4)]
HEADER = Header(TASK.digest, 7, TASK.model, TASK.model, "bank", D[0], D[1], D[2], D[3], Blob(b"head"))
SEALED = sealing.seal(PUBLIC, b"a seed", encode(HEADER), B)


def changed(value: Any) -> Any:
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    return value + 1 if isinstance(value, int) else "clinic"


def test_round_trip() -> None:
    assert len(SEALED) == 6 + sealing.OVERHEAD
    assert len(KEY.private) == sealing.PRIVATE_BYTES
    assert sealing.unseal(KEY.private, SEALED, encode(HEADER), B) == b"a seed"
    assert sealing.seal(PUBLIC, b"a seed", encode(HEADER), B) != SEALED


@pytest.mark.parametrize("name", [item.name for item in fields(Header)])
def test_a_part_cannot_be_moved_under_another_header(name: str) -> None:
    other = replace(HEADER, **{name: changed(getattr(HEADER, name))})
    assert sealing.unseal(KEY.private, SEALED, encode(other), B) is None


def test_a_seal_is_for_one_server_and_one_key() -> None:
    assert sealing.unseal(KEY.private, SEALED, encode(HEADER), A) is None
    other = EpochKey.fresh(TASK, B, 3, WORLD.servers[Role.B].signing)
    assert sealing.unseal(other.private, SEALED, encode(HEADER), B) is None


@pytest.mark.parametrize("at", [0, 500, 1100, 1119, 1120, -1])
def test_a_seal_that_was_altered_does_not_open(at: int) -> None:
    raw = bytearray(SEALED)
    raw[at] ^= 1
    assert sealing.unseal(KEY.private, bytes(raw), encode(HEADER), B) is None


@pytest.mark.parametrize("sealed", [b"", b"x", SEALED[:-1], SEALED + b"x", bytes(len(SEALED))])
def test_garbage_does_not_open(sealed: bytes) -> None:
    assert sealing.unseal(KEY.private, sealed, encode(HEADER), B) is None


@pytest.mark.parametrize("name", [item.name for item in fields(SealingKey)])
def test_a_key_is_announced_by_its_server_for_one_epoch(name: str) -> None:
    message = decode(KEY.announced, SealingKey)
    forged = encode(replace(message, **{name: changed(getattr(message, name))}))
    with pytest.raises(ProtocolError, match="sealing key"):
        sealing.check_announced(TASK, B, 3, forged)


def test_another_server_cannot_announce_it() -> None:
    forged = EpochKey.fresh(TASK, B, 3, WORLD.servers[Role.A].signing)
    with pytest.raises(ProtocolError, match=says("beta", "sign")):
        sealing.check_announced(TASK, B, 3, forged.announced)
    with pytest.raises(ProtocolError, match=says("task", "server", "epoch")):
        sealing.check_announced(TASK, B, 4, KEY.announced)


@pytest.mark.parametrize("name", [item.name for item in fields(Header)])
def test_headers_are_signed_whole(name: str) -> None:
    signature = sealing.sign_header(WORLD.clients["bank"].signing, encode(HEADER))
    key = TASK.members["bank"].identity.key
    assert is_signed(key, digests.header(HEADER), signature)
    assert not is_signed(TASK.members["lab"].identity.key, digests.header(HEADER), signature)
    other = replace(HEADER, **{name: changed(getattr(HEADER, name))})
    assert not is_signed(key, digests.header(other), signature)


def test_secrets_do_not_print() -> None:
    assert "bytes>" in repr(KEY)
    assert KEY.private.hex()[:8] not in repr(KEY)


def test_a_broken_hpke_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sealing.check_known_answer()
    monkeypatch.setattr(sealing, "SUITE", Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM))
    with pytest.raises(SystemExit, match=says("HPKE", "broken")):
        sealing.check_known_answer()
