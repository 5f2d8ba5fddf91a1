"""Start kits: a folder with all that a party needs but its private key, and a page with the one command to run."""

from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precad.deployment.task import Task
from precad.deployment.units import unit
from precad.files import write_file
from precad.protocol.digests import model_digest
from precad.protocol.states import Role

_SERVER = """# {name}'s settings as a server of this task. Paths are relative to this file.
task = "task.json"
model = "model.npy"
key = "{name}.key"
tls_key = "{name}.tls.key"
certificate = "{name}.tls.pem"
store = "{name}.db"
audit_log = "{name}.audit.log"
host = "{host}"
port = {port}
"""

_PAGE = """# {title}

1. Put {keys}, from `precad keys new {kind} {name}`, into this folder.
2. Compare the task's digest with the other parties, by telephone or on paper:

       {digest}

{steps}
"""

_SERVER_B = """3. Open port {port} to server A alone, and run, in this folder:

       precad server --config b.toml

   Or have systemd run it, now and after every restart, confined as `precad-{name}.service` says:

{install}

Keep `{name}.db` for as long as the task runs: it holds what may not be forgotten. If it is lost, the task is over."""

_SERVER_A = """3. Set `host` in a.toml to where server B listens.
4. Make the SuperLink's certificate, and give `superlink.pem` to the clients:

       openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN={name} \\
         -addext subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:$(hostname -f) -keyout superlink.key -out superlink.pem

5. Run, in this folder:

       flower-superlink --host 0.0.0.0 --port 8000 --enable-supernode-auth --ssl-certfile superlink.pem \\
         --ssl-keyfile superlink.key --ssl-ca-certfile superlink.pem

   Or have systemd run it, confined as `precad-{name}.service` says:

{install}

6. Name the SuperLink in `$FLWR_HOME/config.toml` (`~/.flwr/config.toml`):

       [superlink.ours]
       address = "localhost:8000"
       root-certificates = "/full/path/to/superlink.pem"

   Register each client's node by the key that it sends you, once: `flwr supernode register CLIENT.node.pub ours`.
7. Train. The app is yours; its ServerApp opens server A by the full path of `a.toml`, as in
   `PrecadStrategy(FedAvg(), ServerA.deployed(Path("/full/path/to/a.toml")))`:

       flwr run APP ours --stream

Keep `{name}.db` for as long as the task runs: it holds what may not be forgotten. If it is lost, the task is over."""

_INSTALL = """       sudo useradd --system --home-dir /var/lib/precad-{name} --shell /usr/sbin/nologin precad
       sudo python3 -m venv /opt/precad
       sudo /opt/precad/bin/pip install 'precad[{extra}]'
       sudo mkdir /var/lib/precad-{name}
       sudo mv -t /var/lib/precad-{name} *       # not a copy: an old store must never run again
       sudo chown -R precad: /var/lib/precad-{name}
       sudo cp /var/lib/precad-{name}/precad-{name}.service /etc/systemd/system/
       sudo systemctl daemon-reload
       sudo systemctl enable --now precad-{name}"""

_CLIENT = """3. Make your node's key, and send `{name}.node.pub` to organisation A, which sends you `superlink.pem`:

       ssh-keygen -t ecdsa -b 384 -N '' -C {name} -f {name}.node && mv {name}.node {name}.node.key

4. Run, in this folder:

       FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \\
       flower-supernode --superlink {superlink} --root-certificates superlink.pem \\
         --auth-supernode-private-key {name}.node.key \\
         --node-config "precad-kit=\\"$PWD\\" precad-name=\\"{name}\\""

   If the app wants settings of its own, add them to the node config, between the quotes.

The server keys in `task.json` are what your submissions are sealed and checked against: take them from here, never from
a message. Organisation A ships the app that this node runs: read it first (docs/deployment.md says how to pin it).

In all rounds together this task costs you at most ε = {epsilon:.3f} at δ = {delta:g}. Keep `{name}.db` for as long as
the task runs: it counts what was spent."""


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
    settings, default_host = ("b.toml", "0.0.0.0") if role is Role.B else ("a.toml", "127.0.0.1")  # noqa: S104 - TLS pins A
    install = _INSTALL.format(name=name, extra="server" if role is Role.B else "flower")
    page = _PAGE.format(
        title=f"Server {role.name}: {name}",
        keys=f"`{name}.key`, `{name}.tls.key` and `{name}.tls.pem`",
        kind="server",
        name=name,
        digest=task.digest.hex(),
        steps=(_SERVER_B if role is Role.B else _SERVER_A).format(name=name, install=install, port=port),
    )
    stored = BytesIO()
    np.save(stored, model)
    _write(
        folder,
        {
            settings: _SERVER.format(name=name, host=host or default_host, port=port),
            f"precad-{name}.service": unit(role, name),
            "task.json": task.as_text(),
            "model.npy": stored.getvalue(),
            "README.md": page,
        },
    )


def client(task: Task, name: str, folder: Path, superlink: str = "SUPERLINK:8000") -> None:
    """Write the kit of a client, which reaches organisation A's SuperLink at this address."""
    if name not in task.members:
        raise ValueError(f"{name} is not in the task's roster")
    task.check_budget()
    steps = _CLIENT.format(name=name, superlink=superlink, epsilon=task.epsilon, delta=task.training.delta)
    digest = task.digest.hex()
    page = _PAGE.format(
        title=f"Client {name}", keys=f"`{name}.key`", kind="client", name=name, digest=digest, steps=steps
    )
    _write(folder, {"README.md": page, "task.json": task.as_text()})


def _write(folder: Path, files: dict[str, str | bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        if (folder / name).exists():
            raise ValueError(f"{folder / name} exists and is not overwritten")
    for name, content in files.items():
        write_file(folder / name, content, new=True)
