"""Hosts and ports in a person's settings: one check, and one way to write them as an address."""

import re


def check_host(name: str, host: str) -> None:
    """Refuse what is neither the name of a host nor an address of IPv4 or IPv6."""
    if not re.fullmatch(r"[A-Za-z0-9._:%-]{1,253}", host):
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
    host = host.removeprefix("[").removesuffix("]")
    check_host(name, host)
    check_port(name, int(port), least=1)
    return host, int(port)


def https_url(host: str, port: int) -> str:
    """The address of a service."""
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
