"""A and B as their kits install them, on machines of their own: nodes and apps work, and an outsider gets nothing."""

import datetime
import json
import re
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from precad.deployment import kit
from precad.protocol.states import Role
from tests.deployment import world
from tests.flower.machines import CLOSED, SECONDS, Machine, connect, machines, why_not

REASON = why_not()
STRANGER = "61007"
"""A user whom no machine knows."""
FLWR = {"FLWR_HOME": "/var/lib/operator", **CLOSED}
PORT_B = 8443
PROBE = """
import json, os
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from precad.flower import PrecadMod, PrecadStrategy, ServerA

app = ServerApp()
client = ClientApp(mods=[PrecadMod()])


def got(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__


@client.train()
def train(message, context):
    trained = ArrayRecord([array + 0.01 for array in message.content["arrays"].to_numpy_ndarrays()])
    reply = RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})})
    return Message(reply, reply_to=message)


@app.main()
def main(grid, context):
    MARK
    own = Path("/var/lib/precad-alpha")
    paths = [own / name for name in ("alpha.key", "alpha.tls.key", "alpha.db", "alpha.audit.log", "task.json")]
    paths += [Path("/var/lib/precad-alpha-superlink") / name for name in ("superlink.key", "superlink.db")]
    paths += [Path("/var/lib/precad-alpha-gateway") / "gateway.key"]
    read = {str(path): got(lambda: path.read_bytes()[:1]) for path in paths}
    listed = {str(path): got(lambda: os.listdir(path)) for path in {path.parent for path in paths}}
    print("PROBE" + json.dumps({"user": os.getuid(), "read": read, "listed": listed}) + "END", flush=True)
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = PrecadStrategy(inner, ServerA.at(own / "alpha.sock"))
    start = ArrayRecord([np.zeros(DIM, np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=1, timeout=200)
"""


def write_app(folder: Path, mark: str = "pass") -> None:
    """An app that says what it can read where it runs."""
    (folder / "probe").mkdir(parents=True)
    (folder / "probe" / "__init__.py").touch()
    (folder / "probe" / "app.py").write_text(PROBE.replace("MARK", mark).replace("DIM", str(world.DIM)))
    text = """
        [project]
        name = "probe"
        version = "1.0.0"
        description = "What can be read"
        license = "Apache-2.0"
        dependencies = []

        [tool.flwr.app]
        publisher = "precad"

        [tool.flwr.app.components]
        serverapp = "probe.app:app"
        clientapp = "probe.app:client"
    """
    (folder / "pyproject.toml").write_text(textwrap.dedent(text))


def commands(page: Path, beginning: str) -> list[str]:
    """The commands of a page that begin so."""
    joined = page.read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.startswith(f"       {beginning}")]


@dataclass
class Internet:
    """Organisations A and B, a client's and the outsider's machine."""

    a: Machine
    b: Machine
    client: Machine
    outsider: Machine
    address_a: str
    """As the outsider sees it."""
    address_b: str


@pytest.fixture(scope="module")
def internet() -> Iterator[Internet]:
    folder = Path(tempfile.mkdtemp(prefix="precad-"))
    folder.chmod(0o755)
    try:
        with machines(folder, "a", "b", "client", "outsider") as made:
            a, b, client, outsider = made.values()
            to_b, _ = connect(b, a, 1)
            for_client, _ = connect(a, client, 2)
            for_outsider, _ = connect(a, outsider, 3)
            b_for_outsider, _ = connect(b, outsider, 4)
            _install(a, b, client, to_b, {for_client, for_outsider})
            _start(a, b, client, for_client)
            yield Internet(a, b, client, outsider, for_outsider, b_for_outsider)
    finally:
        shutil.rmtree(folder)


def _install(a: Machine, b: Machine, client: Machine, address_b: str, addresses: set[str]) -> None:
    """Keys, kits and stores; then the pages' own commands, and ``install.sh``."""
    setting = world.make(clients=("bank", "lab"), now=datetime.datetime.now(datetime.UTC))
    kits = {Role.A: a.folder / "alpha", Role.B: b.folder / "beta"}
    for role, own in kits.items():
        setting.servers[role].save(own)
        host = None if role is Role.B else address_b
        kit.server(setting.task, world.MODEL, role, own, host=host, clients_port=kit.CLIENTS_PORT)
        with (own / kit.settings_name(role)).open("a") as settings:
            settings.write("metrics_port = 9100\n" + ("join_seconds = 2.0\n" if role is Role.A else ""))
        (made,) = commands(own / "README.md", "precad server --init")
        (a if role is Role.A else b).done(made.split(), cwd=str(own))
    bank, lab = client.folder / "bank", client.folder / "lab"
    for own in (bank, lab):
        setting.clients[own.name].save(own)
        places = f"a.example:{kit.GATEWAY_PORT}", f"a.example:{kit.CLIENTS_PORT}"
        kit.client(setting.task, own.name, own, places[0], door=places[1])
    (lab / "mymodule.py").write_text("def train(model, round):\n    return 0 * model + 0.01\n")
    (node_key,) = commands(bank / "FLOWER.md", "ssh-keygen")
    client.done(["sh", "-ec", node_key], cwd=str(bank))
    page = kits[Role.A] / "README.md"
    named = ",".join(f"IP:{address}" for address in sorted(addresses))
    for line in (*commands(page, "for each in"), *commands(page, "(umask")):
        a.done(["sh", "-ec", line.replace("DNS:$(hostname -f)", f"DNS:a.example,{named}")], cwd=str(kits[Role.A]))
    shutil.copy(bank / "bank.node.pub", kits[Role.A] / "nodes")
    shutil.copy(kits[Role.A] / "gateway.pem", bank)
    install(a, kits[Role.A])
    install(b, kits[Role.B])


def install(machine: Machine, own: Path) -> None:
    """What the page says, where ``systemctl`` says what it is told."""
    (machine.folder / "bin").mkdir()
    (machine.folder / "bin" / "systemctl").write_text('#!/bin/sh\necho "$@"\n')
    (machine.folder / "bin" / "systemctl").chmod(0o755)
    (script,) = commands(own / "README.md", "sudo sh install.sh")
    env = {"PATH": f"{machine.folder / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"}
    machine.done(script.split()[1:], cwd=str(own), env=env)
    assert not list(own.iterdir()), "no second copy of a store is left"


def _start(a: Machine, b: Machine, client: Machine, address_a: str) -> None:
    """All units, and the client's node; A's operator registers it."""
    b.start_unit("precad-beta")
    for part in ("", "-superlink", "-gateway"):
        a.start_unit(f"precad-alpha{part}")
    b.wait_for("precad-beta", '"event": "started"')
    for part in ("", "-gateway"):
        a.wait_for(f"precad-alpha{part}", '"event": "started"')
    a.wait_for("precad-alpha-superlink", "Uvicorn running")
    a.start_unit("precad-alpha-superexec")
    home = '[superlink.ours]\naddress = "localhost:8000"\nroot-certificates = "/var/lib/precad-alpha/superlink.pem"\n'
    a.done(["sh", "-ec", f"mkdir -p {FLWR['FLWR_HOME']}; printf '%s' '{home}' > {FLWR['FLWR_HOME']}/config.toml"])
    key = "/var/lib/precad-alpha-gateway/nodes/bank.node.pub"
    a.done(["flwr", "supernode", "register", key, "ours"], env=FLWR)
    with (client.folder / "etc" / "hosts").open("a") as hosts:
        hosts.write(f"\n{address_a} a.example\n")
    bank = client.folder / "bank"
    client.done(["chown", "-R", "61006:61006", str(bank)])
    (command,) = commands(bank / "FLOWER.md", "FLWR_TELEMETRY")
    client.launch("node", ["sh", "-ec", command], "61006", "61006", str(bank), {"FLWR_HOME": str(bank / "flwr")})


def runs(a: Machine) -> list[str]:
    """What A's operator sees."""
    return re.findall(r'"run-id": "?(\d+)', a.done(["flwr", "list", "ours", "--format", "json"], env=FLWR))


@pytest.mark.long
@pytest.mark.skipif(bool(REASON), reason=REASON or "it can be done")
def test_the_outsider_gets_nothing(internet: Internet) -> None:
    a, client = internet.a, internet.client
    write_app(a.folder / "app")
    printed = a.done(["flwr", "run", str(a.folder / "app"), "ours", "--stream"], env=FLWR)
    check_the_app(a, printed + a.log("precad-alpha-superexec"))
    for machine, settings in ((a, "alpha/a.toml"), (internet.b, "beta/b.toml")):
        assert opened(machine, settings) == 1, printed + a.log("precad-alpha")
        check_the_metrics(machine)
    check_a_native_client(internet)
    before = runs(a)
    assert len(before) == 1
    check_the_outsider(internet)
    assert runs(a) == before, "no run was started"
    for machine, name in ((a, "precad-alpha-superexec"), (client, "node")):
        assert "OUTSIDER WAS HERE" not in machine.log(name)
    check_a_stranger_on_the_machine(a)


def opened(machine: Machine, settings: str) -> int:
    """How many rounds a server has opened."""
    told = machine.done(["precad", "status", "--json", "--config", f"/var/lib/precad-{settings}"])
    return int(json.loads(told)["rounds opened"])


def check_the_metrics(machine: Machine) -> None:
    """They are there, for this machine; nobody else has found their port."""
    code = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9100/metrics').status)"
    assert machine.done(["python", "-c", code]).strip() == "200"


def check_a_native_client(internet: Internet) -> None:
    """Beside the client on Flower, one that runs its own code alone plays in the same task."""
    lab = internet.client.folder / "lab"
    install(internet.client, lab)
    internet.client.start_unit("precad-lab")
    deadline = time.monotonic() + SECONDS
    while opened(internet.b, "beta/b.toml") < 2:
        assert time.monotonic() < deadline, internet.client.log("precad-lab") + internet.a.log("precad-alpha")
        time.sleep(1.0)


def check_the_app(a: Machine, text: str) -> None:
    """The ServerApp runs as the user of the SuperExec, who reads no key."""
    found = re.search(r"PROBE(\{.*?\})END", text)
    assert found is not None, text
    probe = json.loads(found[1])
    assert probe["user"] == a.id_of("precad-superexec")
    assert set(probe["read"].values()) == {"PermissionError"}, probe
    assert set(probe["listed"].values()) == {"PermissionError"}, probe


def check_the_outsider(internet: Internet) -> None:
    place = internet.outsider.folder / "own"
    write_app(place / "app", 'print("OUTSIDER WAS HERE", flush=True)')
    shutil.copy(Path(__file__).with_name("outsider.py"), place)
    shutil.copy(internet.client.folder / "bank" / "gateway.pem", place)
    internet.outsider.done(["chown", "-R", f"{STRANGER}:{STRANGER}", str(place)])
    ports = str(kit.GATEWAY_PORT), str(kit.CLIENTS_PORT)
    where = [internet.address_a, *ports, internet.address_b, str(PORT_B)]
    words = ["python", "outsider.py", *where, str(place / "gateway.pem"), str(place)]
    ended = internet.outsider.run(words, user=STRANGER, cwd=str(place), env=CLOSED, seconds=900)
    assert ended.returncode == 0, ended.stdout
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith('{"ports"')]
    got = json.loads(line)
    assert got["ports"] == [[kit.CLIENTS_PORT, kit.GATEWAY_PORT], [PORT_B]], "the only doors"
    assert len(got["answers"]) > 50
    for path, answer in got["answers"].items():
        head, _, body = answer.partition("\r\n\r\n")
        assert re.match(r"HTTP/1\.1 40[14] ", head), (path, answer)
        assert (body, "flower" in head.lower()) == ("", False), (path, answer)
    assert not any("200" in answer or "204" in answer for answer in got["without a certificate"]), got
    assert 0 not in got["commands"].values(), got["commands"]


def check_a_stranger_on_the_machine(a: Machine) -> None:
    """Somebody with an account at A finds no file, and does not get to the socket; but to Flower, as the guide says.

    So this is also what the outsider would get if the SuperLink's port were open to it.
    """
    shutil.copy(Path(__file__).with_name("outsider.py"), a.folder)
    a.done(["install", "-m", "0644", "/var/lib/precad-alpha/superlink.pem", str(a.folder)])
    asked = f"outsider.answers('127.0.0.1', 8000, '{a.folder / 'superlink.pem'}')"
    code = f"import json, outsider; print(json.dumps({asked}))"
    answered = a.run(["python", "-c", f"import sys; sys.path[:0] = ['{a.folder}']; {code}"], user=STRANGER).stdout
    assert json.loads(answered)["/v1/control/list-runs"].startswith("HTTP/1.1 200 OK"), answered[:2000]
    found = a.run(["sh", "-c", "find /var/lib/precad-* -type f -o -type s 2>/dev/null"], user=STRANGER)
    assert found.stdout == ""
    code = "import socket; socket.socket(socket.AF_UNIX).connect('/var/lib/precad-alpha/alpha.sock')"
    assert "PermissionError" in a.run(["python", "-c", code], user=STRANGER).stdout
