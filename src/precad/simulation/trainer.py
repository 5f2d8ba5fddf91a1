"""Training on one machine: Algorithm 1 of the paper, round by round, over simulated clients and two servers."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from precad.data.records import Records
from precad.errors import PrecadError, Rejected
from precad.gradients.engine import PerRecordGradients
from precad.gradients.models import copied
from precad.mpc.prg import Context, Purpose
from precad.privacy.epsilon import epsilon
from precad.privacy.ledger import Entry, Ledger, Origin
from precad.privacy.sampling import poisson_sample
from precad.privacy.terms import Adversary, Terms
from precad.protocol.params import Round
from precad.protocol.update import Model, next_model
from precad.settings import Hyperparameters, Protocol, task_digest
from precad.simulation.aggregators import Aggregate, Aggregator, Updates
from precad.simulation.clients import GROUP, SAMPLES, SimulatedClients
from precad.simulation.evaluation import Score, evaluate, load_parameters, read_parameters, rehearse
from precad.simulation.problem import Problem
from precad.simulation.randomness import Fingerprint, Randomness
from precad.simulation.shared_noise import SharedNoise
from precad.simulation.user_code import explained, usable

Floats = NDArray[np.float64]
LARGEST = float(np.finfo(np.float32).max)
"""Of a parameter: the clients compute in this precision."""


class DivergedError(PrecadError):
    """The model is no longer finite: the learning rate is too high, or an attack has won."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands between two rounds: all that it needs to go on."""

    model: Model
    round: int
    """How many rounds are done."""
    participations: NDArray[np.int64]
    """T_i so far, in the order of the clients."""

    def check(self, dim: int, clients: int, hyperparameters: Hyperparameters) -> None:
        """Refuse, by a ``ValueError``, what cannot be where a run of these values stood."""
        model, counts = self.model, self.participations
        fresh = Model.initial(np.zeros(dim), hyperparameters.optimiser)
        pairs = ((model.theta, fresh.theta), (model.first, fresh.first), (model.second, fresh.second))
        fits = all(stored.dtype == np.float64 and stored.shape == expected.shape for stored, expected in pairs)
        if not fits or counts.dtype != np.int64 or counts.shape != (clients,):
            raise ValueError("the run was made with another model, or with other clients")
        if not all(np.isfinite(stored).all() for stored, _ in pairs):
            raise ValueError(f"the model of round {self.round} is not finite")
        within = 0 <= model.steps <= self.round <= hyperparameters.rounds
        if not within or counts.min() < 0 or counts.max() > self.round:
            raise ValueError(f"a run of {hyperparameters.rounds} rounds cannot stand like this at round {self.round}")


@dataclass(frozen=True)
class Outcome:
    """One round."""

    round: int
    """Counted from 1."""
    selected: tuple[str, ...]
    rejected: Mapping[str, Rejected]
    update_norm: float
    """‖noisy sum‖: what the servers see anyway."""
    noises: int | None
    """How many clients added noise of their own, where that is the protocol: malicious ones do not."""
    fingerprint: str
    """Of the honest clients' updates, before any noise: a round that is played again must have the same."""
    seconds: Mapping[str, float]
    """Of each stage: gradients, protocol, ledger."""
    link: str | None = None
    """The ledger's, where there is one."""


class Trainer:
    """Plays the rounds of one run. ``progress`` is the last one's end; it is replaced, never changed."""

    def __init__(
        self,
        task: Problem,
        hyperparameters: Hyperparameters,
        randomness: Randomness,
        *,
        progress: Progress | None = None,
        device: torch.device | str = "cpu",
        ideal: bool = False,
    ) -> None:
        """``ideal`` leaves out the cryptography (see ``Aggregator``): the model is the same to the bit."""
        self.task, self.hyperparameters, self.randomness = task, hyperparameters, randomness
        self._gradients = gradients = PerRecordGradients(task.model, task.loss, device=usable(device))
        self._model = copied(task.model)
        self.names = tuple(task.clients)
        self.records = {name: len(records) for name, records in task.clients.items()}
        self.params = hyperparameters.params(gradients.dim, len(self.names))
        self.clients = SimulatedClients(task.clients, task.attacks, hyperparameters, gradients, randomness)
        self.aggregator = Aggregator(hyperparameters, randomness, len(self.names), ideal=ideal)
        self._digest = task_digest(hyperparameters, self.params, self.records)
        self._terms = hyperparameters.terms(self.params.dim)
        self._cap = hyperparameters.most_participations(self.params.dim, len(self.names))
        if progress is None:
            model = Model.initial(read_parameters(task.model), hyperparameters.optimiser)
            progress = Progress(model, 0, np.zeros(len(self.names), np.int64))
        else:
            progress.check(self.params.dim, len(self.names), hyperparameters)
        self.progress = progress
        self._shared = self._shared_noise() if hyperparameters.protocol is Protocol.DDP else None
        self._ledger: Ledger | None = None
        self._shown: Mapping[int, str | None] = {}
        self._rehearse()

    def keep_ledger(self, open_ledger: Callable[[str, Terms, Origin], Ledger]) -> None:
        """Count every round to come in a ledger, before anything of it is opened. Only PRECAD's rounds have one."""
        if self.hyperparameters.protocol is Protocol.PRECAD:
            origin = Origin(unit=self.hyperparameters.unit.value, private=self.randomness.seed is None)
            self._ledger = open_ledger(self._digest.hex(), self._terms, origin)
            counted = self._ledger.participations()
            for name, count in zip(self.names, self.progress.participations.tolist(), strict=True):
                if counted.get(name, 0) < count:
                    raise PrecadError(
                        f"the ledger lacks rounds of the run: it counts {counted.get(name, 0)} of {name}, which took "
                        f"part in {count}"
                    )

    def repeat(self, shown: Mapping[int, str | None]) -> None:
        """Refuse, before it is opened, a round that was shown before the run was cut off and now has other updates.

        Args:
            shown: The fingerprints of the rounds of which anything was shown, counted from 1.
        """
        self._shown = shown

    def tell_uncounted(self) -> None:
        """Warn of records that do not count with the present parameters; refuse if none does."""
        self.clients.tell_uncounted(self.task.test, self.progress.model.theta)

    def rounds(self) -> Iterator[Outcome]:
        """Play what is left of the run."""
        while self.progress.round < self.hyperparameters.rounds:
            yield self.play()

    def play(self) -> Outcome:
        """One round: Algorithm 1, lines 2 to 6."""
        number, model, watch = self.progress.round, self.progress.model, _Stopwatch()
        selected = self._select(number, self.progress.participations)
        names = tuple(self.names[i] for i in selected)
        round_ = Round(self.params, self._digest, number, model.digest, self.randomness.nonces(number))
        fingerprint = self.randomness.fingerprint(number)
        aggregate, link = self._aggregate(round_, names, model.theta, fingerprint, watch)
        watch.lap("protocol")
        schedule = self.hyperparameters.schedule
        normaliser = self.hyperparameters.normaliser(self.records, aggregate.accepted)
        rate = schedule.learning_rate_at(number, self.hyperparameters.rounds)
        moved = next_model(model, aggregate.total, normaliser, rate, schedule.optimiser)
        if not np.abs(moved.theta).max() <= LARGEST:  # true for NaN
            raise DivergedError(f"the model diverged in round {number + 1}: use a learning rate below {rate:g}")
        participations = self.progress.participations.copy()
        participations[selected] += 1
        if self._shared is not None:
            self._shared.count(selected)
        self.progress = Progress(moved, number + 1, participations)
        norm = float(np.linalg.norm(aggregate.total))
        by_clients = self.hyperparameters.protocol in (Protocol.LDP, Protocol.DDP)
        noises = sum(name not in self.task.attacks for name in names) if by_clients else None
        return Outcome(number + 1, names, aggregate.rejected, norm, noises, str(fingerprint), watch.seconds, link)

    def epsilon(self, adversary: Adversary) -> float:
        """What the run has cost the client that took part most often; of ``ddp``, any honest client at most."""
        if self._shared is not None:
            return self._shared.epsilon()
        return epsilon(self._terms, adversary, int(self.progress.participations.max()))

    def score(self) -> Score:
        """The present model on the test set."""
        if self.task.test is None:
            raise ValueError("there is no test set")
        return self._score(self.task.test)

    def backdoor_score(self) -> Score:
        """The present model on the attackers' test records."""
        if self.task.backdoor is None:
            raise ValueError("there is no backdoor to test for")
        return self._score(self.task.backdoor)

    def trained_model(self) -> nn.Module:
        """A copy of the task's model, with the present parameters; the task's own stays as it was given."""
        load_parameters(self._model, self.progress.model.theta)
        return self._model

    def _score(self, records: Records) -> Score:
        batches = self._gradients.takes_batches
        return evaluate(self.trained_model(), self.task.loss, records, batches=batches)

    def _shared_noise(self) -> SharedNoise:
        """The noises of the rounds so far: who was selected in them follows from the run's randomness."""
        honest = np.array([name not in self.task.attacks for name in self.names])
        shared, counts = SharedNoise(self.hyperparameters, self.params.dim, honest), np.zeros(len(honest), np.int64)
        for number in range(self.progress.round):
            selected = self._select(number, counts)
            shared.count(selected)
            counts[selected] += 1
        if not np.array_equal(counts, self.progress.participations):
            raise ValueError("the clients' participations are not those that the run's randomness selected")
        return shared

    def _select(self, number: int, participations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Line 2: each client with probability q; who has spent its budget sits out."""
        stream = self.randomness.stream(Purpose.SELECTION, Context(SAMPLES, number, "servers"))
        selected = poisson_sample(stream, len(self.names), self.hyperparameters.client_rate)
        return selected[participations[selected] < self._cap]

    def _aggregate(
        self, round_: Round, names: tuple[str, ...], theta: Floats, fingerprint: Fingerprint, watch: "_Stopwatch"
    ) -> tuple[Aggregate, str | None]:
        """Algorithm 2 at the selected clients, a few at a time; Algorithm 1, lines 3 to 5, at the servers.

        The round is counted before anything of it is opened. The ledger writes while the clients compute; its link
        comes with the sum.
        """
        counted = self._count(round_.number, names)
        collected = self.aggregator.collect(round_)
        updates = self.clients.updates(round_, names, theta)
        watch.lap("protocol")
        while group := _next(updates, f"the updates of round {round_.number + 1} cannot be computed"):
            watch.lap("gradients")
            for name, x in group.encoded.items():
                fingerprint.add(name, x)
            collected.add(group)
            watch.lap("protocol")
        self._check_repeated(round_.number + 1, str(fingerprint))
        entry = counted.result()
        watch.lap("ledger")
        return collected.open(), None if entry is None else entry.link

    def _count(self, number: int, names: tuple[str, ...]) -> Future[Entry | None]:
        """Begin to count the round in the ledger; the result comes when the disk has confirmed it."""
        if self._ledger is None:
            return _writer().submit(lambda: None)
        return _writer().submit(self._ledger.record, number, names)

    def close_ledger(self) -> None:
        """No further round will be counted."""
        if self._ledger is not None:
            self._ledger.close()

    def _check_repeated(self, number: int, fingerprint: str) -> None:
        """The same noise must not hide two sums: their difference would be in the clear."""
        private = self.randomness.seed is None and self.hyperparameters.protocol is not Protocol.PLAIN
        if private and self._shown.get(number, fingerprint) != fingerprint:
            raise PrecadError(
                f"round {number} was opened before the run was cut off, and its clients' updates are others now: under "
                "the same noise, both sums would show the difference. The data, the code, the versions or the machine "
                "changed, or a data set draws from a generator of its own; begin a new run"
            )

    def _rehearse(self) -> None:
        """Take one record of some clients, and of the test set, through the model: mistakes show before the run."""
        self.clients.rehearse(self.names[:GROUP], read_parameters(self.task.model))
        if self.task.test is not None:
            with explained("the model and the loss fail on the test set"):
                rehearse(self._model, self.task.loss, self.task.test)


def _next(updates: Iterator[Updates], failure: str) -> Updates | None:
    with explained(failure):
        return next(updates, None)


class _Stopwatch:
    """Seconds of each stage of a round."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """What passed since the last lap belongs to ``stage``."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@cache
def _writer() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "ledger")
