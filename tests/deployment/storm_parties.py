"""What the parties of a storm do once: keys, task, kits, certificates, two anchors, a training and an app."""

import datetime
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from precad.deployment import config, kit
from precad.deployment.parties import Parties
from precad.deployment.task import Training
from precad.lab import processes
from precad.protocol.params import Params, Unit
from precad.protocol.states import Role
from precad.protocol.update import Schedule

NATIVE, FLOWER = ("clinic", "lab"), ("bank", "shop")
DIM, ROUNDS = 40, 20_000
DISK = "disk"
"""The folder of a server's store and audit log, in its own."""
WAITS = {
    Role.A: "round_seconds = 20.0\njoin_seconds = 3.0\nanswer_seconds = 15.0\nconnect_seconds = 5.0\n",
    Role.B: "",
}
TRAINING = """
import time

import numpy


def train(model, round):
    time.sleep(0.2)
    return numpy.full(model.size, 0.01)
"""
APP = """
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from precad.flower import PrecadMod

client = ClientApp(mods=[PrecadMod()])
server = ServerApp()


@client.train()
def train(message, context):
    trained = ArrayRecord([array + np.float32(0.01) for array in message.content["arrays"].to_numpy_ndarrays()])
    reply = RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})})
    return Message(reply, reply_to=message)


@server.main()
def main(grid, context):
    from flwr.serverapp.strategy import FedAvg
    from precad.flower import PrecadStrategy, ServerA

    given = context.run_config
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = PrecadStrategy(inner, ServerA.at(Path(given["socket"])), patience=10)
    start = ArrayRecord([np.zeros(given["dim"], np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=given["rounds"], timeout=15)
"""
PROJECT = f"""
[project]
name = "storm"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "precad"
[tool.flwr.app.components]
serverapp = "storm_app:server"
clientapp = "storm_app:client"
[tool.flwr.app.config]
socket = ""
rounds = 1
dim = {DIM}
"""


def make(folder: Path, ports: Mapping[Role, int], lines: Mapping[Role, int]) -> None:
    """Give each party its folder. Servers listen at the first ports, and are reached at the second."""
    parties = Parties.new(np.zeros(DIM), *_terms(), dict.fromkeys((*NATIVE, *FLOWER), 1))
    for each in (*parties.servers.values(), *parties.clients.values()):
        each.save(folder / each.identity.name)
    parties.task.save(folder / "task.json")
    for role, server in parties.servers.items():
        own, port = folder / server.identity.name, (lines if role is Role.A else ports)[Role.B]
        kit.server(parties.task, parties.model, role, own, host="127.0.0.1", port=port, clients_port=ports[Role.A])
        _begin(role, server.identity.name, own)
    for name in parties.clients:
        kit.client(parties.task, name, folder / name, door=f"127.0.0.1:{lines[Role.A]}")
        with (folder / name / f"{name}.toml").open("a") as settings:
            settings.write("answer_seconds = 15.0\nconnect_seconds = 5.0\n")
    for name in FLOWER:
        processes._make_node_key(folder / name)
    processes._make_certificates(folder / "tls", datetime.datetime.now(datetime.UTC))
    _write_code(folder)


def _terms() -> tuple[Params, Training]:
    bounds = Params(dim=DIM, clients=1, record_bound=1.0, client_bound=1.0, noise_multiplier=100.0, unit=Unit.CLIENT)
    training = Training(
        client_rate=1.0,
        record_rate=1.0,
        rounds=ROUNDS,
        schedule=Schedule(learning_rate=1.0),
        delta=1e-3,
        budget=100.0,
        participations=ROUNDS,
    )
    return bounds, training


def _begin(role: Role, name: str, own: Path) -> None:
    """The server's files are on its disk, and its anchor is not; then its store is made."""
    path = own / kit.settings_name(role)
    text = path.read_text()
    for file in (f"{name}.db", f"{name}.audit.log"):
        text = text.replace(f'"{file}"', f'"{DISK}/{file}"')
    path.write_text(f'{text}\nanchor = "anchor"\n{WAITS[role]}')
    (own / "anchor").mkdir()
    config.load(path).begin()


def _write_code(folder: Path) -> None:
    for place, name, text in (
        ("code", "storm_train.py", TRAINING),
        ("app", "storm_app.py", APP),
        ("app", "pyproject.toml", PROJECT),
    ):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / name).write_text(text)
