"""The task of a simulation: both servers and every client on this machine, so nothing is hidden from it."""

import os
from pathlib import Path

from flwr.app import ArrayRecord

from flower_mnist.task import RECORDS
from precad import Params, Schedule, Unit
from precad.deployment import Training
from precad.flower import ServerA, vector_of

FOLDER = Path(os.environ.get("PRECAD_SIMULATION") or Path.home() / ".precad-simulation")


def server(initial: ArrayRecord, clients: int, rounds: int, unit: Unit) -> ServerA:
    """Server A of a new task, in which every client takes part in every round.

    By record, a client's bound leaves room for the sum of the 60 records that it draws on average.
    """
    model, by_record = vector_of(initial), unit is Unit.RECORD
    bounds = Params(
        dim=model.size,
        clients=clients,
        record_bound=1.0,
        client_bound=60.0 if by_record else 1.0,
        noise_multiplier=1.0,
        unit=unit,
    )
    training = Training(
        client_rate=1.0,
        record_rate=0.1 if by_record else 1.0,
        rounds=rounds,
        schedule=Schedule(learning_rate=1.0),
        delta=1e-3,
        budget=100.0,
        participations=rounds,
    )
    return ServerA.simulated(FOLDER, model, bounds, training, records=RECORDS)
