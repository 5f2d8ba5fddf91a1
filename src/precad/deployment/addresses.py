"""Hosts and ports in a person's settings: one check, and one way to write them as an address."""

import ipaddress
import re

_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


def check_host(name: str, host: str) -> None:
    """Refuse what is neither the name of a host nor an address of IPv4 or IPv6."""
    if not (_is_address(host) or _is_name(host)):
        raise ValueError(f"{name} must be the name of a host or an IP address, got {host!r}")


def check_port(name: str, port: int, least: int = 0) -> None:
    """Refuse a number that no port has. 0 stands for none, or for any that is free."""
    if not least <= port < 1 << 16:
        raise ValueError(f"{name} must be from {least} to 65535, got {port}")


def host_and_port(name: str, text: str) -> tuple[str, int]:
    """The two parts of ``HOST:PORT``; an address of IPv6 may stand in brackets."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port):
        raise ValueError(f"{name} must be given as HOST:PORT, got {text!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    check_host(name, host)
    check_port(name, int(port), least=1)
    return host, int(port)


def https_url(host: str, port: int) -> str:
    """The address of a service."""
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return re.fullmatch("[0-9A-Fa-f:.]+", host) is not None


def _is_name(host: str) -> bool:
    """Labels with dots between them; the last is no number, or the host would be an address that is none."""
    labels = host.removesuffix(".").split(".")
    return len(host) <= 253 and all(map(_NAME.fullmatch, labels)) and not labels[-1].isdigit()
