"""Server A. The strategy around FedAvg is the one line that precad adds."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_mnist import simulation
from flower_mnist.task import Net, accuracy, load_records
from precad import Unit
from precad.flower import PrecadStrategy, ServerA, vector_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and evaluate each model on a test set that is the servers' own."""
    rounds, socket = int(str(context.run_config["num-server-rounds"])), str(context.run_config["precad"])
    checkpoints = str(context.run_config["checkpoints"])
    initial = ArrayRecord(Net().state_dict())
    clients = len(list(grid.get_node_ids()))
    if socket:
        server = ServerA.at(Path(socket))
    else:
        server = simulation.server(initial, clients, rounds, Unit(context.run_config["unit"]))

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        if checkpoints:
            np.save(Path(checkpoints) / f"{number:04}.npy", vector_of(arrays))
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(net, *load_records(-1))})

    strategy = PrecadStrategy(FedAvg(), server)
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds, evaluate_fn=evaluate)
