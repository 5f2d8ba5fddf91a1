"""Start kits: a folder with all that a party needs but its private key, and a page with the one command to run.

The texts are in ``templates/``. A server's kit has a systemd unit: the server runs as a user of its own that can write
its own folder and nothing else. The kernels are compiled when they are first used, so the unit leaves out
``MemoryDenyWriteExecute`` on purpose, and gives the compiler's cache a folder.
"""

from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from precad.deployment.task import Task
from precad.files import write_file
from precad.protocol.digests import model_digest
from precad.protocol.states import Role

PROGRAMS = "/opt/precad/bin"
"""Where a unit expects the programs of precad, and at A those of Flower and the app's libraries."""


def server(
    task: Task, model: NDArray[np.float64], role: Role, folder: Path, *, host: str | None = None, port: int = 8443
) -> None:
    """Write the kit of a server.

    Args:
        task: The task.
        model: The initial model, which the task names.
        role: Which of the two servers.
        folder: Where the kit goes.
        host: Where B listens, and A looks for it; if not given, B listens everywhere, and A's operator fills it in.
        port: B's port.
    """
    if model_digest(model) != task.model:
        raise ValueError(f"the model's digest is {model_digest(model).hex()}, the task names {task.model.hex()}")
    name = task.server(role).name
    usual_host = "0.0.0.0" if role is Role.B else "127.0.0.1"  # noqa: S104 - TLS pins A
    values = {
        "title": f"Server {role.name}: {name}",
        "keys": f"`{name}.key`, `{name}.tls.key` and `{name}.tls.pem`",
        "kind": "server",
        "name": name,
        "role": role.name,
        "digest": task.digest.hex(),
        "extra": "server" if role is Role.B else "flower",
        "programs": PROGRAMS,
        "host": host or usual_host,
        "port": port,
    }
    stored = BytesIO()
    np.save(stored, model)
    _write(
        folder,
        {
            f"{role.name.lower()}.toml": _filled("server.toml", values),
            f"precad-{name}.service": _filled("server.service", values),
            "task.json": task.as_text(),
            "model.npy": stored.getvalue(),
            "README.md": _filled(f"server_{role.name.lower()}.md", values),
        },
    )


def client(task: Task, name: str, folder: Path, superlink: str = "SUPERLINK:8000") -> None:
    """Write the kit of a client, which reaches organisation A's SuperLink at this address."""
    if name not in task.members:
        raise ValueError(f"{name} is not in the task's roster")
    task.check_budget()
    values = {
        "title": f"Client {name}",
        "keys": f"`{name}.key`",
        "kind": "client",
        "name": name,
        "digest": task.digest.hex(),
        "superlink": superlink,
        "epsilon": task.epsilon,
        "delta": task.training.delta,
    }
    _write(folder, {"README.md": _filled("client.md", values), "task.json": task.as_text()})


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


def _write(folder: Path, files: dict[str, str | bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        if (folder / name).exists():
            raise ValueError(f"{folder / name} exists and is not overwritten")
    for name, content in files.items():
        write_file(folder / name, content, new=True)
