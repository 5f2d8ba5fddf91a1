"""The benchmark's apps: the same clients, with plain updates, with precad, and with Flower's own SecAgg+.

A client adds to the model and does nothing else. It imports torch, if that is installed, as an app that trains does.
SecAgg+ exists in Flower's older interface alone, so its app is written in that.
"""

from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class App:
    """An app's folder, and the words that it logs in each round in which all clients took part."""

    folder: Path
    complete: str


def plain(folder: Path, clients: int) -> App:
    """FedAvg."""
    _write(folder, clients, _APP, CLIENT_IMPORTS="", SERVER_IMPORTS="", MOD="", STRATEGY=_INNER)
    return App(folder, f"aggregate_train: Received {clients} results and 0 failures")


def deployed(folder: Path, clients: int, settings: Path) -> App:
    """FedAvg with precad, where server A's settings are."""
    strategy = f"PrecadStrategy({_INNER}, ServerA.deployed(Path({str(settings)!r})), patience=900)"
    _write(folder, clients, _APP, **_IMPORTS, MOD="PrecadMod()", STRATEGY=strategy)
    return App(folder, f"kept {clients} submissions")


def simulated(folder: Path, clients: int) -> App:
    """FedAvg with precad, with all keys in one folder."""
    server = f"ServerA.simulated({_FOLDER}, np.zeros(dim), *task(dim, CLIENTS, rounds))"
    mod, strategy = f"PrecadMod({_FOLDER})", f"PrecadStrategy({_INNER}, {server}, patience=900)"
    _write(folder, clients, _APP, **_IMPORTS, MOD=mod, STRATEGY=strategy)
    return App(folder, f"kept {clients} submissions")


def secagg(folder: Path, clients: int) -> App:
    """FedAvg with Flower's SecAgg+."""
    _write(folder, clients, _SECAGG_APP)
    return App(folder, f"aggregate_fit: received {clients} results and 0 failures")


def _write(folder: Path, clients: int, text: str, **parts: str) -> None:
    for name, part in parts.items():
        text = text.replace(name, part)
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    (folder / "bench_app.py").write_text(f"{_START}\nCLIENTS = {clients}\n{text}")
