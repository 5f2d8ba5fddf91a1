"""Parties as processes on one machine, over TLS on the loopback: for examples, tests and benchmarks.

In real life each folder of a :class:`Site` is on another machine: docs/deployment.md says who does what.
"""

import datetime
import ipaddress
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from numpy.typing import NDArray

from precad.deployment import config, keys, kit
from precad.deployment import task as tasks
from precad.deployment.client import Client
from precad.deployment.config import ServerConfig
from precad.deployment.https import HttpTransport
from precad.deployment.parties import Parties
from precad.deployment.task import Task, Training
from precad.files import make_folder, open_to_append, read_bytes, read_text, write_file
from precad.protocol.params import Params
from precad.protocol.states import Role

BIN = Path(sys.executable).parent
PRECAD = (Path(sys.executable).name, "-P", "-m", "precad")
CLOSED_NETWORK = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
SLOW = 300.0
"""Seconds that a process has to start, and a command to end, on a machine that does much else."""
STOPPING = 20.0
RAY_ATTEMPTS = 4
"""Ray gives up by itself if one of its processes takes more than 30 seconds to start."""


@dataclass
class Processes:
    """Processes that are stopped together; each logs into the folder, each is a group of its own."""

    folder: Path
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict, init=False)
    variables: dict[str, str] = field(default_factory=dict, init=False)
    """Added to their environment."""

    def launch(self, name: str, *command: str) -> None:
        """Start a program of this Python's environment."""
        with open_to_append(self.folder / f"{name}.log") as log:
            self.started[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self._environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def launch_server(self, role: Role) -> None:
        """Start a server of the :class:`Site` in this folder, by the command of its operator."""
        settings, name = str(Site(self.folder).settings_file(role)), f"server-{role.name.lower()}"
        self.launch(name, *PRECAD, "server", "--config", settings)

    def wait_for(self, name: str, port: int | Path) -> None:
        """Wait until a process listens, on a port or at a Unix socket."""
        deadline = time.monotonic() + SLOW
        local = isinstance(port, Path)
        where = str(port) if local else ("127.0.0.1", port)
        while time.monotonic() < deadline and self.started[name].poll() is None:
            with socket.socket(socket.AF_UNIX if local else socket.AF_INET) as attempt:
                if attempt.connect_ex(where) == 0:
                    return
            time.sleep(0.2)
        words = read_bytes(self.folder / f"{name}.log").decode(errors="replace")[-2000:].strip()
        raise RuntimeError(f"{name} does not listen at {port}: {words or 'it said nothing'}")

    def flwr(self, *arguments: str, timeout: float = SLOW) -> str:
        """Run Flower's command line to its end; what it printed."""
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        text = done.stdout.decode(errors="replace")
        if done.returncode:
            raise RuntimeError(f"flwr {arguments[0]} failed:\n{text}")
        return text

    def connect(self, address: str, how: str) -> None:
        """Tell Flower's command line where the SuperLink is."""
        make_folder(self.folder / "flwr")
        text = f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "{address}"\n{how}\n'
        write_file(self.folder / "flwr" / "config.toml", text)

    def stop(self) -> None:
        """Stop all, and what they started: ask, the last one first, and end those that take too long."""
        processes = list(reversed(self.started.values()))
        for process in processes:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + STOPPING
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in processes:
            _signal(process, signal.SIGKILL)
            process.wait()
        self.started.clear()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything started, and stopped whatever happens."""
        try:
            self.start()
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Start all."""
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
        own = {"FLWR_HOME": str(self.folder / "flwr"), "PATH": path, "PYTHONSAFEPATH": "1"}
        return {**os.environ, **CLOSED_NETWORK, **own, **self.variables}


@dataclass(frozen=True)
class Site:
    """The folders that :meth:`precad.deployment.parties.Parties.save_apart` made, one for each party."""

    folder: Path

    @cached_property
    def task(self) -> Task:
        """The task of all of them."""
        return tasks.load(self.folder / "task.json")

    def settings_file(self, role: Role) -> Path:
        """The file of a server's settings."""
        return self.folder / self.task.server(role).name / kit.settings_name(role)

    def settings(self, role: Role) -> ServerConfig:
        """A server's settings."""
        return config.load(self.settings_file(role))

    def client(self, name: str) -> Client:
        """A client, on its state."""
        own = self.folder / name
        return Client(self.task, name, keys.load_private(own / f"{name}.key"), own / f"{name}.db")

    def transport(self, *, attempts: int = 6) -> HttpTransport:
        """A's way to B."""
        own = self.settings(Role.A)
        return HttpTransport(self.task, own.host, own.port, own.pair(), attempts=attempts)


@dataclass(frozen=True)
class Memory:
    """Resident memory of a process, in MiB."""

    now: float
    peak: float


@dataclass
class ServerB(Processes):
    """Server B of a :class:`Site`, as its operator runs it."""

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.launch_server(Role.B)
        self.wait_for("server-b", Site(self.folder).settings(Role.B).port)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process that was started last."""
        return self.started["server-b"]

    def memory(self) -> Memory:
        """What Linux says of it."""
        lines = read_text(Path(f"/proc/{self.process.pid}/status")).splitlines()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return Memory(kib["VmRSS"] / 1024, kib["VmHWM"] / 1024)


@dataclass
class Servers(Processes):
    """Both servers of a :class:`Site`, as their operators run them, for native clients."""

    def start(self) -> None:
        """Start them, and wait until A listens for clients."""
        site = Site(self.folder)
        self.launch_server(Role.B)
        self.wait_for("server-b", site.settings(Role.B).port)
        self.launch_server(Role.A)
        self.wait_for("server-a", site.settings(Role.A).clients_port)


@dataclass
class Deployment(Processes):
    """Servers A and B, a SuperLink, and for each client the keeper of its key and a SuperNode."""

    clients: tuple[str, ...]

    def prepare(self, model: NDArray[np.float64], bounds: Params, training: Training) -> None:
        """What the parties do once, each for itself; then the task, and the kits."""
        Parties.new(model, bounds, training, dict.fromkeys(self.clients, 1)).save_apart(self.folder, free_port())
        for name in self.clients:
            _make_node_key(self.folder / name)
        _make_certificates(self.folder / "tls", datetime.datetime.now(datetime.UTC))

    @property
    def socket_a(self) -> Path:
        """Server A's socket, by which an app reaches it."""
        return Site(self.folder).settings(Role.A).app_socket

    def start(self) -> None:
        """Start both servers, the SuperLink and the SuperNodes."""
        port, tls = free_port(), self.folder / "tls"
        self.connect(f"127.0.0.1:{port}", f'root-certificates = "{tls / "ca.pem"}"')
        self.launch_server(Role.B)
        self.launch_server(Role.A)
        shown = ("--ssl-certfile", str(tls / "server.pem"), "--ssl-keyfile", str(tls / "server.key"))
        trusted = ("--ssl-ca-certfile", str(tls / "ca.pem"))
        listening = ("--host", "127.0.0.1", "--port", str(port), "--enable-supernode-auth")
        self.launch("superlink", "flower-superlink", *shown, *trusted, *listening)
        self.wait_for("superlink", port)
        self.wait_for("server-a", self.socket_a)
        for number, name in enumerate(self.clients):
            self.flwr("supernode", "register", str(self.folder / name / "node.pub"), "ours")
            self._start_node(number, name, port)

    def _start_node(self, number: int, name: str, superlink: int) -> None:
        own = self.folder / name
        keeper, place = f"{name}-keeper", own / f"{name}.sock"
        self.launch(keeper, *PRECAD, "client", "--config", str(own / f"{name}.toml"), "--flower")
        self.wait_for(keeper, place)
        settings = f'precad-socket="{place}" partition-id={number}'
        trusted = ("--root-certificates", str(self.folder / "tls" / "ca.pem"))
        key = ("--auth-supernode-private-key", str(own / "node.key"))
        address = ("--superlink", f"127.0.0.1:{superlink}", "--host", "127.0.0.1", "--port", str(free_port()))
        self.launch(name, "flower-supernode", *trusted, *key, *address, "--node-config", settings)


class Simulation(Processes):
    """Flower's simulation, with a Ray of its own that keeps its objects in the folder, not in /dev/shm."""

    def start(self) -> None:
        """Start Ray and the SuperLink."""
        make_folder(self.folder / "plasma", new=True)
        self.variables["PRECAD_SIMULATION"] = str(self.folder / "simulation")
        for _ in range(RAY_ATTEMPTS):
            if self._start_ray(free_port()):
                break
        else:
            raise RuntimeError(f"Ray does not start: see {self.folder / 'ray.log'}")
        link = free_port()
        self.connect(f"127.0.0.1:{link}", "insecure = true")
        listening = ("--host", "127.0.0.1", "--port", str(link))
        self.launch("superlink", "flower-superlink", "--simulation", "--insecure", *listening)
        self.wait_for("superlink", link)

    def _start_ray(self, port: int) -> bool:
        """Whether Ray started; it may not, on a machine that is too busy."""
        self.variables["RAY_ADDRESS"] = f"127.0.0.1:{port}"
        where = (f"--port={port}", f"--plasma-directory={self.folder / 'plasma'}", "--object-store-memory=200000000")
        quiet = ("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats")
        (self.folder / "ray.log").unlink(missing_ok=True)
        self.launch("ray", "ray", "start", "--head", "--block", *where, *quiet)
        process, deadline = self.started["ray"], time.monotonic() + SLOW
        while process.poll() is None and time.monotonic() < deadline:
            if "Ray runtime started" in read_text(self.folder / "ray.log"):
                return True
            time.sleep(0.2)
        self.stop()
        return False


def free_port() -> int:
    """A port on which nobody listens, and which no connection is given by the system, as those are from 32768 on."""
    while True:
        with socket.socket() as listening:
            try:
                port = 20_000 + secrets.randbelow(12_000)
                listening.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _signal(process: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    """Signal a process's whole group, of which some may be left when it is not."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return


def _make_certificates(folder: Path, now: datetime.datetime) -> None:
    """The SuperLink's certificate, and the authority that signed it."""
    make_folder(folder, new=True)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, subject = _named("authority"), _named("127.0.0.1")
    until = now + datetime.timedelta(days=30)
    start = x509.CertificateBuilder().issuer_name(issuer).not_valid_before(now - datetime.timedelta(days=1))
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = (
        start.subject_name(issuer)
        .public_key(authority.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
    certificate = (
        start.subject_name(subject)
        .public_key(server.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([address, x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    write_file(folder / "ca.pem", ca.public_bytes(serialization.Encoding.PEM))
    write_file(folder / "server.pem", certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _make_node_key(folder: Path) -> None:
    """The key by which the SuperLink knows a SuperNode."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(folder / "node.key", key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_file(folder / "node.pub", public)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_file(path, pem, private=True)
