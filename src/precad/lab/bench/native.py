"""What a round costs with native clients: both servers as processes, mutual TLS over the loopback, no training.

The clients are threads of this process, each with its own connections and its own file, so that they share one
interpreter: on a machine of its own each would be faster.
"""

import logging
import threading
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from precad.deployment import client_config, native
from precad.deployment.parties import Parties
from precad.lab.bench.flower import task
from precad.lab.processes import Servers, Site, free_port

CLIENTS = 10
TARGETS = {"round_s": 1.0}


def run(dim: int, rounds: int) -> dict[str, float]:
    """The median seconds from the beginning of a round to that of the next, without the first and its start-up."""
    names = tuple(f"client-{number}" for number in range(CLIENTS))
    parties = Parties.new(np.zeros(dim), *task(dim, CLIENTS, rounds + 2), dict.fromkeys(names, 1))
    with TemporaryDirectory(prefix="precad-bench-") as name:
        folder = Path(name)
        parties.save_apart(folder, free_port(), clients_port=free_port())
        with Servers(folder).running():
            begun = _play(Site(folder), names)
    if len(begun) != rounds + 2:
        raise RuntimeError(f"{len(begun)} rounds began, expected {rounds + 2}")
    starts = [begun[number] for number in sorted(begun)][1:]
    return {"clients": CLIENTS, "round_s": median(np.diff(starts).tolist())}


def _play(site: Site, names: tuple[str, ...]) -> dict[int, float]:
    """All clients until the task is over; when the first of them began each round."""
    begun: dict[int, float] = {}
    faults: list[Exception] = []

    def train(model: NDArray[np.float64], number: int, _look: float) -> NDArray[np.float64]:
        begun.setdefault(number, time.monotonic())
        return np.full(model.size, 1e-3)

    def take_part(name: str) -> None:
        try:
            settings = client_config.load(site.folder / name / f"{name}.toml")
            native.run(settings, site.task, train)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=take_part, args=(name,), daemon=True) for name in names]
    level = native.LOG.level
    native.LOG.setLevel(logging.WARNING)  # ten clients on one terminal
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    native.LOG.setLevel(level)
    if faults:
        raise faults[0]
    return begun
