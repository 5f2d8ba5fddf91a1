"""Training on one machine: Algorithm 1 of the paper, round by round, over simulated clients and two servers."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.errors import PrecadError, Rejected
from precad.learning import protocols
from precad.learning.evaluation import Score, evaluate, load_parameters, read_parameters
from precad.learning.gradients import PerRecordGradients
from precad.learning.hyperparameters import Hyperparameters, Normalise, Protocol
from precad.learning.mistakes import Attack, explained, sent_by, usable
from precad.learning.progress import Progress
from precad.learning.protocols import Updates
from precad.learning.randomness import Randomness
from precad.learning.records import Records, as_records
from precad.mpc import fixed_point
from precad.mpc.prg import Context, Digest, Purpose, check_name, digest, vector_digest
from precad.params import Round, Unit
from precad.privacy import clipping
from precad.privacy.accounting import Adversary
from precad.privacy.ledger import Ledger, Terms
from precad.privacy.sampling import poisson_sample
from precad.protocol.update import Model, next_model

Floats = NDArray[np.float64]
Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → the mean loss of the batch."""
GROUP = 16
"""How many clients compute at a time: memory does not grow with their number."""


@dataclass(frozen=True)
class Task:
    """What is learnt, and by whom."""

    model: nn.Module
    loss: Loss
    clients: Mapping[str, Records]
    test: Records | None
    attacks: Mapping[str, Attack]
    """What each malicious client makes of its update."""

    def __post_init__(self) -> None:
        if not self.clients:
            raise ValueError("there are no clients: give at least one data set")
        for name in self.clients:
            check_name(name)
        if self.test is not None and len(self.test) == 0:
            raise ValueError("the test set has no records")
        unknown = set(self.attacks) - set(self.clients)
        if unknown:
            raise ValueError(f"{min(unknown)} is malicious but not among the clients")

    @classmethod
    def of_datasets(
        cls,
        model: nn.Module,
        loss: Loss,
        clients: Mapping[str, Any],
        test: Any = None,
        attacks: Mapping[str, Attack] = {},
    ) -> "Task":
        """From torch data sets."""
        records = {name: as_records(name, data) for name, data in clients.items()}
        return cls(model, loss, records, None if test is None else as_records("the test set", test), attacks)


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
        task: Task,
        hyperparameters: Hyperparameters,
        randomness: Randomness,
        *,
        progress: Progress | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.task, self.hyperparameters, self.randomness = task, hyperparameters, randomness
        self._gradients = PerRecordGradients(task.model, task.loss, device=usable(device))
        self.names = tuple(task.clients)
        self._records = sum(map(len, task.clients.values()))
        self.params = hyperparameters.params(self._gradients.dim, len(self.names))
        self._digest = _task_digest(task, hyperparameters, self.params.digest)
        self._cap = hyperparameters.most_participations(self.params.dim)
        if progress is None:
            model = Model.initial(read_parameters(task.model), hyperparameters.optimiser)
            progress = Progress(model, 0, np.zeros(len(self.names), np.int64))
        else:
            progress.check(self.params.dim, len(self.names), hyperparameters)
        self.progress = progress
        self._ledger: Ledger | None = None
        self._rehearse()

    def keep_ledger(self, open_ledger: Callable[[Terms], Ledger]) -> None:
        """Count every round to come in a ledger, before anything of it is opened. Only PRECAD's rounds have one."""
        if self.hyperparameters.protocol is Protocol.PRECAD:
            self._ledger = open_ledger(self._terms())
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
        round_ = Round(self.params, self._digest, number, _model_digest(model.theta))
        aggregate = self._aggregate(round_, names, model.theta, watch)
        watch.lap("protocol")
        update = aggregate.total / self._normaliser(aggregate.accepted)
        rate = self.hyperparameters.learning_rate_at(number)
        moved = next_model(model, update, rate, self.hyperparameters.optimiser)
        if not np.abs(moved.theta).max() < np.finfo(np.float32).max:  # true for NaN
            raise PrecadError(f"the model diverged in round {number + 1}: use a learning rate below {rate:g}")
        participations = self.progress.participations.copy()
        participations[selected] += 1
        self.progress = Progress(moved, number + 1, participations)
        return Outcome(number + 1, names, aggregate.rejected, float(np.linalg.norm(aggregate.total)), watch.seconds)

    def epsilon(self, adversary: Adversary) -> float:
        """What the run has cost the client that took part most often."""
        most = int(self.progress.participations.max())
        return self.hyperparameters.epsilon(adversary, most, self.params.dim)

    def score(self) -> Score:
        """The present model on the test set."""
        if self.task.test is None:
            raise ValueError("there is no test set")
        return evaluate(self.trained_model(), self.task.loss, self.task.test)

    def trained_model(self) -> nn.Module:
        """The task's model, with the present parameters."""
        load_parameters(self.task.model, self.progress.model.theta)
        return self.task.model

    def _select(self, number: int) -> NDArray[np.int64]:
        """Line 2: each client with probability q; who has spent its budget sits out."""
        stream = self.randomness.stream(Purpose.SELECTION, Context(_SAMPLES, number, "servers"))
        selected = poisson_sample(stream, len(self.names), self.hyperparameters.client_rate)
        return selected[self.progress.participations[selected] < self._cap]

    def _aggregate(
        self, round_: Round, names: tuple[str, ...], theta: Floats, watch: "_Stopwatch"
    ) -> protocols.Aggregate:
        """Algorithm 2 at the selected clients, a few at a time; Algorithm 1, lines 3 to 5, at the servers."""

        def groups() -> Iterator[Updates]:
            counted = self._count(round_.number, names)
            for start in range(0, len(names), GROUP):
                group = names[start : start + GROUP]
                watch.lap("protocol")
                with explained(f"the updates of round {round_.number + 1} cannot be computed"):
                    deltas = self._local_updates(round_, group, theta)
                watch.lap("gradients")
                yield deltas
            watch.lap("protocol")
            counted.result()
            watch.lap("ledger")

        expected = self.hyperparameters.client_rate * len(self.names)
        return protocols.aggregate(self.hyperparameters, round_, groups(), self.randomness, expected)

    def _count(self, number: int, names: tuple[str, ...]) -> Future[object]:
        """Count the round in the ledger while the clients compute: the disk must confirm it before the servers open."""
        if self._ledger is None:
            return _writer().submit(lambda: None)
        return _writer().submit(self._ledger.record, number, names)

    def _local_updates(self, round_: Round, names: tuple[str, ...], theta: Floats) -> Updates:
        """Algorithm 2, lines 2 to 7."""
        f, bound, attacks = self.params.fractional_bits, self.params.client_bound, self.task.attacks
        sums = self._local_sums(round_, names, theta)
        deltas = dict(zip(names, -(fixed_point.decode(sums, f) if sums.dtype == np.int64 else sums), strict=True))
        malicious = {
            name: sent_by(name, attacks[name], deltas[name], round_.number) for name in names if name in attacks
        }
        honest = {name: delta for name, delta in deltas.items() if name not in attacks}
        if self.hyperparameters.protocol is Protocol.PLAIN:
            return Updates({}, honest | malicious)
        clipped = protocols.on_both_cores(lambda delta: clipping.encode_clipped(delta, bound, f), honest.values())
        return Updates(dict(zip(honest, clipped, strict=True)), malicious)

    def _local_sums(self, round_: Round, names: tuple[str, ...], theta: Floats) -> NDArray[Any]:
        """Algorithm 2, lines 2 to 6, for several clients in one pass: the sums of their samples' gradients."""
        samples = {}
        for name in names:
            stream = self.randomness.stream(Purpose.SAMPLE, Context(_SAMPLES, round_.number, name))
            samples[name] = poisson_sample(stream, len(self.task.clients[name]), self.hyperparameters.record_rate)
        return self._sums(samples, theta, round_.number)

    def _sums(self, samples: Mapping[str, NDArray[np.int64]], theta: Floats, number: int) -> NDArray[Any]:
        """Each client's sum over its sample, clipped record by record if the unit is a record."""
        private = self.hyperparameters.protocol is not Protocol.PLAIN
        clip = private and self.hyperparameters.unit is Unit.RECORD
        drawn = [self.task.clients[name].batch(indices) for name, indices in samples.items() if len(indices)]
        if not drawn:
            return np.zeros((len(samples), self.params.dim), np.int64 if clip else np.float64)
        inputs, targets = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        batch = theta, inputs, targets, np.array([len(indices) for indices in samples.values()], np.int64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.randomness.torch_seed("dropout", number))
            if not clip:
                return self._gradients.sums(*batch, finite=private)
            bound, f = self.params.record_bound, self.params.fractional_bits
            return self._gradients.clipped_sums(*batch, record_bound=bound, fractional_bits=f)

    def _rehearse(self) -> None:
        """Take one record of some clients, and of the test set, through the model: mistakes show before the run."""
        first, theta = np.zeros(1, np.int64), read_parameters(self.task.model)
        samples = dict.fromkeys(self.names[:GROUP], first)
        with explained(f"the model and the loss fail on the first records of {', '.join(list(samples)[:3])}, …"):
            self._sums(samples, theta, 0)
        if self.task.test is not None:
            with explained("the model and the loss fail on the test set"):
                evaluate(self.task.model, self.task.loss, self.task.test, limit=1)

    def _normaliser(self, accepted: frozenset[str]) -> float:
        """N: of all clients and their rate, or of those that took part (of at least one record)."""
        rate = self.hyperparameters.record_rate
        if self.hyperparameters.normalise is Normalise.CONSTANT:
            return self.hyperparameters.client_rate * rate * self._records
        return rate * max(1, sum(len(self.task.clients[name]) for name in accepted))

    def _terms(self) -> Terms:
        sigma = self.hyperparameters.noise_seen(Adversary.SERVER)
        rate = self.hyperparameters.record_rate if self.params.unit is Unit.RECORD else 1.0
        return Terms(self._digest.hex(), self.params.dim, sigma or math.inf, rate, self.hyperparameters.delta)


_SAMPLES = digest(b"precad samples")
"""In the place of a task's digest: with one seed, all protocols select the same clients and records."""


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


def _task_digest(task: Task, hyperparameters: Hyperparameters, params: Digest) -> Digest:
    """What the rounds of a run are bound to."""
    sizes = (f"{name}={len(records)}".encode() for name, records in task.clients.items())
    return digest(b"precad task", params, repr(hyperparameters).encode(), *sizes)


def _model_digest(theta: Floats) -> Digest:
    return digest(b"precad model", vector_digest(theta.view(np.uint64)))


@cache
def _writer() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "ledger")
