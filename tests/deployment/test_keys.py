"""Keys: private files are private, never overwritten; what is signed is what was meant."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from precad.deployment import keys
from precad.mpc.prg import digest
from tests.deployment.world import NOW


@pytest.mark.parametrize("name", ["alpha", "bank"])
def test_files_of_a_party(tmp_path: Path, name: str) -> None:
    identity = keys.OwnKeys.new(name, NOW).save(tmp_path)
    private, public = (f"{name}.key", f"{name}.tls.key"), (f"{name}.pub", f"{name}.tls.pem")
    assert {path.name for path in tmp_path.iterdir()} == {*private, *public}
    for each in private:
        assert stat.S_IMODE((tmp_path / each).stat().st_mode) == 0o600
    assert keys.load_public(tmp_path / f"{name}.pub") == identity
    assert keys.load_private(tmp_path / f"{name}.key").public_key().public_bytes_raw() == identity.key
    assert len(identity.fingerprint) == 64


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    one, other = keys.OwnKeys.new("bank", NOW).identity, keys.OwnKeys.new("lab", NOW).identity
    for certificate in (b"junk", one.certificate[:-1], one.certificate + other.certificate):
        (tmp_path / "bank.pub").write_text(json.dumps(replace(one, certificate=certificate).as_json()))
        with pytest.raises(ValueError, match="the certificate of bank"):
            keys.load_public(tmp_path / "bank.pub")
    (tmp_path / "bank.pub").write_text(json.dumps(replace(one, certificate=b"").as_json()))
    assert not keys.load_public(tmp_path / "bank.pub").certificate


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    keys.OwnKeys.new("bank", NOW).save(tmp_path)
    before = (tmp_path / "bank.key").read_bytes()
    with pytest.raises(ValueError, match="not overwritten"):
        keys.OwnKeys.new("bank", NOW).save(tmp_path)
    assert (tmp_path / "bank.key").read_bytes() == before


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "é", "x" * 65])
def test_a_name_is_a_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        keys.OwnKeys.new(name, NOW).save(tmp_path)


def test_bad_files_are_refused_in_words(tmp_path: Path) -> None:
    keys.OwnKeys.new("bank", NOW).save(tmp_path)
    os.chmod(tmp_path / "bank.key", 0o640)
    with pytest.raises(ValueError, match="read by others"):
        keys.load_private(tmp_path / "bank.key")
    with pytest.raises(ValueError, match="cannot read"):
        keys.load_private(tmp_path / "none.key")
    (tmp_path / "junk.key").write_text("junk")
    (tmp_path / "junk.key").chmod(0o600)
    with pytest.raises(ValueError, match="Ed25519 private key"):
        keys.load_private(tmp_path / "junk.key")
    keys.OwnKeys.new("alpha", NOW).save(tmp_path)
    with pytest.raises(ValueError, match="Ed25519 private key"):
        keys.load_private(tmp_path / "alpha.tls.key")
    for text in ("{}", "[]", '{"name": "a", "key": 3}', '{"name": "a", "key": "00"}', "nothing"):
        (tmp_path / "bad.pub").write_text(text)
        with pytest.raises(ValueError, match="not a public key file"):
            keys.load_public(tmp_path / "bad.pub")
    with pytest.raises(ValueError, match="cannot read"):
        keys.load_public(tmp_path / "none.pub")


def test_signatures(tmp_path: Path) -> None:
    identity = keys.OwnKeys.new("bank", NOW).save(tmp_path)
    statement = digest(b"precad test", b"x")
    signature = keys.sign(keys.load_private(tmp_path / "bank.key"), statement)
    assert keys.is_signed(identity.key, statement, signature)
    assert not keys.is_signed(identity.key, digest(b"precad test", b"y"), signature)
    assert not keys.is_signed(identity.key, statement, signature[:-1])
    assert not keys.is_signed(bytes(32), statement, signature)
