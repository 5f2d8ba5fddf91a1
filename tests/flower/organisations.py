"""Two organisations, three clients of each kind and somebody else, each on a machine of its own, as the guide says.

The commands are those of ``docs/deployment.md`` and of the kits' own pages; ``install.sh`` makes users, folders and
units. Needs root.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.flower.machines import CLOSED, Machine, connect, machines

GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"
FLWR = {"FLWR_HOME": "/var/lib/operator", **CLOSED}
ON_FLOWER, NATIVE = ("bank", "clinic", "shop"), ("farm", "lab", "zoo")
DIM = 500
"""Of the guide's model."""
PLACE_A = "a.example"
MODULE = "import numpy\n\n\ndef train(model, round):\n    return numpy.full(model.size, 0.01)\n"


@dataclass
class Internet:
    """All machines. A has one address for each of the others."""

    a: Machine
    b: Machine
    clients: dict[str, Machine]
    outsider: Machine
    address_a: str
    """As the outsider sees it."""
    address_b: str


@contextmanager
def internet() -> Iterator[Internet]:
    """All parties installed and started; the clients on Flower first, the native ones not yet."""
    folder = Path(tempfile.mkdtemp(prefix="precad-"))
    folder.chmod(0o755)
    names = (*ON_FLOWER, *NATIVE)
    try:
        with machines(folder, "a", "b", "outsider", *names) as made:
            a, b, outsider = (made.pop(name) for name in ("a", "b", "outsider"))
            to_b, _ = connect(b, a, 1)
            for_outsider, _ = connect(a, outsider, 2)
            b_for_outsider, _ = connect(b, outsider, 3)
            seen = {name: connect(a, made[name], 4 + number)[0] for number, name in enumerate(names)}
            for name, address in seen.items():
                with (made[name].folder / "etc" / "hosts").open("a") as hosts:
                    hosts.write(f"\n{address} {PLACE_A}\n")
            whole = Internet(a, b, made, outsider, for_outsider, b_for_outsider)
            _make_task(whole)
            _make_kits(whole, to_b)
            _prepare_flower(whole, {*seen.values(), for_outsider})
            _start(whole)
            yield whole
    finally:
        shutil.rmtree(folder)


def commands(page: Path, beginning: str) -> list[str]:
    """The commands of a kit's page that begin so."""
    joined = page.read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.startswith(f"       {beginning}")]


def install(machine: Machine, own: Path) -> None:
    """What the page says, where ``systemctl`` says what it is told."""
    (machine.folder / "bin").mkdir()
    (machine.folder / "bin" / "systemctl").write_text('#!/bin/sh\necho "$@"\n')
    (machine.folder / "bin" / "systemctl").chmod(0o755)
    (script,) = commands(own / "README.md", "sudo sh install.sh")
    env = {"PATH": f"{machine.folder / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"}
    machine.done(script.split()[1:], cwd=str(own), env=env)
    assert not list(own.iterdir()), "no second copy of a store is left"


def start_native(client: Machine, name: str) -> None:
    """A client that runs its own code alone."""
    (client.folder / name / "mymodule.py").write_text(MODULE)
    install(client, client.folder / name)
    client.start_unit(f"precad-{name}")


def _guide(beginning: str, **changes: str) -> str:
    """The guide's one command that begins so, with other names."""
    joined = GUIDE.read_text().replace("\\\n", " ")
    (line,) = [line for line in joined.splitlines() if line.startswith(beginning)]
    line = line.split("  #")[0]
    for old, new in changes.items():
        line = re.sub(rf"\b{old}\b", new, line)
    return line.strip()


def _run(machine: Machine, command: str) -> str:
    return machine.done(["sh", "-ec", command], cwd=str(machine.folder))


def _make_task(net: Internet) -> None:
    """Steps 1 and 2: keys at each party, and the task at A, which has everybody's public file."""
    _run(net.a, _guide("precad keys new server alpha"))
    _run(net.b, _guide("precad keys new server beta"))
    (net.a.folder / "org-b").mkdir()
    shutil.copy(net.b.folder / "org-b" / "beta.pub", net.a.folder / "org-b")
    for name, client in net.clients.items():
        _run(client, _guide("precad keys new client bank", bank=name))
        (net.a.folder / name).mkdir()
        shutil.copy(client.folder / name / f"{name}.pub", net.a.folder / name)
    _run(net.a, _guide("python -c"))
    _run(net.a, _guide("precad task new"))
    for name in net.clients:
        _run(net.a, _guide("precad roster add task.json bank/bank.pub", bank=name))
    for machine in (net.b, *net.clients.values()):
        for file in ("task.json", "model.npy"):
            shutil.copy(net.a.folder / file, machine.folder)


def _make_kits(net: Internet, address_b: str) -> None:
    """Step 3: each party makes its own kit; the digests of the task are the same everywhere."""
    _run(net.a, f"{_guide('precad kit server-a')} --host {address_b}")
    _run(net.b, _guide("precad kit server-b"))
    for name, client in net.clients.items():
        _run(
            client,
            f"{_guide('precad kit client task.json bank', bank=name, localhost=PLACE_A)} --superlink {PLACE_A}:9092",
        )
    everyone = (net.a, net.b, *net.clients.values())
    assert len({_run(machine, _guide("precad task digest")) for machine in everyone}) == 1
    for machine, own in ((net.a, "org-a/a.toml"), (net.b, "org-b/b.toml")):
        with (machine.folder / own).open("a") as settings:
            settings.write("metrics_port = 9100\n" + ("join_seconds = 5.0\n" if machine is net.a else ""))
        _run(machine, _guide(f"precad server --init --config {own}"))


def _prepare_flower(net: Internet, addresses: set[str]) -> None:
    """Step 4 of A's page and step 1 of the clients' FLOWER.md; then all are installed, but the native clients."""
    own = net.a.folder / "org-a"
    named = ",".join(f"IP:{address}" for address in sorted(addresses))
    for line in (*commands(own / "README.md", "for each in"), *commands(own / "README.md", "(umask")):
        net.a.done(["sh", "-ec", line.replace("DNS:$(hostname -f)", f"DNS:{PLACE_A},{named}")], cwd=str(own))
    for name in ON_FLOWER:
        client, kit_folder = net.clients[name], net.clients[name].folder / name
        for line in (*commands(kit_folder / "FLOWER.md", "ssh-keygen"), *commands(kit_folder / "FLOWER.md", "(umask")):
            client.done(["sh", "-ec", line], cwd=str(kit_folder))
        shutil.copy(kit_folder / f"{name}.node.pub", own / "nodes")
        for place in (kit_folder, client.folder):
            shutil.copy(own / "gateway.pem", place)
        install(client, kit_folder)
    install(net.a, own)
    install(net.b, net.b.folder / "org-b")


def _start(net: Internet) -> None:
    """All units of the servers and of the clients on Flower; A's operator registers their nodes."""
    net.b.start_unit("precad-beta")
    for part in ("", "-superlink", "-gateway"):
        net.a.start_unit(f"precad-alpha{part}")
    net.b.wait_for("precad-beta", '"event": "started"')
    for part in ("", "-gateway"):
        net.a.wait_for(f"precad-alpha{part}", '"event": "started"')
    net.a.wait_for("precad-alpha-superlink", "Uvicorn running")
    net.a.start_unit("precad-alpha-superexec")
    home = '[superlink.ours]\naddress = "localhost:8000"\nroot-certificates = "/var/lib/precad-alpha/superlink.pem"\n'
    net.a.done(["sh", "-ec", f"mkdir -p {FLWR['FLWR_HOME']}; printf '%s' '{home}' > {FLWR['FLWR_HOME']}/config.toml"])
    for name in ON_FLOWER:
        key = f"/var/lib/precad-alpha-gateway/nodes/{name}.node.pub"
        net.a.done(["flwr", "supernode", "register", key, "ours"], env=FLWR)
        net.clients[name].start_unit(f"precad-{name}-keeper")
        net.clients[name].wait_for(f"precad-{name}-keeper", '"event": "started"')
        for part in ("supernode", "superexec"):
            net.clients[name].start_unit(f"precad-{name}-{part}")
