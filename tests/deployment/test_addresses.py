"""Hosts and ports of settings: what is none is named, and never reaches a socket or a unit file."""

import re
from pathlib import Path

import pytest

from precad.deployment.addresses import check_host, check_port, host_and_port, https_url
from precad.deployment.config import ServerConfig

GOOD = ["localhost", "a.example", "a.example.", "127.0.0.1", "::1", "2001:db8::7", "SERVER-A", "a_b"]
BAD = ["", "a b", "a/b", "a@b", "\x1b[31m", "a\n", "a;b", "$(a)", "x" * 254, "[::1]", "ä.example", "٣", "%n"]
BAD += [":::::", "x:y", "1:2", "fe80::1%", "fe80::1%eth0", "%:%", "999.1.1.1", "1.2.3", "-a", "a-.b", "a..b", ".a", "1"]


@pytest.mark.parametrize("host", GOOD)
def test_hosts(host: str) -> None:
    check_host("host", host)
    assert host_and_port("place", f"[{host}]:8443") == host_and_port("place", f"{host}:8443") == (host, 8443)


@pytest.mark.parametrize("host", BAD)
def test_what_is_no_host_is_named(host: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"host must be the name of a host or an IP address, got {host!r}")):
        check_host("host", host)


@pytest.mark.parametrize("text", ["a", "a:", "a:b", "a:123456", "a:-1", ":1:", "a:٣"])
def test_what_is_no_place_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"place must be given as HOST:PORT"):
        host_and_port("place", text)


@pytest.mark.parametrize(("port", "least"), [(-1, 0), (0, 1), (65536, 0)])
def test_what_is_no_port_is_named(port: int, least: int) -> None:
    with pytest.raises(ValueError, match=f"port must be from {least} to 65535, got {port}"):
        check_port("port", port, least)


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert (https_url("::1", 1), https_url("a", 2)) == ("https://[::1]:1", "https://a:2")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("host", "clients_host") for value in ("", "a b", "\x1b")),
        *((key, value) for key in ("port", "metrics_port", "clients_port") for value in (-1, 65536)),
        *((key, value) for key in ("answer_seconds", "connect_seconds") for value in (0.0, -1.0)),
    ],
)
def test_a_server_names_the_setting_that_is_none(key: str, value: object) -> None:
    files = dict.fromkeys(("task", "model", "key", "tls_key", "certificate", "store", "audit_log"), Path("x"))
    with pytest.raises(ValueError, match=f"^{key} must be"):
        ServerConfig(**files, **{key: value})  # type: ignore[arg-type] # one of several types
