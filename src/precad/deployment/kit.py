"""Start kits: a folder with all that a party needs but its private key, and a page with the commands to run.

A kit is a function of the task, of this version and of what its maker names: whoever makes it anew has the same bytes,
and :func:`check` gives one digest of all that is run or read. So each party makes its own, and the others can compare.

The texts are in ``templates/``. A server's kit has systemd units: each service runs as a user of its own that can write
its own folder and nothing else, and at A those of Flower read no key of the server. The kernels are compiled when they
are first used, so the units leave out ``MemoryDenyWriteExecute`` on purpose, and give the compiler's cache a folder.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from precad import __version__
from precad.deployment.addresses import check_host, check_port, host_and_port
from precad.deployment.data_file import DataBudget
from precad.deployment.data_ledger import DataLedger
from precad.deployment.task import Task
from precad.files import make_folder, open_to_read, read_text, write_file
from precad.protocol.digests import model_digest
from precad.protocol.params import Unit
from precad.protocol.states import Role

PROGRAMS = "/opt/precad/bin"
"""Where a unit expects the programs of precad, and at A those of Flower and the app's libraries."""
DATA = "data"
"""The folder of the data set's ledger in a client's kit, where its operator names no other."""
SUMS = "SHA256SUMS"
"""The file of a kit's digests, which ``sha256sum --check`` reads too."""
GATEWAY_PORT, CLIENTS_PORT = 9092, 8444
_SUPERLINK = (
    "flower-superlink --host 127.0.0.1 --port 8000 --isolation process --superexec-auth-secret-file superexec.secret "
    "--enable-supernode-auth --ssl-certfile superlink.pem --ssl-keyfile superlink.key --ssl-ca-certfile superlink.pem "
    "--database superlink.db"
)
_SUPEREXEC = (
    "flower-superexec --runtime-api-address 127.0.0.1:8000 --root-certificates superlink.pem "
    "--superexec-auth-secret-file superexec.secret"
)
_FLOWER_KEYS = ("superlink", "gateway")
_PARTS = ("superlink", "superexec", "gateway")
"""The services of Flower at A, beside the server."""
_SUPERNODE_PORT = 9094
_CLIENT_SUPEREXEC = (
    f"flower-superexec --runtime-api-address 127.0.0.1:{_SUPERNODE_PORT} --insecure "
    "--superexec-auth-secret-file superexec.secret"
)
"""On a client's machine. The way to the SuperNode is the loopback, and the secret says who may take it."""


def settings_name(role: Role) -> str:
    """Of the file of a server's settings in its kit."""
    return f"{role.name.lower()}.toml"


def server(
    task: Task,
    model: NDArray[np.float64],
    role: Role,
    folder: Path,
    *,
    host: str | None = None,
    port: int = 8443,
    clients_port: int = 0,
    wheels: Path | None = None,
) -> None:
    """Write the kit of a server.

    Args:
        task: The task.
        model: The initial model, which the task names.
        role: Which of the two servers.
        folder: Where the kit goes.
        host: Where B listens, and A looks for it; if not given, B listens everywhere, and A's operator fills it in.
        port: B's port.
        clients_port: A's port for native clients; 0 for none.
        wheels: The folder of what is to be installed: see :func:`requirements`.
    """
    if model_digest(model) != task.model:
        raise ValueError(f"the model's digest is {model_digest(model).hex()}, the task names {task.model.hex()}")
    name, letter = task.server(role).name, role.name.lower()
    if role is Role.A and name in _FLOWER_KEYS:
        raise ValueError(f"server A cannot be named {name}: its key would have the name of a key of Flower's")
    if host is not None:
        check_host("host", host)
    check_port("port", port, least=1)
    check_port("clients_port", clients_port)
    usual_host = "0.0.0.0" if role is Role.B else "127.0.0.1"  # noqa: S104 - TLS pins A
    values = {
        **_of_a_party(task, name, "server", "server" if role is Role.B else "flower", wheels),
        "title": f"Server {role.name}: {name}",
        "keys": f"`{name}.key`, `{name}.tls.key` and `{name}.tls.pem`",
        "role": role.name,
        "user": "precad",
        "state": f"precad-{name}",
        "programs": PROGRAMS,
        "host": host or usual_host,
        "port": port,
        "clients_port": clients_port,
        "superlink_command": _SUPERLINK,
        "superexec_command": _SUPEREXEC,
        "app": "ServerApp",
        "gateway_port": GATEWAY_PORT,
        "most_bytes": 16 * task.bounds.dim + (1 << 23),
    }
    stored = BytesIO()
    np.save(stored, model)
    files: dict[str, str | bytes] = {
        settings_name(role): _filled("server.toml", values),
        f"precad-{name}.service": _filled("server.service", values),
        "install.sh": _filled("install.sh", values),
        "task.json": task.as_text(),
        "model.npy": stored.getvalue(),
        "README.md": _filled(f"server_{letter}.md", values),
    }
    if role is Role.A:
        files["gateway.toml"] = _filled("gateway.toml", values)
        files |= _parts(_PARTS, values)
    _write(folder, files, wheels)


def client(
    task: Task,
    name: str,
    folder: Path,
    superlink: str = f"GATEWAY:{GATEWAY_PORT}",
    *,
    door: str = f"SERVER-A:{CLIENTS_PORT}",
    data: Path | None = None,
    wheels: Path | None = None,
) -> None:
    """Write the kit of a client.

    Args:
        task: The task.
        name: The client's name in it.
        folder: Where the kit goes.
        superlink: Where organisation A's gateway listens, in front of its SuperLink.
        door: Where server A listens for native clients, as HOST:PORT.
        data: The folder of the ledger that counts what all tasks on the client's data cost. If not given, the kit has
            one of its own, with the task's budget: enough for this task, and nothing is left for another.
        wheels: The folder of what is to be installed: see :func:`requirements`.
    """
    if name not in task.members:
        raise ValueError(f"{name} is not in the task's roster")
    task.check_budget()
    task.check_reply_time()
    host, port = host_and_port("where server A listens", door)
    host_and_port("where the gateway listens", superlink)
    if data is not None and not re.fullmatch(r"[\w ./@+-]+", str(data.absolute())):
        raise ValueError(f"the ledger's path must have letters, digits, blanks and ./@+-_ alone, got {str(data)!r}")
    member = task.members[name]
    values = {
        **_of_a_party(task, name, "client", "flower", wheels),
        "title": f"Client {name}",
        "keys": f"`{name}.key`, `{name}.tls.key` and `{name}.tls.pem`",
        "keeper_command": f"precad client --config {name}.toml --flower",
        "supernode_command": _supernode(name, superlink),
        "superexec_command": _CLIENT_SUPEREXEC,
        "app": "ClientApp",
        "gateway_port": GATEWAY_PORT,
        "epsilon": task.epsilon,
        "delta": task.training.delta,
        "ledger": json.dumps(DATA if data is None else str(data.absolute()), ensure_ascii=False),
        "writes": "" if data is None else str(data.absolute()),
        "native": bool(member.identity.certificate),
        "by_record": task.bounds.unit is Unit.RECORD,
        "trains": "--records mymodule:load" if task.bounds.unit is Unit.RECORD else "--train mymodule:train",
        "role": "client",
        "user": "precad-client",
        "state": f"precad-{name}",
        "programs": PROGRAMS,
        "dim": f"{task.bounds.dim:,}",
        "records": f"{member.records:,}",
        "client_bound": task.bounds.client_bound,
        "door_host": host,
        "door_port": port,
    }
    pages = {
        "README.md": _filled("client.md", {**values, "extra": "server"}),
        "FLOWER.md": _filled("client_flower.md", values),
    }
    names = {
        f"{name}.toml": "client.toml",
        "install.sh": "install.sh",
        f"precad-{name}-keeper.service": "keeper.service",
    }
    if values["native"]:
        names[f"precad-{name}.service"] = "client.service"
    own = {file: _filled(template, values) for file, template in names.items()}
    own |= _parts(("supernode", "superexec"), values)
    _write(folder, {**pages, **own, "task.json": task.as_text()}, wheels)
    if data is None and not (folder / DATA).exists():
        training = task.training
        budget = DataBudget(epsilon=training.budget, delta=training.delta, unit=task.bounds.unit)
        DataLedger.new(folder / DATA, budget).close()


def requirements(wheels: Path) -> str:
    """What ``pip install --require-hashes`` installs: each wheel of a folder by its SHA-256, precad's among them.

    Raises:
        ValueError: There are two wheels of one package, or the folder lacks that of this version of precad.
    """
    found: dict[str, str] = {}
    for path in sorted(wheels.glob("*.whl")):
        match = re.fullmatch(r"([A-Za-z0-9_.]+)-([A-Za-z0-9_.!+]+)(-[A-Za-z0-9_.]+){3,4}\.whl", path.name)
        if match is None:
            raise ValueError(f"{path} has not the name of a wheel")
        name = re.sub(r"[-_.]+", "-", match[1]).lower()
        if name in found:
            raise ValueError(f"{wheels} has two wheels of {name}: leave the one to install")
        found[name] = f"{name}=={match[2]} --hash=sha256:{_sha256(path)}\n"
    if not found.get("precad", "").startswith(f"precad=={__version__} "):
        raise ValueError(f"{wheels} must hold the wheel of precad {__version__}, by which this kit is made")
    return "".join(found.values())


def check(folder: Path) -> str:
    """The digest of a kit: SHA-256 of its list of digests, if every file is still as it was made.

    Raises:
        ValueError: A file was changed, or is gone; or the folder is no kit.
    """
    try:
        listed = read_text(folder / SUMS)
    except OSError:
        raise ValueError(f"{folder} is not a kit: it has no {SUMS}") from None
    changed = []
    for line in listed.splitlines():
        match = re.fullmatch("([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._-]*)", line)
        if match is None:
            raise ValueError(f"{folder / SUMS} is not a list of digests")
        if not (folder / match[2]).is_file() or _sha256(folder / match[2]) != match[1]:
            changed.append(match[2])
    if changed:
        raise ValueError(f"{folder}: changed since the kit was made, or gone: {', '.join(changed)}")
    return hashlib.sha256(listed.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open_to_read(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _of_a_party(task: Task, name: str, kind: str, extra: str, wheels: Path | None) -> dict[str, object]:
    """What the pages of all kits say."""
    own = None if wheels is None else next((path.name for path in wheels.glob("precad-*.whl")), None)
    return {
        "name": name,
        "kind": kind,
        "digest": task.digest.hex(),
        "version": __version__,
        "extra": extra,
        "wheels": own,
    }


def _supernode(name: str, superlink: str) -> str:
    """The command of a client's SuperNode, but for its node config."""
    return (
        f"flower-supernode --superlink {superlink} --root-certificates gateway.pem "
        f"--auth-supernode-private-key {name}.node.key --host 127.0.0.1 --port {_SUPERNODE_PORT} "
        "--isolation process --superexec-auth-secret-file superexec.secret"
    )


def _parts(parts: Iterable[str], values: Mapping[str, object]) -> dict[str, str]:
    """The units of Flower's programs, each with a user and a folder of its own."""
    name = values["name"]
    return {
        f"precad-{name}-{part}.service": _filled(
            f"{part}.service", {**values, "user": f"precad-{part}", "state": f"precad-{name}-{part}"}
        )
        for part in parts
    }


def _filled(template: str, values: Mapping[str, object]) -> str:
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """Plain text, so nothing is escaped: the names of parties are checked when their keys are made."""
    return Environment(  # noqa: S701 - no HTML
        loader=PackageLoader("precad.deployment"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


def _write(folder: Path, files: dict[str, str | bytes], wheels: Path | None) -> None:
    if wheels is not None:
        files = {**files, "requirements.txt": requirements(wheels)}
    raw = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    listed = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(raw.items()))
    make_folder(folder, private=True)
    for name in (*raw, SUMS):
        if (folder / name).exists():
            raise ValueError(f"{folder / name} exists and is not overwritten")
    for name, content in (raw | {SUMS: listed.encode()}).items():
        write_file(folder / name, content, private=True, new=True)
