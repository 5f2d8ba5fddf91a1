"""What a round costs on Flower: the same clients with plain updates, with precad, and with Flower's own SecAgg+.

All share one SuperLink, and one Ray or the same SuperNodes. The clients do nothing but add to the model, so that all
the time is Flower's and precad's. The first round, with its start-up, is not counted. In simulation a plain round is
mostly Flower's waiting, so on a machine that does much else the ratio grows with what precad computes; a client gets
one core, as with Flower's default of two a machine with two would simulate one client at a time.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from precad.deployment.task import Training
from precad.lab.bench import flower_apps as bench_apps
from precad.lab.bench.flower_apps import App
from precad.lab.processes import Deployment, Processes, Simulation
from precad.protocol.params import Params, Unit
from precad.protocol.update import Schedule

SIMULATED_ROUNDS = 4
"""A simulated round takes a fraction of a second: so many times more of them are timed."""


def run(dim: int, clients: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds per round, means, for both ways to run Flower."""
    if rounds < 1 or clients < 2:
        raise ValueError(f"at least one round of two clients is timed, got {rounds} of {clients}")
    with TemporaryDirectory(prefix="precad-bench-") as name:
        simulation = Simulation(Path(name) / "simulation")
        simulation.folder.mkdir()
        with simulation.running():
            simulated = in_simulation(simulation, dim, clients, SIMULATED_ROUNDS * rounds)
        deployment = Deployment(Path(name) / "run", tuple(f"client-{number}" for number in range(clients)))
        deployment.prepare(np.zeros(dim), *task(dim, clients, rounds + 1))
        with deployment.running():
            deployed = in_deployment(deployment, dim, rounds)
    return {"simulation": simulated, "deployment": deployed}


def in_simulation(parties: Simulation, dim: int, clients: int, rounds: int) -> dict[str, float]:
    """Seconds per round in a simulation that is running."""
    size = ("--federation-config", f"num-supernodes={clients} client-resources-num-cpus=1")
    apps = parties.folder / "apps"
    plain_s = _seconds(parties, bench_apps.plain(apps / "plain", clients), dim, rounds, *size)
    precad_s = _seconds(parties, bench_apps.simulated(apps / "precad", clients), dim, rounds, *size)
    secagg_s = _seconds(parties, bench_apps.secagg(apps / "secagg", clients), dim, rounds, *size)
    return {
        "plain_s": plain_s,
        "precad_s": precad_s,
        "ratio": precad_s / plain_s,
        "secagg_s": secagg_s,
        "secagg_ratio": precad_s / secagg_s,
    }


def in_deployment(parties: Deployment, dim: int, rounds: int) -> dict[str, float]:
    """Seconds per round over processes that are running, on a task of ``rounds + 1`` rounds."""
    apps, clients = parties.folder / "apps", len(parties.clients)
    plain_s = _seconds(parties, bench_apps.plain(apps / "plain", clients), dim, rounds)
    precad_s = _seconds(parties, bench_apps.deployed(apps / "precad", clients, parties.settings_a), dim, rounds)
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


def _seconds(parties: Processes, app: App, dim: int, rounds: int, *options: str) -> float:
    """The mean of ``rounds`` rounds, after a first one. A round without all clients is an error, not a fast round.

    Flower's processes ask for news every three seconds, so that a round takes 9 or 12 of them by luck: a median would
    be one or the other.
    """
    times = app.folder / "times"
    settings = ("--run-config", f'times="{times}" rounds={rounds + 1} dim={dim}')
    printed = parties.flwr("run", str(app.folder), "ours", "--stream", *settings, *options, timeout=3600)
    marks = [float(line) for line in times.read_text().split()] if times.exists() else []
    if len(marks) != rounds + 2 or printed.count(app.complete) != rounds + 1:
        raise RuntimeError(f"the app {app.folder.name} did not finish, or not with all clients:\n{printed}")
    return (marks[-1] - marks[1]) / rounds
