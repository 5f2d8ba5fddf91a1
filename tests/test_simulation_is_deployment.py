"""Simulation and deployment are one: the same task, secrets and updates give the same models, to the bit.

``precad.train`` plays a task with simulated clients. Then server A, server B and every client play it again, each on a
store of its own, over a transport in memory. What is drawn at random is handed to both: the selection, the clients'
seeds and salts, the servers' nonces and noise. Everything else each side computes by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

import precad
from precad.deployment import receipts, sealing
from precad.deployment.client import Client, Joined
from precad.deployment.helper import HelperServer
from precad.deployment.leader import Leader
from precad.deployment.parties import Parties
from precad.deployment.store import Store
from precad.deployment.task import Task, Training
from precad.mpc.prg import Context, Digest, Purpose
from precad.mpc.secret import Secret
from precad.privacy.sampling import poisson_sample
from precad.privacy.terms import Adversary
from precad.protocol.codec import Blob
from precad.protocol.messages import Sealed, encode
from precad.protocol.params import Normalise, Round, Unit, Validation
from precad.protocol.round import ServerSecrets, run_round
from precad.protocol.states import Role
from precad.protocol.submission import ClientSecrets, Submission
from precad.protocol.update import Optimiser
from precad.settings import Hyperparameters
from precad.simulation.clients import SAMPLES, SimulatedClients
from precad.simulation.evaluation import read_parameters
from precad.simulation.problem import AttackContext
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Outcome, Trainer

Floats = NDArray[np.float64]

SEED = 6
"""Of 8 rounds, at least one has nobody in it, and several have the malicious client in them: asserted below."""
ROUNDS, DIM = 8, 8
HONEST, MALICIOUS = ("bank", "clinic"), "thief"
NAMES = (*HONEST, MALICIOUS)
BASE = Hyperparameters(
    rounds=ROUNDS,
    client_rate=0.5,
    record_rate=0.5,
    record_bound=1.0,
    client_bound=4.0,
    noise_multiplier=1.5,
    learning_rate=2.0,
    final_learning_rate=0.25,
)


@dataclass
class Played:
    """What a run of ``precad.train`` did."""

    models: list[Floats]
    outcomes: list[Outcome] = field(default_factory=list)
    updates: dict[tuple[int, str], Floats] = field(default_factory=dict)
    """Before a client clips them to C."""
    forged: dict[tuple[int, str], Submission] = field(default_factory=dict)


@pytest.mark.parametrize("optimiser", Optimiser)
@pytest.mark.parametrize("normalise", Normalise)
@pytest.mark.parametrize("unit", Unit)
def test_every_unit_normaliser_and_optimiser(
    unit: Unit, normalise: Normalise, optimiser: Optimiser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(BASE, unit=unit, normalise=normalise, optimiser=optimiser)
    played = compare(settings, tmp_path, monkeypatch)
    empty = [number for number, outcome in enumerate(played.outcomes) if not outcome.selected]
    assert empty, "no round without anybody: choose another seed"
    for number in empty:
        stays = np.array_equal(played.models[number], played.models[number + 1])
        assert stays == (normalise is Normalise.REALISED)
    assert sum(MALICIOUS in outcome.rejected for outcome in played.outcomes) >= 2


@pytest.mark.parametrize(
    "change", [{"noise": Adversary.CLIENTS}, {"validation": Validation.NONE}, {"client_rate": 1.0}]
)
def test_the_other_variants(change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(replace(BASE, **change), tmp_path, monkeypatch)


def test_a_client_over_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sits out, in both: the budget pays for two rounds, and for no third."""
    settings = replace(BASE, client_rate=0.75)
    two, three = (settings.epsilon(Adversary.SERVER, count, DIM) for count in (2, 3))
    played = compare(replace(settings, budget=(two + three) / 2), tmp_path, monkeypatch)
    for name in HONEST:
        assert sum(name in outcome.selected for outcome in played.outcomes) == 2


def compare(settings: Hyperparameters, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Play the task in both ways, and compare selection, verdicts and models of every round."""
    torch.manual_seed(SEED)
    network = torch.nn.Linear(3, 2)
    data = {name: _records(size) for name, size in zip(NAMES, (20, 30, 10), strict=True)}
    initial = read_parameters(network)
    parties = _parties(settings, initial, {name: len(records) for name, records in data.items()})
    played = _simulate(settings, parties.task, network, data, initial, monkeypatch)
    assert len(played.models) == ROUNDS + 1
    deployed = _Deployed(settings, parties, folder, played, monkeypatch)
    for number, outcome in enumerate(played.outcomes):
        model = deployed.round(number, outcome)
        assert model.tobytes() == played.models[number + 1].tobytes(), f"round {number}"
    return played


def _records(size: int) -> TensorDataset:
    inputs = torch.randn(size, 3)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def _parties(settings: Hyperparameters, initial: Floats, records: Mapping[str, int]) -> Parties:
    training = Training(
        client_rate=settings.client_rate,
        record_rate=settings.record_rate,
        rounds=settings.rounds,
        schedule=settings.schedule,
        delta=settings.delta,
        budget=settings.budget or 1e3,
        participations=settings.most_participations(initial.size),
        normalise=settings.normalise,
    )
    return Parties.new(initial, settings.params(initial.size, 1), training, records)


def _attack(context: AttackContext) -> Floats:
    return np.full(context.theta.size, 2 * context.round.params.client_bound)


def _simulate(
    settings: Hyperparameters,
    task: Task,
    network: torch.nn.Module,
    data: Mapping[str, TensorDataset],
    initial: Floats,
    monkeypatch: pytest.MonkeyPatch,
) -> Played:
    """``precad.train``, watched; its rounds are bound to the deployed task's digest."""
    played = Played([initial])
    play, sums = Trainer.play, SimulatedClients._sums

    def watched_play(self: Trainer) -> Outcome:
        played.outcomes.append(play(self))
        played.models.append(self.progress.model.theta)
        return played.outcomes[-1]

    def watched_sums(self: SimulatedClients, round_: Round, names: tuple[str, ...], theta: Floats) -> NDArray[Any]:
        found = sums(self, round_, names, theta)
        for name, x in zip(names, self._decoded(round_, -found), strict=True):
            played.updates[round_.number, name] = x
        return found

    def watched_round(
        round_: Round, submissions: Mapping[str, Submission], secrets_a: ServerSecrets, secrets_b: ServerSecrets
    ) -> Any:
        if MALICIOUS in submissions:
            played.forged[round_.number, MALICIOUS] = submissions[MALICIOUS]
        return run_round(round_, submissions, secrets_a, secrets_b)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "play", watched_play)
        patch.setattr(SimulatedClients, "_sums", watched_sums)
        patch.setattr("precad.simulation.aggregators.run_round", watched_round)
        patch.setattr("precad.simulation.trainer.task_digest", lambda *_: task.digest)
        loss = torch.nn.functional.cross_entropy
        precad.train(network, loss, data, settings, attacks={MALICIOUS: _attack}, seed=SEED)
    return played


class _Deployed:
    """Server A, server B and the clients of the task, with the secrets of the simulation."""

    def __init__(
        self,
        settings: Hyperparameters,
        parties: Parties,
        folder: Path,
        played: Played,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        task, initial, signing = parties.task, parties.model, {role: parties.servers[role].signing for role in Role}
        self.settings, self.task, self.played = settings, task, played
        self.keys = {name: own.signing for name, own in parties.clients.items()}
        self.randomness = Randomness.repeatable(SEED)
        helper = HelperServer(task, signing[Role.B], folder / "b.db", initial, durable=False)
        self.leader = Leader(task, signing[Role.A], folder / "a.db", initial, helper, durable=False)
        self.clients = {
            name: Client(task, name, key, folder / f"{name}.db", durable=False) for name, key in self.keys.items()
        }
        monkeypatch.setattr(Task, "check_minimum", lambda *_: None)  # a simulation opens a round of nobody, too
        self._hand_over(monkeypatch)

    def round(self, number: int, simulated: Outcome) -> Floats:
        """One round over the whole deployment; the selection and the verdicts are the simulation's."""
        assert self.leader.start_round() == number
        invited = self.leader.selected()
        assert invited & set(HONEST) == set(simulated.selected) & set(HONEST)
        for name in sorted(invited & set(simulated.selected)):
            assert self.leader.submit(self._reply(number, name)) is None
        model = self.leader.finish_round()
        verdicts = receipts.parse(self.leader.store.log()[-1]).events.verdicts
        assert {each.client for each in verdicts if each.verdict != receipts.VALID} == set(simulated.rejected)
        return model

    def _reply(self, number: int, name: str) -> bytes:
        client = self.clients[name]
        joined = client.join(self.leader.invitation(), self.leader.model())
        if name == MALICIOUS:
            return self._sealed(joined, self.played.forged[number, name])
        self.sending = self._secrets_of(number, name)
        return client.answer(joined, self.played.updates[number, name])

    def _sealed(self, joined: Joined, sent: Submission) -> bytes:
        """What a malicious client does in place of :meth:`Client.answer`."""
        return encode(
            Sealed(
                Blob(sent.header),
                sealing.sign_header(self.keys[MALICIOUS], sent.header),
                sealing.seal(joined.sealing_a, sent.part_a, sent.header, self.task.server_a),
                sealing.seal(joined.sealing_b, sent.part_b, sent.header, self.task.server_b),
            )
        )

    def _secrets_of(self, number: int, name: str) -> Iterator[ClientSecrets]:
        attempt = 0
        while True:
            yield self.randomness.client(number, name, attempt)
            attempt += 1

    def _hand_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the simulation's random choices where each party draws its own."""

        def secrets_of(store: Store, number: int) -> ServerSecrets:
            role = Role.A if store is self.leader.store else Role.B
            return self.randomness.server(number, role.value)

        def own_nonce(store: Store, number: int) -> Secret:
            return secrets_of(store, number).nonce

        def own_noise(store: Store, number: int, _outcome: Digest) -> Secret:
            return secrets_of(store, number).noise

        def select(leader: Leader) -> frozenset[str]:
            last = leader.last()
            number = 0 if last is None else last.number + 1
            stream = self.randomness.stream(Purpose.SELECTION, Context(SAMPLES, number, "servers"))
            chosen = poisson_sample(stream, len(NAMES), self.settings.client_rate)
            return leader.within_cap(frozenset(NAMES[i] for i in chosen))

        monkeypatch.setattr("precad.deployment.server.own_nonce", own_nonce)
        monkeypatch.setattr("precad.deployment.replay.own_nonce", own_nonce)
        monkeypatch.setattr("precad.deployment.replay.own_noise", own_noise)
        monkeypatch.setattr(ClientSecrets, "fresh", lambda: next(self.sending))
        monkeypatch.setattr(Leader, "select", select)
