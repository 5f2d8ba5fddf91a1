"""Who is who: Ed25519 keys and TLS certificates, and the files that hold them.

A private key is written once, readable by its owner alone, and never printed. A public file is JSON: a party hands it
to the others, who put it into the task.
"""

import base64
import datetime
import hashlib
import json
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from precad.files import is_open_to_others, make_folder, open_to_read, read_bytes, words_of, write_file
from precad.mpc.prg import Digest, check_name, digest
from precad.protocol.codec import Blob
from precad.tables import build, read_json

KEY_BYTES, SIGNATURE_BYTES = 32, 64
MOST_KEY = 1 << 16
"""Bytes of a private key's file."""
CERTIFICATE_YEARS = 10


@dataclass(frozen=True)
class Identity:
    """A party as the others know it."""

    name: str
    key: bytes
    """Its Ed25519 public key."""
    certificate: bytes = b""
    """Its TLS certificate (DER): others accept this one and no other. A client that has none takes part by Flower."""

    def __post_init__(self) -> None:
        check_party(self.name)
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"the key of {self.name} must have {KEY_BYTES} bytes, got {len(self.key)}")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in hexadecimal."""
        return hashlib.sha256(self.certificate).hexdigest()

    def as_json(self) -> dict[str, str]:
        """As it stands in a public file and in a task."""
        certificate = {"certificate": base64.b64encode(self.certificate).decode()} if self.certificate else {}
        return {"name": self.name, "key": self.key.hex(), **certificate}


@dataclass(frozen=True, kw_only=True)
class IdentityTable:
    """An :class:`Identity` as :meth:`Identity.as_json` writes it."""

    name: str
    key: str
    certificate: str = ""

    def identity(self) -> Identity:
        """The party."""
        return Identity(self.name, bytes.fromhex(self.key), base64.b64decode(self.certificate, validate=True))


def check_party(name: str) -> None:
    """Refuse a name that could not be a file's."""
    check_name(name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"a party's name is made of letters, digits, dot, dash and underscore, got {name!r}")


@dataclass(frozen=True)
class OwnKeys:
    """What a party alone holds: its identity, and the private keys behind it."""

    identity: Identity
    signing: Ed25519PrivateKey = field(repr=False)
    tls: ec.EllipticCurvePrivateKey | None = field(default=None, repr=False)
    """Of its certificate."""

    @classmethod
    def new(cls, name: str, now: datetime.datetime) -> "OwnKeys":
        """New keys of a server or a client, with a certificate that is valid from now on."""
        check_party(name)
        signing, tls = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())
        return cls(Identity(name, signing.public_key().public_bytes_raw(), _self_signed(name, tls, now)), signing, tls)

    def save(self, folder: Path, *, durable: bool = True) -> Identity:
        """Write NAME.key, NAME.tls.key, NAME.tls.pem and NAME.pub. No file is overwritten."""
        private = {"key": _pem(self.signing)}
        public = {"pub": (json.dumps(self.identity.as_json(), indent=2) + "\n").encode()}
        if self.tls is not None:
            private["tls.key"] = _pem(self.tls)
            public["tls.pem"] = ssl.DER_cert_to_PEM_cert(self.identity.certificate).encode()
        make_folder(folder, private=True)
        for ending, data in (private | public).items():
            path = folder / f"{self.identity.name}.{ending}"
            try:
                write_file(path, data, private=ending in private, new=True, durable=durable)
            except FileExistsError:
                raise ValueError(f"{path} exists and is not overwritten") from None
        return self.identity


def load_public(path: Path) -> Identity:
    """The party of a public file."""
    try:
        identity = build(IdentityTable, read_json(path), "a party").identity()
        if identity.certificate:
            check_certificate(identity)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {words_of(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a public key file: {error}") from None
    return identity


def check_certificate(identity: Identity) -> None:
    """Refuse bytes that are not one certificate."""
    from cryptography import x509  # slow to load

    try:
        x509.load_der_x509_certificate(identity.certificate)
    except ValueError:
        raise ValueError(f"the certificate of {identity.name} cannot be read") from None


def load_private(path: Path) -> Ed25519PrivateKey:
    """The key of a private file, which nobody but its owner may be able to read."""
    try:
        check_secret(path)
        raw = read_bytes(path, MOST_KEY)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {words_of(error)}") from None
    try:
        key = serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} is not an Ed25519 private key")
    return key


def check_secret(path: Path) -> None:
    """Refuse a key's file that anybody but this user can read.

    Its folder is not looked at: who can write there can put another file in its place, which is not the task's key.
    """
    with open_to_read(path) as file:
        found = os.fstat(file.fileno())
    if is_open_to_others(found):
        raise ValueError(f"{path} can be read by others than its owner: chmod 600 it, and make a new key if unsure")
    if os.geteuid() not in (0, found.st_uid) and found.st_uid != 0:
        raise ValueError(f"{path} belongs to another user, who can read it: make a new key, and a new task")


def sign(key: Ed25519PrivateKey, statement: Digest) -> Blob:
    """A signature of a statement, which is a digest with a purpose of its own."""
    return Blob(key.sign(digest(b"precad signed", statement)))


def is_signed(key: bytes, statement: Digest, signature: bytes) -> bool:
    """Whether the owner of a public key signed a statement."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, digest(b"precad signed", statement))
    except (InvalidSignature, ValueError):
        return False
    return True


def _pem(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _self_signed(name: str, key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> bytes:
    """A certificate (DER) that certifies nobody else: it is pinned, not looked up by host name."""
    from cryptography import x509  # slow to load
    from cryptography.hazmat.primitives import hashes

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * CERTIFICATE_YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)
