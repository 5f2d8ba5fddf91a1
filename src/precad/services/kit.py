"""Start kits: a folder with all that a party needs but its private key, and a page with the one command to run."""

from pathlib import Path

from precad.protocol.digests import model_digest
from precad.protocol.states import Role
from precad.services import task as tasks

_SERVER = """# {name}'s settings as a server of this task. Paths are relative to this file.
task = "task.json"
model = "model.npy"
key = "{name}.key"
tls_key = "{name}.tls.key"
certificate = "{name}.tls.pem"
store = "{name}.db"
audit_log = "{name}.audit.log"
host = "{host}"
port = 8443
"""

_SERVER_PAGE = """# Server {role}: {name}

1. Put `{name}.key`, `{name}.tls.key` and `{name}.tls.pem`, from `precad keys new server {name}`, into this folder.
2. Compare the task's digest with the other parties, by telephone or on paper:

       {digest}

3. {run}

Keep `{name}.db` for as long as the task runs: it holds what may not be forgotten. If it is lost, the task is over.
"""

_CLIENT_PAGE = """# Client {name}

1. Put `{name}.key`, from `precad keys new client {name}`, into this folder.
2. Compare the task's digest with the other parties, by telephone or on paper:

       {digest}

3. Start your Flower SuperNode with this folder in its node config, as the guide says. The server keys in `task.json`
   are what your submissions are sealed and checked against: take them from here, never from a message.

In all rounds together this task costs you at most ε = {epsilon:.3f} at δ = {delta:g}.
"""


def server(task_file: Path, model_file: Path, role: Role, folder: Path) -> None:
    """The kit of a server."""
    task = tasks.load(task_file)
    model = tasks.load_model(model_file)
    if model_digest(model) != task.model:
        raise ValueError(f"{model_file} is not the initial model that the task names")
    name = task.server(role).name
    settings = "b.toml" if role is Role.B else "a.toml"
    run = (
        "Run `precad server --config b.toml`; open the port to server A alone."
        if role is Role.B
        else "Set `host` in a.toml to where server B listens, and start your Flower ServerApp with it (see the guide)."
    )
    host = "0.0.0.0" if role is Role.B else "127.0.0.1"  # noqa: S104 - B is there to be reached; TLS pins A
    page = _SERVER_PAGE.format(role=role.name, name=name, digest=task.digest.hex(), run=run)
    files = {settings: _SERVER.format(name=name, host=host), "README.md": page}
    _write(folder, {**files, "task.json": task_file.read_bytes(), "model.npy": model_file.read_bytes()})


def client(task_file: Path, name: str, folder: Path) -> None:
    """The kit of a client."""
    task = tasks.load(task_file)
    if name not in task.members:
        raise ValueError(f"{name} is not in the task's roster")
    task.check_budget()
    page = _CLIENT_PAGE.format(name=name, digest=task.digest.hex(), epsilon=task.epsilon, delta=task.training.delta)
    _write(folder, {"README.md": page, "task.json": task_file.read_bytes()})


def _write(folder: Path, files: dict[str, str | bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        if (folder / name).exists():
            raise ValueError(f"{folder / name} exists and is not overwritten")
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
