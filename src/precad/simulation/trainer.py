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

from precad.errors import PrecadError, Rejected
from precad.gradients.engine import PerRecordGradients
from precad.mpc.prg import Context, Digest, Purpose, digest
from precad.privacy.epsilon import epsilon
from precad.privacy.ledger import Ledger
from precad.privacy.sampling import poisson_sample
from precad.privacy.terms import Adversary, Terms
from precad.protocol.digests import model_digest
from precad.protocol.params import Round
from precad.protocol.update import Model, next_model
from precad.settings import Hyperparameters, Protocol
from precad.simulation.aggregators import Aggregate, Aggregator, Updates
from precad.simulation.clients import GROUP, SAMPLES, SimulatedClients
from precad.simulation.evaluation import Score, evaluate, load_parameters, read_parameters
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
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
    seconds: Mapping[str, float]
    """Of each stage: gradients, protocol, ledger."""


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
        gradients = PerRecordGradients(task.model, task.loss, device=usable(device))
        self.names = tuple(task.clients)
        self._sizes = {name: len(records) for name, records in task.clients.items()}
        self.params = hyperparameters.params(gradients.dim, len(self.names))
        self._clients = SimulatedClients(task.clients, task.attacks, hyperparameters, gradients, randomness)
        self._aggregator = Aggregator(hyperparameters, randomness, len(self.names), ideal=ideal)
        self._digest = _task_digest(task, hyperparameters, self.params.digest)
        self._terms = hyperparameters.terms(self.params.dim)
        self._cap = hyperparameters.most_participations(self.params.dim)
        if progress is None:
            model = Model.initial(read_parameters(task.model), hyperparameters.optimiser)
            progress = Progress(model, 0, np.zeros(len(self.names), np.int64))
        else:
            progress.check(self.params.dim, len(self.names), hyperparameters)
        self.progress = progress
        self._ledger: Ledger | None = None
        self._rehearse()

    def keep_ledger(self, open_ledger: Callable[[str, Terms], Ledger]) -> None:
        """Count every round to come in a ledger, before anything of it is opened. Only PRECAD's rounds have one."""
        if self.hyperparameters.protocol is Protocol.PRECAD:
            self._ledger = open_ledger(self._digest.hex(), self._terms)
            counted = self._ledger.participations()
            for name, count in zip(self.names, self.progress.participations.tolist(), strict=True):
                if counted.get(name, 0) < count:
                    raise PrecadError(
                        f"the ledger lacks rounds of the run: it counts {counted.get(name, 0)} of {name}, which took "
                        f"part in {count}"
                    )

    def rounds(self) -> Iterator[Outcome]:
        """Play what is left of the run."""
        while self.progress.round < self.hyperparameters.rounds:
            yield self.play()

    def play(self) -> Outcome:
        """One round: Algorithm 1, lines 2 to 6."""
        number, model, watch = self.progress.round, self.progress.model, _Stopwatch()
        selected = self._select(number)
        names = tuple(self.names[i] for i in selected)
        round_ = Round(self.params, self._digest, number, model_digest(model.theta))
        aggregate = self._aggregate(round_, names, model.theta, watch)
        watch.lap("protocol")
        schedule = self.hyperparameters.schedule
        normaliser = self.hyperparameters.normaliser(self._sizes, aggregate.accepted)
        rate = schedule.learning_rate_at(number, self.hyperparameters.rounds)
        moved = next_model(model, aggregate.total, normaliser, rate, schedule.optimiser)
        if not np.abs(moved.theta).max() <= LARGEST:  # true for NaN
            raise DivergedError(f"the model diverged in round {number + 1}: use a learning rate below {rate:g}")
        participations = self.progress.participations.copy()
        participations[selected] += 1
        self.progress = Progress(moved, number + 1, participations)
        return Outcome(number + 1, names, aggregate.rejected, float(np.linalg.norm(aggregate.total)), watch.seconds)

    def epsilon(self, adversary: Adversary) -> float:
        """What the run has cost the client that took part most often."""
        return epsilon(self._terms, adversary, int(self.progress.participations.max()))

    def score(self) -> Score:
        """The present model on the test set."""
        if self.task.test is None:
            raise ValueError("there is no test set")
        return evaluate(self.trained_model(), self.task.loss, self.task.test)

    def backdoor_score(self) -> Score:
        """The present model on the attackers' test records."""
        if self.task.backdoor is None:
            raise ValueError("there is no backdoor to test for")
        return evaluate(self.trained_model(), self.task.loss, self.task.backdoor)

    def trained_model(self) -> nn.Module:
        """The task's model, with the present parameters."""
        load_parameters(self.task.model, self.progress.model.theta)
        return self.task.model

    def _select(self, number: int) -> NDArray[np.int64]:
        """Line 2: each client with probability q; who has spent its budget sits out."""
        stream = self.randomness.stream(Purpose.SELECTION, Context(SAMPLES, number, "servers"))
        selected = poisson_sample(stream, len(self.names), self.hyperparameters.client_rate)
        return selected[self.progress.participations[selected] < self._cap]

    def _aggregate(self, round_: Round, names: tuple[str, ...], theta: Floats, watch: "_Stopwatch") -> Aggregate:
        """Algorithm 2 at the selected clients, a few at a time; Algorithm 1, lines 3 to 5, at the servers.

        The round is counted before anything of it is opened. The ledger writes while the clients compute.
        """
        counted = self._count(round_.number, names)
        collected = self._aggregator.collect(round_)
        updates = self._clients.updates(round_, names, theta)
        watch.lap("protocol")
        while group := _next(updates, f"the updates of round {round_.number + 1} cannot be computed"):
            watch.lap("gradients")
            collected.add(group)
            watch.lap("protocol")
        counted.result()
        watch.lap("ledger")
        return collected.open()

    def _count(self, number: int, names: tuple[str, ...]) -> Future[object]:
        """Begin to count the round in the ledger; the result comes when the disk has confirmed it."""
        if self._ledger is None:
            return _writer().submit(lambda: None)
        return _writer().submit(self._ledger.record, number, names)

    def _rehearse(self) -> None:
        """Take one record of some clients, and of the test set, through the model: mistakes show before the run."""
        some = self.names[:GROUP]
        with explained(f"the model and the loss fail on the first records of {', '.join(some[:3])}, …"):
            self._clients.rehearse(some, read_parameters(self.task.model))
        if self.task.test is not None:
            with explained("the model and the loss fail on the test set"):
                evaluate(self.task.model, self.task.loss, self.task.test, limit=1)


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


def _task_digest(task: Problem, hyperparameters: Hyperparameters, params: Digest) -> Digest:
    """What the rounds of a run are bound to."""
    sizes = (f"{name}={len(records)}".encode() for name, records in task.clients.items())
    said = repr(hyperparameters).replace("<Adversary.", "<Noise.")  # its earlier name: old runs go on, seeds repeat
    return digest(b"precad task", params, said.encode(), *sizes)


@cache
def _writer() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "ledger")
