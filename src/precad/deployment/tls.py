"""Mutual TLS between the two servers: each accepts the certificate that the task gives for the other, and no other."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from precad.deployment.keys import Identity


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path

    def check(self, identity: Identity) -> None:
        """Refuse a certificate other than the one that the task gives for this server."""
        try:
            der = ssl.PEM_cert_to_DER_cert(self.certificate.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read a certificate from {self.certificate}: {error}") from None
        if der != identity.certificate:
            raise ValueError(f"{self.certificate} is not the certificate that the task gives for {identity.name}")


def server_context(pair: Pair, own: Identity, peer: Identity) -> ssl.SSLContext:
    """B's side."""
    return _pinned(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair, own, peer)


def client_context(pair: Pair, own: Identity, peer: Identity) -> ssl.SSLContext:
    """A's side. The host's name does not matter: the certificate itself is pinned."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _pinned(context, pair, own, peer)


def in_words(error: str, peer: Identity) -> str | None:
    """What a failed handshake means, if it is one that no retry mends."""
    if "not yet valid" in error or "has expired" in error:
        return f"the certificate of {peer.name} is not valid at this machine's time: check the clock"
    if "CERTIFICATE_VERIFY_FAILED" in error:
        return f"the certificate shown is not the one that the task gives for {peer.name}"
    if "alert" in error and ("certificate" in error or "unknown ca" in error):
        return (
            f"{peer.name} refuses this server's certificate: both must hold the same task, and have their clocks right"
        )
    return None


def _pinned(context: ssl.SSLContext, pair: Pair, own: Identity, peer: Identity) -> ssl.SSLContext:
    pair.check(own)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=peer.certificate)
    try:
        context.load_cert_chain(pair.certificate, pair.key)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{pair.key} is not the key of {pair.certificate}: {error}") from None
    return context
