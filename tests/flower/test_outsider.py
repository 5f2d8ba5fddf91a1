"""The guide on machines of their own: both kinds of clients take part, no app reads a key, an outsider gets nothing."""

import json
import re
import shutil
import textwrap
import time
from pathlib import Path

import pytest

from precad.deployment import kit
from tests.flower import organisations
from tests.flower.machines import CLOSED, SECONDS, Machine, why_not
from tests.flower.organisations import DIM, FLWR, NATIVE, ON_FLOWER, Internet

REASON = why_not()
STRANGER = "61007"
"""A user whom no machine knows."""
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


def say(paths):
    read = {str(path): got(lambda: path.read_bytes()[:1]) for path in paths}
    listed = {str(path): got(lambda: os.listdir(path)) for path in {path.parent for path in paths}}
    print("PROBE" + json.dumps({"user": os.getuid(), "read": read, "listed": listed}) + "END", flush=True)


@client.train()
def train(message, context):
    own = Path(context.node_config["precad-socket"]).parent
    name = own.name.removeprefix("precad-")
    paths = [own / f"{name}.{what}" for what in ("key", "tls.key", "db", "toml")]
    say([*paths, own / "data" / "data.db", Path(f"{own}-supernode") / f"{name}.node.key"])
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
    say(paths)
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    strategy = PrecadStrategy(inner, ServerA.at(own / "alpha.sock"))
    start = ArrayRecord([np.zeros(DIM, np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=1, timeout=200)
"""


def write_app(folder: Path, mark: str = "pass") -> None:
    """An app that says what it can read where it runs."""
    (folder / "probe").mkdir(parents=True)
    (folder / "probe" / "__init__.py").touch()
    source = PROBE.replace("MARK", mark).replace("DIM", str(DIM)).replace("NODES", str(len(ON_FLOWER)))
    (folder / "probe" / "app.py").write_text(source)
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


def runs(a: Machine) -> list[str]:
    """What A's operator sees."""
    return re.findall(r'"run-id": "?(\d+)', a.done(["flwr", "list", "ours", "--format", "json"], env=FLWR))


@pytest.mark.long
@pytest.mark.skipif(bool(REASON), reason=REASON or "it can be done")
def test_the_guide_works_and_the_outsider_gets_nothing() -> None:
    with organisations.internet() as internet:
        a = internet.a
        write_app(a.folder / "app")
        printed = a.done(["flwr", "run", str(a.folder / "app"), "ours", "--stream"], env=FLWR)
        check_the_app(a, printed + a.log("precad-alpha-superexec"))
        for name in ON_FLOWER:
            check_the_app(internet.clients[name], internet.clients[name].log(f"precad-{name}-superexec"))
        for machine, settings in ((a, "alpha/a.toml"), (internet.b, "beta/b.toml")):
            assert opened(machine, settings) == 1, printed + a.log("precad-alpha")
            check_the_metrics(machine)
        check_native_clients(internet)
        check_the_audit(internet)
        before = runs(a)
        assert len(before) == 1
        check_the_outsider(internet)
        assert runs(a) == before, "no run was started"
        logs = [internet.clients[name].log(f"precad-{name}-superexec") for name in ON_FLOWER]
        assert not any("OUTSIDER WAS HERE" in text for text in (a.log("precad-alpha-superexec"), *logs))
        check_a_stranger_on_the_machine(a)
        for name in ON_FLOWER:
            check_a_stranger_at_a_client(internet.clients[name], name)


def opened(machine: Machine, settings: str) -> int:
    """How many rounds a server has opened."""
    told = machine.done(["precad", "status", "--json", "--config", f"/var/lib/precad-{settings}"])
    return int(json.loads(told)["rounds opened"])


def check_the_metrics(machine: Machine) -> None:
    """They are there, for this machine; nobody else has found their port."""
    code = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9100/metrics').status)"
    assert machine.done(["python", "-c", code]).strip() == "200"


def check_native_clients(internet: Internet) -> None:
    """Beside the clients on Flower, three that run their own code alone play in the same task."""
    for name in NATIVE:
        organisations.start_native(internet.clients[name], name)
    deadline = time.monotonic() + SECONDS
    while opened(internet.b, "beta/b.toml") < 3:
        logs = [internet.clients[name].log(f"precad-{name}") for name in NATIVE]
        assert time.monotonic() < deadline, "\n".join([*logs, internet.a.log("precad-alpha")])
        time.sleep(1.0)


def check_the_audit(internet: Internet) -> None:
    """All clients have counted, by the logs of all parties."""
    place = internet.outsider.folder / "logs"
    place.mkdir()
    sources = {"alpha": internet.a, "beta": internet.b, **internet.clients}
    for name, machine in sources.items():
        (place / f"{name}.audit.log").write_text(machine.done(["cat", f"/var/lib/precad-{name}/{name}.audit.log"]))
    task = internet.a.folder / "task.json"
    words = ["precad", "audit", *(str(place / f"{name}.audit.log") for name in sources), "--task", str(task)]
    told = internet.a.done(words)
    for name in internet.clients:
        assert re.search(rf"{name} sent in [1-9]\d* rounds", told), told


def check_the_app(a: Machine, text: str) -> None:
    """A ServerApp or ClientApp runs as the user of its SuperExec, who reads no key."""
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
    shutil.copy(internet.clients["bank"].folder / "gateway.pem", place)
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


def check_a_stranger_at_a_client(client: Machine, name: str) -> None:
    """Somebody with an account there reads nothing, and reaches neither the keeper nor what the node does."""
    found = client.run(["sh", "-c", "find /var/lib/precad-* -type f -o -type s 2>/dev/null"], user=STRANGER)
    assert found.stdout == ""
    code = f"import socket; socket.socket(socket.AF_UNIX).connect('/var/lib/precad-{name}/{name}.sock')"
    assert "PermissionError" in client.run(["python", "-c", code], user=STRANGER).stdout
