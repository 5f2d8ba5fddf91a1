"""Who is who: Ed25519 keys and TLS certificates, and the files that hold them.

A private key is written once, readable by its owner alone, and never printed. A public file is JSON: a party hands it
to the others, who put it into the task.
"""

import base64
import datetime
import hashlib
import json
import re
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from precad.files import write_file
from precad.mpc.prg import Digest, check_name, digest
from precad.protocol.codec import Blob
from precad.tables import build, parse_json

KEY_BYTES = 32
CERTIFICATE_YEARS = 10


@dataclass(frozen=True)
class Identity:
    """A party as the others know it."""

    name: str
    key: bytes
    """Its Ed25519 public key."""
    certificate: bytes = b""
    """A server's TLS certificate (DER): the other server accepts this one and no other."""

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
    """A server's, of its certificate."""

    @classmethod
    def of_client(cls, name: str) -> "OwnKeys":
        """New keys of a client."""
        signing = Ed25519PrivateKey.generate()
        return cls(Identity(name, signing.public_key().public_bytes_raw()), signing)

    @classmethod
    def of_server(cls, name: str, now: datetime.datetime) -> "OwnKeys":
        """New keys of a server, with a certificate that is valid from now on."""
        check_party(name)
        signing, tls = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())
        return cls(Identity(name, signing.public_key().public_bytes_raw(), _self_signed(name, tls, now)), signing, tls)

    def save(self, folder: Path, *, durable: bool = True) -> Identity:
        """Write NAME.key and NAME.pub, and of a server NAME.tls.key and NAME.tls.pem. No file is overwritten."""
        private = {"key": _pem(self.signing)}
        public = {"pub": (json.dumps(self.identity.as_json(), indent=2) + "\n").encode()}
        if self.tls is not None:
            private["tls.key"] = _pem(self.tls)
            public["tls.pem"] = ssl.DER_cert_to_PEM_cert(self.identity.certificate).encode()
        folder.mkdir(parents=True, exist_ok=True)
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
        return build(IdentityTable, parse_json(path.read_text()), "a party").identity()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a public key file: {error}") from None


def load_private(path: Path) -> Ed25519PrivateKey:
    """The key of a private file, which nobody but its owner may be able to read."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ValueError(f"{path} can be read by others than its owner: chmod 600 it, and make a new key if unsure")
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    try:
        key = serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} is not an Ed25519 private key")
    return key


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
    from cryptography import x509  # slow to load, and of no use to a client
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
