"""Machines on one machine: network namespaces with cables between them, in which units run as the users that they name.

Each has an /etc, a /var/lib and a /var/cache of its own, so that a kit's ``install.sh`` runs as it is. Needs root.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from precad.deployment import kit
from precad.lab.processes import CLOSED_NETWORK as CLOSED

__all__ = ["CLOSED", "SECONDS", "Machine", "connect", "machines", "why_not"]

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount", "useradd", "openssl", "ssh-keygen")
SECONDS = 300.0
SETTLED = "# ready"


def why_not() -> str:
    """The reason for which machines cannot be made here; empty if they can."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces and other users need root"
    if missing:
        return f"{', '.join(missing)} is not installed"
    tried = subprocess.run(
        [str(shutil.which("unshare")), "--net", "--mount", "ip", "link", "add", "one", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"network namespaces cannot be made here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Machine:
    """A network namespace, with users and folders of its own."""

    name: str
    folder: Path
    holder: "subprocess.Popen[str]"
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def command(self, words: list[str], user: str, group: str, cwd: str, env: Mapping[str, str]) -> list[str]:
        """A command here, as a user without any capability."""
        entered = ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", f"--wdns={cwd}"]
        if user == "root":
            own = []
        else:
            ids = [f"--reuid={self.id_of(user)}", f"--regid={self.id_of(group, 'group')}", "--clear-groups"]
            own = ["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        given = {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/bin"} | dict(env)
        variables = [f"{key}={value}" for key, value in given.items()]
        clean = ["env", "-i", *variables, f"PYTHONPATH={REPOSITORY / 'src'}", f"HOME={cwd}", "PYTHONSAFEPATH=1"]
        return [*entered, *own, *clean, "sh", "-c", 'umask 077; exec "$@"', "sh", *words]

    def run(
        self,
        words: list[str],
        *,
        user: str = "root",
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end; one that takes too long is ended, with status 124."""
        words = ["timeout", f"{seconds:g}", *words]
        command = self.command(words, user, user, cwd, env or {})
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def done(self, words: list[str], *, cwd: str = "/", env: Mapping[str, str] | None = None) -> str:
        """What root's command printed, which must succeed."""
        ended = self.run(words, cwd=cwd, env=env)
        assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout}"
        return ended.stdout

    def launch(self, name: str, words: list[str], user: str, group: str, cwd: str, env: Mapping[str, str]) -> None:
        """Start a process that stays."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                self.command(words, user, group, cwd, env), stdout=log, stderr=log, start_new_session=True
            )

    def start_unit(self, name: str) -> None:
        """Do what systemd does with a unit, as far as users, folders and the environment go."""
        text = (self.folder / "etc" / "systemd" / "system" / f"{name}.service").read_text()
        (user,), (state,), (words,) = (
            re.findall(f"^{key}=(.*)$", text, re.MULTILINE) for key in ("User", "StateDirectory", "ExecStart")
        )
        group = (re.findall("^Group=(.*)$", text, re.MULTILINE) or [user])[0]
        env = dict(line.split("=", 1) for line in re.findall("^Environment=(.*)$", text, re.MULTILINE))
        self.done(["install", "-d", "-m", "0700", "-o", user, "-g", group, f"/var/cache/{state}"])
        moved = {key: value.replace(kit.PROGRAMS, str(BIN)) for key, value in env.items()}
        program = shlex.split(words.replace(kit.PROGRAMS, str(BIN)))
        self.launch(name, program, user, group, f"/var/lib/{state}", moved)

    def wait_for(self, name: str, words: str) -> None:
        """Wait until a process logs something."""
        deadline = time.monotonic() + SECONDS
        while words not in self.log(name):
            assert self.started[name].poll() is None, f"{name} ended\n{self.log(name)}"
            assert time.monotonic() < deadline, f"{name} does not say {words!r}\n{self.log(name)}"
            time.sleep(0.2)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def id_of(self, name: str, file: str = "passwd") -> int:
        """A user's or group's number, in this machine's own files; strangers have numbers alone."""
        if name.isdigit():
            return int(name)
        lines = [line.split(":") for line in (self.folder / "etc" / file).read_text().splitlines()]
        return next(int(line[2]) for line in lines if line[0] == name)

    def stop(self) -> None:
        for process in reversed(self.started.values()):
            _end(process)


@contextmanager
def machines(folder: Path, *names: str) -> Iterator[dict[str, Machine]]:
    """Machines without any cable, which end with everything in them."""
    with ExitStack() as stack:
        made = {}
        for name in names:
            made[name] = _machine(name, folder / name)
            stack.callback(_end, made[name].holder)
            stack.callback(made[name].stop)
        yield made


def connect(first: Machine, second: Machine, network: int) -> tuple[str, str]:
    """A cable between two machines; the address of each at its end."""
    addresses = f"10.231.{network}.1", f"10.231.{network}.2"
    ends = f"p{network}a", f"p{network}b"
    made = ["link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", str(second.holder.pid)]
    first.done(["ip", *made])
    for machine, end, address in zip((first, second), ends, addresses, strict=True):
        machine.done(["ip", "address", "add", f"{address}/24", "dev", end])
        machine.done(["ip", "link", "set", end, "up"])
    return addresses


def _machine(name: str, folder: Path) -> Machine:
    """Its files are below ``folder``; what Python needs can be read by all users in it."""
    folder.mkdir()
    shutil.copytree("/etc", folder / "etc", symlinks=True, ignore_dangling_symlinks=True)
    (folder / "etc" / "systemd" / "system").mkdir(parents=True, exist_ok=True)
    (folder / "kept").mkdir()
    lines = ["set -e", "mount --make-rprivate /", *_opened(folder / "kept"), f"mount --bind {folder / 'etc'} /etc"]
    lines += ["mount -t tmpfs -o mode=755 none /var/lib", "mount -t tmpfs -o mode=755 none /var/cache"]
    lines += ["ip link set lo up", f"echo '{SETTLED}'", "exec sleep infinity"]
    command = ["unshare", "--net", "--mount", "sh", "-c", "\n".join(lines)]
    holder = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert holder.stdout is not None
    said = holder.stdout.readline()
    assert said.strip() == SETTLED, said
    return Machine(name, folder, holder)


def _opened(kept: Path) -> list[str]:
    """Commands after which all users pass through to Python and the repository, where a folder above is private."""
    needed = sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), REPOSITORY.resolve()})
    closed = {path: [above for above in path.parents if not above.stat().st_mode & 0o001] for path in needed}
    places = {path: kept / str(number) for number, path in enumerate(needed) if closed[path]}
    lines = [f"mkdir {place}; mount --rbind {path} {place}" for path, place in places.items()]
    lines += [f"mount -t tmpfs -o mode=755 none {above}" for above in sorted({closed[path][-1] for path in places})]
    return lines + [f"mkdir -p {path}; mount --rbind {place} {path}" for path, place in places.items()]


def _end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
