"""All parties of a task with both kinds of clients, as their operators run them: processes that can be killed and
frozen, lines between them that can be cut, and servers' disks that can be filled.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import Signals

from precad.lab.processes import PRECAD, Processes, Site, free_port
from precad.protocol.states import Role
from tests.deployment import storm_parties
from tests.deployment.storm_parties import DISK, FLOWER, NATIVE
from tests.deployment.storm_proxy import Line

ROOM = 24 << 20
"""Bytes of a server's disk."""
MARK = "PRECAD_STORM"
"""In the environment of every process: whose it is. What it starts inherits it."""
APP_PROCESS = b"flwr-serverapp"
PATIENCE = 120.0
"""Seconds for a process to end."""


class Volume:
    """A server's disk: a file system of its own, if this machine allows it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._ballast = folder, folder / "ballast"
        folder.mkdir(mode=0o700)
        mount = shutil.which("mount")
        command = [str(mount), "-t", "tmpfs", "-o", f"size={ROOM},mode=0700", "tmpfs", str(folder)]
        self.is_own = mount is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Leave no room."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(1 << 12))

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it, when no process uses it."""
        if self.is_own:
            subprocess.run([str(shutil.which("umount")), "-l", str(self.folder)], check=True)


class StormSite(Processes):
    """The parties, in a folder each."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder)
        ports = {role: free_port() for role in Role}
        self._link, self._ports = free_port(), {name: free_port() for name in FLOWER}
        self.lines = {role: Line(ports[role], seed + number) for number, role in enumerate(Role)}
        """To A, for native clients, and to B."""
        self.volumes: dict[Role, Volume] = {}
        self._said: dict[str, int] = {}
        self.variables["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(folder / "code"), os.environ.get("PYTHONPATH")])
        )
        try:
            for role, name in zip(Role, ("alpha", "beta"), strict=True):
                (folder / name).mkdir(mode=0o700)
                self.volumes[role] = Volume(folder / name / DISK)
            storm_parties.make(folder, ports, {role: line.port for role, line in self.lines.items()})
        except BaseException:
            self.close()
            raise
        self.site = Site(folder)

    @property
    def services(self) -> list[str]:
        """The names of all processes that run for ever, in the order in which they start."""
        nodes = [name for client in FLOWER for name in self._on_flower(client)]
        return ["server-b", "server-a", "superlink", *(f"client-{name}" for name in NATIVE), *nodes]

    def start(self) -> None:
        """Start all, and let the SuperLink know its nodes."""
        tls = self.folder / "tls"
        self.connect(f"127.0.0.1:{self._link}", f'root-certificates = "{tls / "ca.pem"}"')
        self.begin("superlink")
        self.wait_for("superlink", self._link)
        for name in FLOWER:
            self.flwr("supernode", "register", str(self.folder / name / "node.pub"), "ours")
        for name in self.services:
            if name != "superlink":
                self.begin(name)

    def begin(self, name: str) -> None:
        """Start a service, by the command of its operator."""
        kind, _, client = name.partition("-")
        if kind == "server":
            self.launch_server(Role[client.upper()])
        elif kind == "client":
            own = str(self.folder / client / f"{client}.toml")
            self.launch(name, *PRECAD, "client", "--config", own, "--train", "storm_train:train")
        elif kind == "superlink":
            self._begin_superlink()
        else:
            self.launch(name, *self._on_flower(client)[name])

    def begin_app(self, name: str, rounds: int) -> None:
        """Start an app, whose log is that of ``flwr run``."""
        settings = f'socket="{self.site.settings(Role.A).app_socket}" rounds={rounds}'
        self.launch(name, "flwr", "run", str(self.folder / "app"), "ours", "--stream", "--run-config", settings)

    def launch(self, name: str, *command: str) -> None:
        """Start a program that can be found again, and all that it starts."""
        self.variables[MARK], self._said[name] = self._mark(name), len(self.log(name))
        super().launch(name, *command)

    def runs(self, name: str) -> bool:
        """Whether a process was started and has not ended."""
        return name in self.started and self.started[name].poll() is None

    def pids(self, name: str, *, apps: bool = False) -> list[int]:
        """A service's processes; or those of them alone that run an app's server."""
        mark, found = f"{MARK}={self._mark(name)}".encode(), []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark not in (path / "environ").read_bytes().split(b"\0"):
                    continue
                if not apps or APP_PROCESS in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def send(self, name: str, how: Signals, *, apps: bool = False) -> int:
        """Send a signal to a service's processes; how many there were."""
        pids = self.pids(name, apps=apps)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        return len(pids)

    def end(self, name: str, how: Signals = Signals.SIGKILL) -> None:
        """End a process and what it started, and wait until it has: killed at once, or if it does not obey."""
        deadline = time.monotonic() + PATIENCE
        self.send(name, Signals.SIGCONT)
        self.send(name, how)
        while self.pids(name) or self.runs(name):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not end")
            if how is Signals.SIGKILL or time.monotonic() > deadline - PATIENCE / 2:
                self.send(name, Signals.SIGKILL)
            time.sleep(0.1)

    def leave(self) -> None:
        """End all but the servers as operators do: nodes tell the SuperLink that they go, and apps go with it."""
        others = [name for name in self.started if name not in self.services]
        for name in [*reversed(self.services), *others]:
            if not name.startswith("server-"):
                is_slow = name == "superlink"  # it waits a minute for its app
                self.end(name, Signals.SIGKILL if is_slow else Signals.SIGTERM)

    def end_all(self) -> None:
        """Kill every process."""
        for name in list(self.started):
            self.end(name)
        self.started.clear()

    def log(self, name: str) -> str:
        """All that a process ever said."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def last_words(self, name: str) -> str:
        """What a process said since it was started last."""
        return self.log(name)[self._said[name] :]

    def close(self) -> None:
        """End every process of this site, and let go of lines and disks."""
        with ExitStack() as last_first:
            for volume in self.volumes.values():
                last_first.callback(volume.close)
            for line in self.lines.values():
                last_first.callback(line.close)
            last_first.callback(self.end_all)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Everything is ended at the end, whatever happens."""
        try:
            yield
        finally:
            self.close()

    def _on_flower(self, client: str) -> dict[str, list[str]]:
        """The processes of a client on Flower, and their commands."""
        own, number = self.folder / client, FLOWER.index(client)
        settings = f'precad-socket="{own / client}.sock" partition-id={number}'
        trusted = ["--root-certificates", str(self.folder / "tls" / "ca.pem")]
        key = ["--auth-supernode-private-key", str(own / "node.key")]
        address = ["--superlink", f"127.0.0.1:{self._link}", "--host", "127.0.0.1", "--port", str(self._ports[client])]
        node = ["flower-supernode", *trusted, *key, *address, "--node-config", settings]
        keeper = [*PRECAD, "client", "--config", str(own / f"{client}.toml"), "--flower"]
        return {f"keeper-{client}": keeper, f"node-{client}": node}

    def _begin_superlink(self) -> None:
        tls = self.folder / "tls"
        shown = ("--ssl-certfile", str(tls / "server.pem"), "--ssl-keyfile", str(tls / "server.key"))
        trusted = ("--ssl-ca-certfile", str(tls / "ca.pem"), "--database", str(self.folder / "superlink.db"))
        listening = ("--host", "127.0.0.1", "--port", str(self._link), "--enable-supernode-auth")
        self.launch("superlink", "flower-superlink", *shown, *trusted, *listening)

    def _mark(self, name: str) -> str:
        return f"{self.folder}:{name}"
