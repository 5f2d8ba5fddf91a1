"""What a round costs on Flower: the same clients with plain updates, with precad, and with Flower's own SecAgg+.

All share one SuperLink, and one Ray or the same SuperNodes. The clients do nothing but add to the model, so that all
the time is Flower's and precad's; they import torch, if that is installed, as an app that trains does. The first round,
with its start-up, is not counted. In simulation a plain round is mostly Flower's waiting, so on a machine that does
much else the ratio grows with what precad computes; a client gets one core, as with Flower's default of two a machine
with two would simulate one client at a time.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from precad.deployment.task import Training
from precad.files import make_folder, read_text, write_file
from precad.lab.processes import Deployment, Processes, Simulation
from precad.protocol.params import Params, Unit
from precad.protocol.update import Schedule

SIMULATED_ROUNDS = 4
"""A simulated round takes a fraction of a second, so this many are timed for each deployed one."""


def run(dim: int, clients: int, rounds: int) -> dict[str, dict[str, float]]:
    """The mean seconds of a round, for both ways to run Flower."""
    if rounds < 1 or clients < 2:
        raise ValueError(f"at least one round of two clients is timed, got {rounds} of {clients}")
    with TemporaryDirectory(prefix="precad-bench-") as name:
        simulation = Simulation(Path(name) / "simulation")
        make_folder(simulation.folder)
        with simulation.running():
            in_memory = in_simulation(simulation, dim, clients, SIMULATED_ROUNDS * rounds)
        deployment = Deployment(Path(name) / "run", tuple(f"client-{number}" for number in range(clients)))
        deployment.prepare(np.zeros(dim), *task(dim, clients, rounds + 1))
        with deployment.running():
            over_processes = in_deployment(deployment, dim, rounds)
    return {"simulation": in_memory, "deployment": over_processes}


def in_simulation(parties: Simulation, dim: int, clients: int, rounds: int) -> dict[str, float]:
    """The mean seconds of a round in a simulation that is running."""
    size = ("--federation-config", f"num-supernodes={clients} client-resources-num-cpus=1")
    apps = parties.folder / "apps"
    plain_s = _seconds(parties, plain(apps / "plain", clients), dim, rounds, *size)
    precad_s = _seconds(parties, simulated(apps / "precad", clients), dim, rounds, *size)
    secagg_s = _seconds(parties, secagg(apps / "secagg", clients), dim, rounds, *size)
    compared = {"plain_s": plain_s, "precad_s": precad_s, "ratio": precad_s / plain_s}
    return compared | {"secagg_s": secagg_s, "secagg_ratio": precad_s / secagg_s}


def in_deployment(parties: Deployment, dim: int, rounds: int) -> dict[str, float]:
    """The mean seconds of a round over processes that are running, on a task of ``rounds + 1`` rounds."""
    apps, clients = parties.folder / "apps", len(parties.clients)
    plain_s = _seconds(parties, plain(apps / "plain", clients), dim, rounds)
    precad_s = _seconds(parties, deployed(apps / "precad", clients, parties.socket_a), dim, rounds)
    return {"plain_s": plain_s, "precad_s": precad_s, "ratio": precad_s / plain_s}


def task(dim: int, clients: int, rounds: int) -> tuple[Params, Training]:
    """The benchmark's task: everybody takes part in every round."""
    bounds = Params(
        dim=dim, clients=clients, record_bound=1.0, client_bound=1.0, noise_multiplier=4.0, unit=Unit.CLIENT
    )
    training = Training(
        client_rate=1.0,
        record_rate=1.0,
        rounds=rounds,
        schedule=Schedule(learning_rate=1.0),
        delta=1e-3,
        budget=100.0,
        participations=rounds,
    )
    return bounds, training


@dataclass(frozen=True)
class App:
    """An app's folder, and the words that it logs in each round in which all clients took part."""

    folder: Path
    complete: str


def plain(folder: Path, clients: int) -> App:
    """An app of FedAvg alone."""
    words = f"aggregate_train: Received {clients} results and 0 failures"
    return _app(folder, clients, words, _APP, CLIENT_IMPORTS="", SERVER_IMPORTS="", MOD="", STRATEGY=_INNER)


def deployed(folder: Path, clients: int, socket: Path) -> App:
    """An app of FedAvg with precad, at server A's socket."""
    strategy = f"PrecadStrategy({_INNER}, ServerA.at(Path({str(socket)!r})), patience=900)"
    return _app(folder, clients, _KEPT.format(clients), _APP, **_IMPORTS, MOD="PrecadMod()", STRATEGY=strategy)


def simulated(folder: Path, clients: int) -> App:
    """An app of FedAvg with precad, with all keys in one folder."""
    server = f"ServerA.simulated({_FOLDER}, np.zeros(dim), *task(dim, CLIENTS, rounds))"
    mod, strategy = f"PrecadMod({_FOLDER})", f"PrecadStrategy({_INNER}, {server}, patience=900)"
    return _app(folder, clients, _KEPT.format(clients), _APP, **_IMPORTS, MOD=mod, STRATEGY=strategy)


def secagg(folder: Path, clients: int) -> App:
    """An app of FedAvg with Flower's SecAgg+, which exists in Flower's older interface alone."""
    return _app(folder, clients, f"aggregate_fit: received {clients} results and 0 failures", _SECAGG_APP)


def _app(folder: Path, clients: int, complete: str, text: str, **parts: str) -> App:
    for name, part in parts.items():
        text = text.replace(name, part)
    make_folder(folder, new=True)
    write_file(folder / "pyproject.toml", _PROJECT)
    write_file(folder / "bench_app.py", f"{_START}\nCLIENTS = {clients}\n{text}")
    return App(folder, complete)


def _seconds(parties: Processes, app: App, dim: int, rounds: int, *options: str) -> float:
    """The mean of ``rounds`` rounds, after a first one. A round without all clients is an error, not a fast round.

    Flower's processes ask for news every three seconds, so that a round takes 9 or 12 of them by luck: a median would
    be one or the other.
    """
    times = app.folder / "times"
    settings = ("--run-config", f'times="{times}" rounds={rounds + 1} dim={dim}')
    printed = parties.flwr("run", str(app.folder), "ours", "--stream", *settings, *options, timeout=3600)
    marks = [float(line) for line in read_text(times).split()] if times.exists() else []
    if len(marks) != rounds + 2 or printed.count(app.complete) != rounds + 1:
        raise RuntimeError(f"the app {app.folder.name} did not finish, or not with all clients:\n{printed}")
    return (marks[-1] - marks[1]) / rounds


_PROJECT = """[project]
name = "bench"
version = "1.0.0"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "precad"
[tool.flwr.app.components]
serverapp = "bench_app:server"
clientapp = "bench_app:client"
[tool.flwr.app.config]
rounds = 1
dim = 1
times = ""
"""

_START = """import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

with suppress(ImportError):
    import torch

server = ServerApp()

def mark(*_arguments):
    with open(TIMES, "a") as file:
        file.write(f"{time.monotonic()}\\n")

def wait_for_all(grid, context):
    global TIMES
    TIMES = context.run_config["times"]
    while len(list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.5)
"""

_APP = """
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
CLIENT_IMPORTS

client = ClientApp(mods=[MOD])

@client.train()
def train(message, context):
    model = message.content["arrays"]["model"].numpy()
    arrays = ArrayRecord({"model": Array(model + np.float32(1e-3))})
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

@server.main()
def main(grid, context):
    SERVER_IMPORTS
    wait_for_all(grid, context)
    dim, rounds = context.run_config["dim"], context.run_config["rounds"]
    arrays = ArrayRecord({"model": Array(np.zeros(dim, np.float32))})
    strategy = STRATEGY
    strategy.start(grid, arrays, num_rounds=rounds, evaluate_fn=mark)
"""

_SECAGG_APP = """
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

class Adding(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + np.float32(1e-3)], 1, {}

client = ClientApp(client_fn=lambda context: Adding().to_client(), mods=[secaggplus_mod])

@server.main()
def main(grid, context):
    wait_for_all(grid, context)
    dim, rounds = context.run_config["dim"], context.run_config["rounds"]
    initial = ndarrays_to_parameters([np.zeros(dim, np.float32)])
    strategy = FedAvg(fraction_evaluate=0.0, initial_parameters=initial, evaluate_fn=mark)
    legacy = LegacyContext(context, ServerConfig(num_rounds=rounds), strategy)
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.6))(grid, legacy)
"""

_INNER = "FedAvg(fraction_evaluate=0.0)"
_IMPORTS = {
    "CLIENT_IMPORTS": "from precad.flower import PrecadMod",
    "SERVER_IMPORTS": "from precad.flower import PrecadStrategy, ServerA; from precad.lab.bench.flower import task",
}
"""An app in Flower's own layout has a file for the clients, and one for the server."""
_FOLDER = "Path(os.environ['PRECAD_SIMULATION'])"
_KEPT = "kept {} submissions"
