"""What a round costs on Flower: the same clients with plain updates and with precad, in the same run of this program.

The clients do nothing but add to the model, so that all the time is Flower's and precad's. They import torch, if it is
installed, as an app that trains does. The first round, with its start-up, is not counted.
"""

import statistics
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from precad.flower.loopback import Deployment, Processes, Simulation
from precad.params import Params, Unit
from precad.services.task import Training

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
precad = ""
times = ""
"""

_APP = """import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

with suppress(ImportError):
    import torch
{imports}
client = ClientApp(mods=[{mod}])
server = ServerApp()

@client.train()
def train(message, context):
    model = message.content["arrays"]["model"].numpy()
    arrays = ArrayRecord({{"model": Array(model + np.float32(1e-3))}})
    metrics = MetricRecord({{"num-examples": 1}})
    return Message(RecordDict({{"arrays": arrays, "metrics": metrics}}), reply_to=message)

@server.main()
def main(grid, context):
    config = context.run_config
    def mark(number, arrays):
        with open(config["times"], "a") as file:
            file.write(f"{{time.monotonic()}}\\n")
    arrays = ArrayRecord({{"model": Array(np.zeros(config["dim"], np.float32))}})
    while len(list(grid.get_node_ids())) < {clients}:
        time.sleep(0.5)
    strategy = {strategy}
    strategy.start(grid, arrays, num_rounds=config["rounds"], evaluate_fn=mark)
"""

_IMPORTS = """
from precad.flower import PrecadMod, PrecadStrategy, ServerA
from precad.flower.bench import task
"""


def run(dim: int, clients: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds per round, the median of ``rounds``, for both ways to run Flower."""
    names = tuple(f"client-{number}" for number in range(clients))
    results = {}
    for kind in ("simulation", "deployment"):
        seconds = {}
        for mode in ("plain", "precad"):
            with TemporaryDirectory(prefix="precad-bench-") as folder:
                seconds[mode] = _seconds(Path(folder) / "run", kind, mode, names, dim, rounds)
        ratio = seconds["precad"] / seconds["plain"]
        results[kind] = {"plain_s": seconds["plain"], "precad_s": seconds["precad"], "ratio": ratio}
    return results


def task(dim: int, clients: int, rounds: int) -> tuple[Params, Training]:
    """The benchmark's task: everybody takes part in every round."""
    bounds = Params(
        dim=dim, clients=clients, record_bound=1.0, client_bound=1.0, noise_multiplier=4.0, unit=Unit.CLIENT
    )
    training = Training(
        client_rate=1.0,
        record_rate=1.0,
        rounds=rounds,
        learning_rate=1.0,
        delta=1e-3,
        budget=100.0,
        participations=rounds,
    )
    return bounds, training


def _seconds(folder: Path, kind: str, mode: str, names: tuple[str, ...], dim: int, rounds: int) -> float:
    bounds, training = task(dim, len(names), rounds + 1)
    parties: Processes
    if kind == "deployment":
        parties = Deployment(folder, names)
        parties.prepare(np.zeros(dim), bounds, training)
        server = "ServerA.deployed(Path(config['precad']))"
    else:
        folder.mkdir()
        parties = Simulation(folder)
        place = "Path(os.environ['PRECAD_SIMULATION']), np.zeros(config['dim'])"
        server = f"ServerA.simulated({place}, *task(config['dim'], {len(names)}, config['rounds']))"
    app = _write_app(folder / "app", mode, kind, server, len(names))
    times = folder / "times"
    files = f'precad="{folder / "a" / "a.toml"}" times="{times}"'
    settings = ["--run-config", f"{files} rounds={rounds + 1} dim={dim}"]
    if kind == "simulation":
        settings += ["--federation-config", f"num-supernodes={len(names)}"]
    with parties.running():
        printed = parties.flwr("run", str(app), "ours", "--stream", *settings, timeout=3600)
    marks = [float(line) for line in times.read_text().split()] if times.exists() else []
    if len(marks) != rounds + 2:
        raise RuntimeError(f"the app did not finish:\n{printed}")
    return statistics.median(after - before for before, after in pairwise(marks[1:]))


def _write_app(folder: Path, mode: str, kind: str, server: str, clients: int) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text(_PROJECT)
    inner = "FedAvg(fraction_evaluate=0.0)"
    place = "Path(os.environ['PRECAD_SIMULATION'])" if kind == "simulation" else ""
    text = _APP.format(
        imports=_IMPORTS if mode == "precad" else "",
        mod=f"PrecadMod({place})" if mode == "precad" else "",
        strategy=f"PrecadStrategy({inner}, {server})" if mode == "precad" else inner,
        clients=clients,
    )
    (folder / "bench_app.py").write_text(text)
    return folder
