"""Mutual TLS: each party accepts the certificates that the task gives for those it speaks to, and no others."""

import datetime
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from precad.deployment.keys import Identity, check_certificate, check_secret
from precad.files import read_text, words_of

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path

    def check(self, identity: Identity) -> None:
        """Refuse a certificate other than the one that the task gives for this party."""
        try:
            der = ssl.PEM_cert_to_DER_cert(read_text(self.certificate))
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read the certificate {self.certificate}: {error}") from None
        try:
            check_secret(self.key)  # OpenSSL itself would take any, and wait at a pipe
        except OSError as error:
            raise ValueError(f"cannot read {self.key}: {words_of(error)}") from None
        if der != identity.certificate:
            raise ValueError(f"{self.certificate} is not the certificate that the task gives for {identity.name}")


class PinnedContext(ssl.SSLContext):
    """A context that knows which certificates it is for: OpenSSL alone would also take what one of them has signed."""

    pinned: frozenset[bytes] = frozenset()


def pinned_context(side: int, pair: Pair, own: Identity, *peers: Identity) -> PinnedContext:
    """Who listens has the side ``ssl.PROTOCOL_TLS_SERVER``, who connects ``ssl.PROTOCOL_TLS_CLIENT``.

    The host's name does not matter: the certificates themselves are pinned. One whose certificate can sign others still
    gets a stranger through the handshake, so :class:`precad.deployment.doors.Door` compares what was shown.
    """
    pair.check(own)
    if not is_valid_now(own):
        LOG.warning(
            "the certificate of %s is not valid at this machine's time: check the clock. %s", own.name, _times(own)
        )
    context = PinnedContext(side)
    context.pinned = frozenset(peer.certificate for peer in peers)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # else a peer that took another's subject would keep it out
    for peer in peers:
        check_certificate(peer)
        context.load_verify_locations(cadata=peer.certificate)
    try:
        context.load_cert_chain(pair.certificate, pair.key)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{pair.key} is not the key of {pair.certificate}: {error}") from None
    return context


def in_words(error: str, peer: Identity) -> str | None:
    """What a failed handshake means, if it is one that no retry mends."""
    if "not yet valid" in error or "has expired" in error:
        return f"the certificate of {peer.name} is not valid at this machine's time: check the clock. {_times(peer)}"
    if "CERTIFICATE_VERIFY_FAILED" in error:
        return f"the certificate shown is not the one that the task gives for {peer.name}"
    if "alert certificate expired" in error or "alert bad certificate" in error:
        return f"{peer.name} refuses this server's certificate as not valid at its own time: check both clocks"
    if "alert" in error and ("certificate" in error or "unknown ca" in error):
        return f"{peer.name} refuses the certificate shown: both must hold the same task, and have their clocks right"
    return None


def is_valid_now(identity: Identity) -> bool:
    """Whether a party's certificate is valid at this machine's time."""
    begin, end = _validity(identity)
    return begin <= datetime.datetime.now(datetime.UTC) <= end


def _times(identity: Identity) -> str:
    begin, end, now = (f"{each:%Y-%m-%d %H:%M}" for each in (*_validity(identity), datetime.datetime.now(datetime.UTC)))
    return f"The certificate is valid from {begin} to {end}, and it is {now} UTC"


def _validity(identity: Identity) -> tuple[datetime.datetime, datetime.datetime]:
    from cryptography import x509  # slow to load

    certificate = x509.load_der_x509_certificate(identity.certificate)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def refused_in_words(error: ssl.SSLError) -> str:
    """Why a handshake failed, for the log of whoever listens. Only a certificate of the task is tried for its time."""
    text = f"{error.reason or ''} {getattr(error, 'verify_message', '')} {error}".lower()
    for sign, words in _REFUSED.items():
        if sign in text:
            return words
    return f"its TLS handshake failed: {error.reason or error}"


NOT_OF_THE_TASK = "its certificate is not of this task"
_REFUSED = {
    "not yet valid": "its certificate is of this task, but not valid yet at this machine's time: check both clocks",
    "has expired": "its certificate is of this task, but has expired at this machine's time: check both clocks",
    "certificate_verify_failed": NOT_OF_THE_TASK,
    "peer_did_not_return_a_certificate": "it showed no certificate",
    "http_request": "not TLS, but plain HTTP",
    "wrong_version_number": "not TLS",
    "unsupported_protocol": "an older TLS than 1.3",
    "alert_unknown_ca": "it refuses this server's certificate: both must hold the same task",
    "alert_certificate_expired": "it finds this server's certificate expired at its own time: check both clocks",
    "alert_bad_certificate": "it refuses this server's certificate: check both clocks, and the task",
}
