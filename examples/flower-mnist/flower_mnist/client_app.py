"""The client. The mod is the one line that precad adds; by record, its local update takes the place of training."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from flower_mnist.simulation import FOLDER
from flower_mnist.task import Net, load_records, train
from precad.flower import PrecadMod, record_update

app = ClientApp(mods=[PrecadMod(simulated=FOLDER)])


@app.train()
def train_here(message: Message, context: Context) -> Message:
    """Train the received model on this client's records, and reply as any Flower app does."""
    net = Net()
    images, labels = load_records(int(str(context.node_config["partition-id"])))
    if context.run_config["unit"] == "record":
        return record_update(message, net, cross_entropy, TensorDataset(images, labels))
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    loss = train(net, images, labels, float(str(context.run_config["learning-rate"])))
    metrics = MetricRecord({"num-examples": len(labels), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
