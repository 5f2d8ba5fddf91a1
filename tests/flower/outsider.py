"""Somebody on the internet who has A's public certificate: tries every port, every path and every command of Flower.

``python outsider.py ADDRESS_A PORT_A CLIENTS_PORT ADDRESS_B PORT_B CERTIFICATE FOLDER`` prints what it got, as JSON.
"""

import json
import os
import selectors
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

AT_ONCE = 500
PATIENCE = 60


def open_ports(address: str) -> list[int]:
    """Of all that there are."""
    found, waiting = [], list(range(65535, 0, -1))
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < AT_ONCE:
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex((address, waiting[-1]))
                selector.register(sock, selectors.EVENT_WRITE, waiting.pop())
            for key, _ in selector.select(PATIENCE):
                sock = key.fileobj  # type: ignore[assignment] # that is what was registered
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.append(key.data)
                selector.unregister(sock)
                sock.close()
    return sorted(found)


def ask(address: str, port: int, certificate: str, raw: bytes) -> str:
    """What comes back, or the error."""
    context = ssl.create_default_context(cafile=certificate or None)
    context.check_hostname = False
    if not certificate:
        context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((address, port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=address) as sock,
        ):
            sock.sendall(raw)
            received = b""
            while piece := sock.recv(65536):
                received += piece
    except OSError as error:
        return type(error).__name__
    return received.decode(errors="replace")


def answers(address: str, port: int, certificate: str) -> dict[str, str]:
    """To a request for each path that a SuperLink has, and to some that lead there if somebody decodes them."""
    from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

    paths = [path for _, path in PROTOBUF_REQUEST_TYPES]
    tricks = (
        "/v1/fleet/%2e%2e/control/start-run",
        "//v1/control/start-run",
        "https://127.0.0.1:8000/v1/control/start-run",
    )
    got = {}
    for path in (*paths, *tricks, "/", "/health", "/metrics", "/docs", "/openapi.json"):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\nContent-Length: 0\r\n"
        got[path] = ask(address, port, certificate, f"{head}Content-Type: application/protobuf\r\n\r\n".encode())
    return got


def commands(address: str, port: int, certificate: str, folder: Path) -> dict[str, int]:
    """The status of each command of Flower, and of a node that A does not know."""
    home = folder / "flwr"
    home.mkdir()
    where = f'address = "{address}:{port}"\nroot-certificates = "{certificate}"\n'
    (home / "config.toml").write_text(f"[superlink.a]\n{where}")
    run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(folder / "node"))
    node = ["flower-supernode", "--superlink", f"{address}:{port}", "--root-certificates", certificate]
    tried = {
        "run": ["flwr", "run", str(folder / "app"), "a"],
        "list": ["flwr", "list", "a"],
        "register": ["flwr", "supernode", "register", str(folder / "node.pub"), "a"],
        "nodes": ["flwr", "supernode", "list", "a"],
        "federations": ["flwr", "federation", "list", "a"],
        "node": [*node, "--auth-supernode-private-key", str(folder / "node"), "--port", "9999"],
        "node without a key": [*node, "--port", "9998"],
    }
    os.environ["FLWR_HOME"] = str(home)
    return {name: run(*words) for name, words in tried.items()}


def run(*words: str) -> int:
    """The status of a command, which has a minute."""
    command = [str(shutil.which("timeout")), "-s", "KILL", str(PATIENCE), *words]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode


def main(
    address_a: str, port_a: str, clients_port: str, address_b: str, port_b: str, certificate: str, folder: str
) -> None:
    a, door, b = (address_a, int(port_a)), (address_a, int(clients_port)), (address_b, int(port_b))
    rest = b"HTTP/1.1\r\nHost: b\r\nprecad-protocol: 2\r\nContent-Length: 0\r\n\r\n"
    begin, invitation = b"POST /v1/rounds/0/begin " + rest, b"GET /v2/rounds/next?after=-1 " + rest
    result = {
        "ports": [open_ports(address) for address, _ in (a, b)],
        "answers": answers(*a, certificate),
        "without a certificate": [ask(*b, "", begin), ask(*door, "", invitation), ask(*a, certificate, b"\0" * 100)],
        "commands": commands(*a, certificate, Path(folder)),
    }
    print(json.dumps(result))  # noqa: T201 - for the test


if __name__ == "__main__":
    main(*sys.argv[1:])
