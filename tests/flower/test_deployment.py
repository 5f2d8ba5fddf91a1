"""The example over real processes with TLS: a SuperLink, three SuperNodes, server B. Two clients are honest."""

import json
import shutil
import sqlite3
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from flwr.app import ArrayRecord

from precad.deployment import receipts
from precad.deployment import task as tasks
from precad.flower.wire import vector_of
from precad.privacy import clipping
from tests.stat_tests import ALPHA, rounded_normal_p_value

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "flower-mnist"
ROUNDS = 2
CLIENTS = ("bank", "mallory", "shop")
"""Mallory sends too much in the first round, and leaves in the second."""

MISBEHAVE = '''
"""A mod in front of all others: it sees exactly what leaves a client, and plays the one that is not honest."""

import json
import os
import signal
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict

from precad.simulation.forging import forge, scaled
from precad.protocol.codec import Blob
from precad.flower import wire
from precad.flower.wire import vector_of
from precad.deployment import keys, task as tasks
from precad.deployment.client import Client
from precad.flower.mod import SOCKET
from precad.protocol.messages import Sealed, encode
from precad.deployment import sealing


def misbehave(message, context, call_next):
    own, invitation = Path(context.node_config[SOCKET]).parent, wire.read(message, wire.INVITATION)
    if invitation is None or own.name != "mallory":
        reply = call_next(message, context)
        keep(own, reply)
        return reply
    task, key = tasks.load(own / "task.json"), keys.load_private(own / "mallory.key")
    client = Client(task, own.name, key, own / "mallory.db", data=own / "data")
    joined = client.join(invitation, vector_of(message.content.array_records["arrays"]))
    if joined.round.number > 0:
        os.killpg(os.getpgid(0), signal.SIGTERM)
        os._exit(1)
    sent = forge(joined.round, own.name, scaled(joined.round, 10.0))
    parts = [
        sealing.seal(joined.sealing_a, sent.part_a, sent.header, task.server_a),
        sealing.seal(joined.sealing_b, sent.part_b, sent.header, task.server_b),
    ]
    sealed = encode(Sealed(Blob(sent.header), sealing.sign_header(key, sent.header), *parts))
    return Message(RecordDict({wire.RECORD: ConfigRecord({wire.REPLY: sealed})}), reply_to=message)


def keep(own, reply):
    number = len(list(own.glob("reply-*.json")))
    records = {name: sorted(record) for name, record in reply.content.items()} if reply.has_content() else None
    (own / f"reply-{number}.json").write_text(json.dumps(records))
    (own / f"reply-{number}.bytes").write_bytes(wire.read(reply, wire.REPLY) or b"")
'''


def copy_of_example(folder: Path) -> Path:
    """The example, with more patience for its nodes, as all of them share a machine that runs other tests too."""
    shutil.copytree(EXAMPLE, folder)
    path = folder / "flower_mnist" / "server_app.py"
    patient = path.read_text().replace(
        "PrecadStrategy(FedAvg(), server)", "PrecadStrategy(FedAvg(), server, patience=900)"
    )
    assert "patience" in patient
    path.write_text(patient)
    return folder


def app_with_misbehaviour(folder: Path) -> Path:
    copy_of_example(folder)
    (folder / "flower_mnist" / "misbehave.py").write_text(MISBEHAVE)
    path = folder / "flower_mnist" / "client_app.py"
    text = path.read_text().replace("mods=[", "mods=[misbehave, ")
    path.write_text(
        text.replace("from flower_mnist.task", "from flower_mnist.misbehave import misbehave\nfrom flower_mnist.task")
    )
    return folder


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """deploy.py, and the app's own task.py."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import deploy
    from flower_mnist import task

    for name in ("deploy", "flower_mnist", "flower_mnist.task"):
        monkeypatch.delitem(sys.modules, name)
    return deploy, task


def model_in(store: Path) -> np.ndarray:
    connection = sqlite3.connect(store)
    (raw,) = connection.execute("SELECT parameters FROM model").fetchone()
    connection.close()
    return np.frombuffer(raw, np.float64)


@pytest.mark.long
def test_the_example_over_real_processes(tmp_path: Path, example: tuple[ModuleType, ModuleType]) -> None:
    deploy, task = example
    folder = tmp_path / "run"
    parties = deploy.deployment(folder, CLIENTS, ROUNDS, 0.5)
    with parties.running():
        printed = deploy.run(parties, ROUNDS, app_with_misbehaviour(tmp_path / "app"))
    assert not parties.started
    models = [np.load(folder / "checkpoints" / f"{number:04}.npy") for number in range(ROUNDS + 1)]
    assert np.array_equal(model_in(folder / "alpha" / "alpha.db"), model_in(folder / "beta" / "beta.db")), printed
    assert np.array_equal(model_in(folder / "alpha" / "alpha.db").astype(np.float32), models[-1])
    check_verdicts(folder)
    check_noise(folder, models, task)
    check_replies(folder, models, task)


def check_verdicts(folder: Path) -> None:
    """The logs agree; the honest counted in every round, the one that cheated and then left in none."""
    agreed = tasks.load(folder / "task.json")
    log_a, log_b = (receipts.read(folder / name) for name in ("alpha/alpha.audit.log", "beta/beta.audit.log"))
    logs = {name: receipts.read(folder / name / f"{name}.audit.log") for name in ("bank", "shop")}
    assert f"agree on all {ROUNDS} opened rounds" in receipts.audit(agreed, log_a, log_b, logs)
    for line, present in zip(log_a, (CLIENTS, ("bank", "shop")), strict=True):
        verdicts = {verdict.client: verdict.verdict for verdict in receipts.parse(line).events.verdicts}
        assert verdicts.keys() == set(present)
        assert [name for name, verdict in verdicts.items() if verdict == receipts.VALID] == ["bank", "shop"]


def updates(model: np.ndarray, task: ModuleType) -> tuple[list[np.ndarray], list[float]]:
    """What the two honest clients' training adds to a model, and their losses, computed here."""
    results, losses = [], []
    for number in (CLIENTS.index("bank"), CLIENTS.index("shop")):
        net = task.Net()
        parameters = dict(net.state_dict())
        start = 0
        for value in parameters.values():
            end = start + value.numel()
            value.copy_(value.new_tensor(model[start:end]).reshape(value.shape))
            start = end
        losses.append(task.train(net, *task.load_records(number), 0.5))
        results.append(vector_of(ArrayRecord(net.state_dict())) - model)
    return results, losses


def check_noise(folder: Path, models: list[np.ndarray], task: ModuleType) -> None:
    """Each step of the model is the honest clients' clipped updates, computed here, and both servers' noise."""
    agreed = tasks.load(folder / "task.json")
    bounds, noise = agreed.bounds, []
    for before, after in pairwise(models):
        encoded = [
            clipping.encode_clipped(x, bounds.client_bound, bounds.fractional_bits) for x in updates(before, task)[0]
        ]
        moved = (after - before) * agreed.normaliser(frozenset()) * 2.0**bounds.fractional_bits
        noise.append(np.rint(moved).astype(np.int64) - encoded[0] - encoded[1])
    std, generator = np.sqrt(2) * bounds.noise_std, np.random.default_rng(1)
    assert rounded_normal_p_value(np.concatenate(noise), std, generator) > ALPHA
    assert rounded_normal_p_value(np.concatenate(noise), 1.3 * std, generator) < ALPHA


def check_replies(folder: Path, models: list[np.ndarray], task: ModuleType) -> None:
    """An honest client said its name once, then sent sealed bytes: no metric, no count, no parameter.

    All have one length before a client has heard of a round, and one after it, with a head.
    """
    lengths = set()
    for client, index in (("bank", 0), ("shop", 1)):
        records = [json.loads((folder / client / f"reply-{number}.json").read_text()) for number in range(ROUNDS + 1)]
        assert records == [{"precad": ["name", "proof"]}, *[{"precad": ["reply"]}] * ROUNDS]
        for number, model in enumerate(models[:-1], 1):
            sent = (folder / client / f"reply-{number}.bytes").read_bytes()
            lengths.add((number > 1, len(sent)))
            changes, losses = updates(model, task)
            for secret in (losses[index], 600.0, *changes[index][:20], *(model + changes[index])[:20]):
                for kind in (np.float32, np.float64):
                    assert kind(secret).tobytes() not in sent
    assert len(lengths) == 2
