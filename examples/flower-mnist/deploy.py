"""Two organisations and their clients on one machine: keys, certificates, kits, and every process, over TLS.

``python deploy.py FOLDER`` makes the folder, starts server B, the SuperLink and a SuperNode for each client, runs the
app, and stops them all. In real life each folder in it is on another machine: docs/deployment.md says who does what.
"""

import argparse
import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from precad.params import Params, Unit
from precad.protocol.states import Role
from precad.services import keys, kit
from precad.services.task import Task, Training, model_digest

HERE, BIN = Path(__file__).parent, Path(sys.executable).parent
CLOSED_NETWORK = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@dataclass
class Deployment:
    """All parties in one folder. ``extra`` adds settings to a client's node config, by its name."""

    folder: Path
    clients: tuple[str, ...]
    rounds: int
    app: Path = HERE
    noise_multiplier: float = 1.0
    extra: dict[str, str] = field(default_factory=dict)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def prepare(self) -> None:
        """What the parties do once, each for itself; then the task, and the kits."""
        self.folder.mkdir(parents=True)
        model = np.zeros(500)
        np.save(self.folder / "model.npy", model)
        now = datetime.datetime.now(datetime.UTC)
        task = Task(
            bounds=Params(
                dim=model.size,
                clients=1,
                record_bound=1.0,
                client_bound=1.0,
                noise_multiplier=self.noise_multiplier,
                unit=Unit.CLIENT,
            ),
            training=Training(
                client_rate=1.0,
                record_rate=1.0,
                rounds=self.rounds,
                learning_rate=1.0,
                delta=1e-3,
                budget=100.0,
                participations=self.rounds,
            ),
            server_a=keys.new_server(self.folder / "a", "alpha", now),
            server_b=keys.new_server(self.folder / "b", "beta", now),
            model=model_digest(model),
        )
        for name in self.clients:
            task = task.with_member(keys.new_client(self.folder / name, name), 600)
        task.save(self.folder / "task.json")
        self._write_kits()
        _make_certificates(self.folder / "tls", now)
        for name in self.clients:
            _make_node_key(self.folder / name)

    def _write_kits(self) -> None:
        task, model, port = self.folder / "task.json", self.folder / "model.npy", free_port()
        kit.server(task, model, Role.A, self.folder / "a")
        kit.server(task, model, Role.B, self.folder / "b")
        for settings in (self.folder / "a" / "a.toml", self.folder / "b" / "b.toml"):
            text = settings.read_text().replace("8443", str(port)).replace("0.0.0.0", "127.0.0.1")  # noqa: S104
            settings.write_text(text)
        for name in self.clients:
            kit.client(task, name, self.folder / name)
        (self.folder / "checkpoints").mkdir()

    def start(self) -> None:
        """Start server B, the SuperLink and the SuperNodes."""
        port, tls, home = free_port(), self.folder / "tls", self.folder / "flwr"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "127.0.0.1:{port}"\n'
            f'root-certificates = "{tls / "ca.pem"}"\n'
        )
        self.launch("server-b", "precad", "server", "--config", str(self.folder / "b" / "b.toml"))
        shown = ("--ssl-certfile", str(tls / "server.pem"), "--ssl-keyfile", str(tls / "server.key"))
        trusted = ("--ssl-ca-certfile", str(tls / "ca.pem"))
        listening = ("--host", "127.0.0.1", "--port", str(port), "--enable-supernode-auth")
        self.launch("superlink", "flower-superlink", *shown, *trusted, *listening)
        wait_for(port, self.processes["superlink"])
        for number, name in enumerate(self.clients):
            self.flwr("supernode", "register", str(self.folder / name / "node.pub"), "ours")
            self._start_node(number, name, port)

    def _start_node(self, number: int, name: str, superlink: int) -> None:
        own = self.folder / name
        settings = f'precad-kit="{own}" precad-name="{name}" partition-id={number} {self.extra.get(name, "")}'
        identity = ("--root-certificates", str(self.folder / "tls" / "ca.pem"))
        key = ("--auth-supernode-private-key", str(own / "node.key"))
        address = ("--superlink", f"127.0.0.1:{superlink}", "--host", "127.0.0.1", "--port", str(free_port()))
        self.launch(name, "flower-supernode", *identity, *key, *address, "--node-config", settings.strip())

    def run(self, timeout: float) -> str:
        """Run the app to its end; what it printed."""
        values = f'precad="{self.folder / "a" / "a.toml"}" checkpoints="{self.folder / "checkpoints"}"'
        settings = f"{values} num-server-rounds={self.rounds}"
        return self.flwr("run", str(self.app), "ours", "--stream", "--run-config", settings, timeout=timeout)

    def flwr(self, *arguments: str, timeout: float = 300) -> str:
        """Flower's command line, as A's operator."""
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

    def stop(self, name: str) -> None:
        """Stop a process and those that it started."""
        process = self.processes.pop(name)
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, how)
                process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        process.wait()

    @contextmanager
    def running(self) -> Iterator["Deployment"]:
        """Everything started, and stopped whatever happens."""
        try:
            self.start()
            yield self
        finally:
            for name in reversed(list(self.processes)):
                self.stop(name)

    def launch(self, name: str, *command: str, environment: dict[str, str] | None = None) -> None:
        """Start a process, in a group of its own, with a log in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=environment or self._environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **CLOSED_NETWORK, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def wait_for(port: int, process: "subprocess.Popen[bytes]", seconds: float = 120) -> None:
    """Wait until a process listens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"nobody listens on port {port}: see the logs")


def _make_certificates(folder: Path, now: datetime.datetime) -> None:
    """The SuperLink's certificate, and the authority that signed it."""
    folder.mkdir()
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
    (folder / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _make_node_key(folder: Path) -> None:
    """The key by which the SuperLink knows a SuperNode."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(folder / "node.key", key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / "node.pub").write_bytes(public)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Train the example over real processes on this machine.")
    parser.add_argument("folder", type=Path, help="where to put everything; it must not exist")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = tuple(f"client-{number}" for number in range(given.clients))
    deployment = Deployment(given.folder.absolute(), names, given.rounds)
    deployment.prepare()
    with deployment.running():
        sys.stdout.write(deployment.run(timeout=3600))


if __name__ == "__main__":
    main()
