"""Settings, kits, and server B as its operator runs it: a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from precad.deployment import config, doors, kit, receipts
from precad.deployment.client import Client
from precad.deployment.config import ServerConfig
from precad.deployment.disk import StoreError
from precad.deployment.https import HttpTransport
from precad.deployment.leader import Leader
from precad.deployment.transport import Exchange
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Batch, encode
from precad.protocol.states import Role
from tests.deployment import world
from tests.deployment.test_transports import Site, make_site
from tests.messages import says

TIMEOUT = 60.0


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """All files, as the kits lay them out: the keys are in the same folders."""
    made = make_site(tmp_path)
    made.helper.close()
    (tmp_path / "beta.db").unlink()
    for role, name in ((Role.A, "alpha"), (Role.B, "beta")):
        kit.server(made.task, world.MODEL, role, tmp_path / name)
        for file in (f"{name}.key", f"{name}.tls.key", f"{name}.tls.pem"):
            (tmp_path / file).rename(tmp_path / name / file)
    made.port, spare = free_ports(2)
    path = tmp_path / "beta" / "b.toml"
    path.write_text(path.read_text().replace("8443", str(made.port)) + f"metrics_port = {spare}\n")
    for name in ("alpha", "beta"):
        settings(made, name).begin()
    return made


def free_ports(count: int) -> list[int]:
    sockets = [doors.listen("127.0.0.1", 0) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def settings(site: Site, name: str) -> ServerConfig:
    return config.load(site.folder / name / f"{name[0]}.toml")


@contextmanager
def running(site: Site) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "precad", "server", "--config", str(site.folder / "beta" / "b.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert '"event": "started"' in first, first
            yield process
        finally:
            process.kill()


@contextmanager
def leading(site: Site) -> Iterator[tuple[Leader, HttpTransport]]:
    own = settings(site, "alpha")
    with HttpTransport(site.task, "127.0.0.1", site.port, own.pair()) as transport:
        leader = own.open_leader(transport)
        yield leader, transport
        leader.close()


def collect(site: Site, a: Leader) -> None:
    a.start_round()
    for name in sorted(a.selected()):
        client = Client(site.task, name, site.world.clients[name].signing, site.folder / f"{name}.db")
        assert a.submit(client.answer(client.join(a.invitation(), a.model()), np.ones(world.DIM))) is None
        client.close()


def test_a_round_with_b_as_a_process_that_is_killed_and_stopped(site: Site) -> None:
    """B dies by kill -9 in the middle of a round, comes back, and later stops when asked to."""
    with leading(site) as (a, transport):
        _kill_and_stop(site, a, transport)
        logs = receipts.read(settings(site, "beta").audit_log)
        assert "2 opened rounds" in receipts.audit(site.task, a.store.log(), logs, {})
    told = settings(site, "beta").status()
    assert (told["state"], told["rounds opened"], told["rounds left"]) == ("settled", 2, 48)


def _kill_and_stop(site: Site, a: Leader, transport: HttpTransport) -> None:
    with running(site) as process:
        collect(site, a)
        exchange = transport.exchange
        for what in (Exchange.CLOSE, Exchange.NONCE, Exchange.CHECKS):
            if what is Exchange.CLOSE:
                a.own(0, what)
                kept = a.store.kept(0, a.store.headers(0))
                exchange(0, Exchange.SUBMISSIONS, _batch([each.relayed for each in kept]))
            a.take(0, what, exchange(0, what, a.own(0, what)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)
    with running(site) as process:
        a.finish_round()
        collect(site, a)
        a.finish_round()
        shown = settings(site, "beta")
        health = httpx.get(f"http://127.0.0.1:{shown.metrics_port}/health", trust_env=False).json()
        assert (health["status"], health["round"], health["state"]) == ("ok", 1, "settled")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        rest = process.stderr.read()
        process.wait(TIMEOUT)
    events = [json.loads(line)["event"] for line in rest.splitlines()]
    assert events[-1] == "stopped"
    assert not any(name in rest for name in world.CLIENTS)


def _batch(items: list[bytes]) -> bytes:
    return encode(Batch(tuple(Blob(item) for item in items)))


def test_a_port_that_is_taken_is_one_sentence(site: Site) -> None:
    with closing(doors.listen("0.0.0.0", site.port)):  # noqa: S104 - as B does
        second = start(site)
    assert second.returncode == 2
    assert second.stderr.startswith(f"Error: cannot listen on 0.0.0.0 port {site.port}: ")
    assert "Traceback" not in second.stderr


def start(site: Site) -> subprocess.CompletedProcess[str]:
    """B as a process that does not come up."""
    command = [sys.executable, "-m", "precad", "server", "--config", str(site.folder / "beta" / "b.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)


def test_two_processes_never_serve_one_store(site: Site) -> None:
    """The second, on another port, gets one sentence; once the first was killed, the next one starts."""
    path = site.folder / "beta" / "b.toml"
    with running(site) as process:
        first, taken = path.read_text(), settings(site, "beta")
        path.write_text(first.replace(str(site.port), "0").replace(str(taken.metrics_port), "0"))
        second = start(site)
        assert settings(site, "beta").status()["state"] == "no round yet"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)
    with running(site):
        pass
    store = site.folder / "beta" / "beta.db"
    assert (second.returncode, second.stdout) == (1, "")
    assert re.search(says(store, f"{store}.lock", "another process"), second.stderr)
    assert len(second.stderr.splitlines()) == 1
    assert Path(f"{store}.lock").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = ", r"b\.toml.* TOML"),
        ("prot = 1", r"b\.toml.*prot.* task"),
        ('task = "t"', r"b\.toml lacks .*audit_log"),
    ],
)
def test_bad_settings(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        config.load(tmp_path / "b.toml")


def test_settings_have_types(site: Site) -> None:
    path = site.folder / "beta" / "b.toml"
    path.write_text(path.read_text().replace(f"port = {site.port}", 'port = "x"', 1))
    with pytest.raises(ValueError, match=says("port", "'x'")):
        config.load(path)
    path.write_text(path.read_text().replace('store = "beta.db"', "store = 3"))
    with pytest.raises(ValueError, match=says("store", 3)):
        config.load(path)
    with pytest.raises(ValueError, match=says("none.toml")):
        config.load(site.folder / "none.toml")


def test_status_of_a_server_that_has_not_begun(site: Site) -> None:
    settings(site, "beta").store.unlink()
    with pytest.raises(StoreError, match=says("no store", "--init")):
        settings(site, "beta").status()
    settings(site, "beta").begin()
    assert settings(site, "beta").status()["state"] == "no round yet"


def test_the_settings_of_server_a_do_not_run_server_b(site: Site) -> None:
    with pytest.raises(ValueError, match=says("key", "server beta")):
        settings(site, "alpha").open_helper()


def test_kits(site: Site, tmp_path: Path) -> None:
    page = (tmp_path / "beta" / "README.md").read_text()
    assert "precad server --config b.toml" in page
    assert site.task.digest.hex() in page
    kit.client(site.task, "bank", tmp_path / "bank")
    assert "costs you at most ε = " in (tmp_path / "bank" / "README.md").read_text()
    with pytest.raises(ValueError, match="not overwritten"):
        kit.client(site.task, "bank", tmp_path / "bank")
    with pytest.raises(ValueError, match=says("stranger", "roster")):
        kit.client(site.task, "stranger", tmp_path / "stranger")
    with pytest.raises(ValueError, match=says("model", model_digest(world.MODEL + 1).hex(), site.task.model.hex())):
        kit.server(site.task, world.MODEL + 1, Role.A, tmp_path / "x")
