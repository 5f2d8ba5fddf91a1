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


def pinned_context(side: int, pair: Pair, own: Identity, peer: Identity) -> ssl.SSLContext:
    """B's side is ``ssl.PROTOCOL_TLS_SERVER``, A's ``ssl.PROTOCOL_TLS_CLIENT``.

    The host's name does not matter: the certificate itself is pinned.
    """
    pair.check(own)
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=peer.certificate)
    try:
        context.load_cert_chain(pair.certificate, pair.key)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{pair.key} is not the key of {pair.certificate}: {error}") from None
    return context


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
