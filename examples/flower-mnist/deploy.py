"""``python deploy.py FOLDER``: the example as real processes on this machine, over TLS, started and stopped.

The folder gets the keys, certificates, task and kits of all parties, and every process's log.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from precad import Params, Schedule, Unit
from precad.deployment import Training
from precad.lab.processes import Deployment

HERE = Path(__file__).parent
DIM = 500


def deployment(folder: Path, clients: tuple[str, ...], rounds: int, noise_multiplier: float = 1.0) -> Deployment:
    """The parties of the example's task, ready to be started."""
    parties = Deployment(folder, clients)
    bounds = Params(
        dim=DIM,
        clients=len(clients),
        record_bound=1.0,
        client_bound=1.0,
        noise_multiplier=noise_multiplier,
        unit=Unit.CLIENT,
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
    parties.prepare(np.zeros(DIM), bounds, training)
    (folder / "checkpoints").mkdir()
    return parties


def run(parties: Deployment, rounds: int, app: Path = HERE) -> str:
    """Run the app to its end; what it printed."""
    files = f'precad="{parties.socket_a}" checkpoints="{parties.folder / "checkpoints"}"'
    settings = f"{files} num-server-rounds={rounds}"
    return parties.flwr("run", str(app), "ours", "--stream", "--run-config", settings, timeout=3600)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Train the example over real processes on this machine.")
    parser.add_argument("folder", type=Path, help="where to put everything; it must not exist")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    names = tuple(f"client-{number}" for number in range(given.clients))
    parties = deployment(given.folder.absolute(), names, given.rounds)
    with parties.running():
        sys.stdout.write(run(parties, given.rounds))


if __name__ == "__main__":
    main()
