"""Who is connected to a door, and who gives way when there are too many.

A stranger is counted by its address, whoever has shown a certificate of the task by that: strangers at an address never
keep out a party that connects from there too. A newcomer beyond a bound takes the place of the one that has waited
longest without a whole request, of those who take up the most; it is refused only if all have a request under way.
"""

import ipaddress
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

SPARE = 128
"""Open files that a process needs beside its connections."""


@dataclass(frozen=True)
class Bounds:
    """What a door allows."""

    in_all: int = 1024
    """Connections at once."""
    per_address: int = 64
    """Of one address before a certificate was shown, or with one certificate."""
    handshake: float = 10.0
    """Seconds for the TLS handshake."""
    head: float = 30.0
    """Seconds to the end of the first request's head; also the longest pause within a request."""
    idle: float = 120.0
    """Seconds to the end of the next request's head."""
    taken: float = 120.0
    """Seconds for which an answer may wait to be taken."""

    def __post_init__(self) -> None:
        for name in ("in_all", "per_address"):
            if getattr(self, name) < 1:
                raise ValueError(f"a door allows at least 1 connection ({name}), got {getattr(self, name)}")


LOCAL = Bounds(in_all=64)
"""Of a door that this machine alone reaches."""


@dataclass(eq=False)
class Visitor:
    """One connection."""

    address: str
    cut: Callable[[], None]
    """Ends the connection at once."""
    certificate: bytes = b""
    """What it has shown, if that is of the task."""
    is_busy: Callable[[], bool] = field(default=lambda: False)
    """Whether a whole request of it is being answered."""

    @property
    def crowd(self) -> str | bytes:
        """What it is counted by. Whoever has one address of IPv6 has 2^64 of them."""
        return self.certificate or network(self.address)


class Visitors:
    """Those who are connected, by crowd, each in the order in which they came."""

    def __init__(self, bounds: Bounds, note: Callable[[Visitor, str], None]) -> None:
        """``note`` is told of whoever is turned away, and why."""
        self.bounds, self.note = bounds, note
        self._most = _within_files(bounds.in_all)
        self._crowds: dict[str | bytes, dict[Visitor, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, visitor: Visitor) -> bool:
        """Whether a newcomer may stay; another may have given way to it."""
        same = self._crowds.get(visitor.crowd, {})
        whose = "certificate" if visitor.certificate else "address"
        if len(same) >= self.bounds.per_address and not self._free(same, f"{len(same)} connections of one {whose}"):
            return self._refuse(visitor, f"{len(same)} connections of one {whose}, all with a request under way")
        if self._count >= self._most and not self._free(self._largest_first(), f"{self._count} connections in all"):
            return self._refuse(visitor, f"{self._count} connections in all, each with a request under way")
        self._crowds.setdefault(visitor.crowd, {})[visitor] = None
        self._count += 1
        return True

    def introduce(self, visitor: Visitor, certificate: bytes) -> bool:
        """Whether one that has shown a certificate may stay: from now on it is counted by that."""
        self.leave(visitor)
        visitor.certificate = certificate
        return self.admit(visitor)

    def leave(self, visitor: Visitor) -> None:
        """It is gone."""
        same = self._crowds.get(visitor.crowd, {})
        if visitor in same:
            del same[visitor]
            self._count -= 1
            if not same:
                del self._crowds[visitor.crowd]

    def make_room(self) -> None:
        """Let one go: the process has no file left to open."""
        self._free(self._largest_first(), "this server has no more files to open")

    def _largest_first(self) -> Iterable[Visitor]:
        """Strangers, of the largest crowd first; then the others."""
        known, strangers = (
            [each for each in self._crowds.items() if isinstance(each[0], kind)] for kind in (bytes, str)
        )
        for crowds in (strangers, known):
            for _, crowd in sorted(crowds, key=lambda each: -len(each[1])):
                yield from crowd

    def _free(self, those: Iterable[Visitor], why: str) -> bool:
        """Whether one of these has given way."""
        for visitor in those:
            if not visitor.is_busy():
                self.leave(visitor)
                self.note(visitor, f"gave way to a newer connection: {why}")
                visitor.cut()
                return True
        return False

    def _refuse(self, visitor: Visitor, why: str) -> bool:
        self.note(visitor, why)
        return False


def network(address: str) -> str:
    """An address of IPv4, or the /64 network of one of IPv6; any other text is itself."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _within_files(wanted: int) -> int:
    """As many connections as the process may have open files for; it allows itself more if it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + SPARE:
        soft = wanted + SPARE if hard == resource.RLIM_INFINITY else min(hard, wanted + SPARE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - SPARE))
