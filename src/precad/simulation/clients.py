"""The simulated clients of a round: Algorithm 2 of the paper at the honest ones, anything at the malicious ones."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from precad.data.records import Batch, Read, Records, read
from precad.errors import PrecadError
from precad.gradients.engine import PerRecordGradients
from precad.gradients.kinds import Kinds
from precad.mpc import fixed_point
from precad.mpc.cores import on_usable_cores
from precad.mpc.prg import Context, Purpose, digest
from precad.privacy import clipping
from precad.privacy.sampling import poisson_sample
from precad.protocol.params import Round, Unit
from precad.settings import Hyperparameters, Protocol
from precad.simulation.aggregators import Updates
from precad.simulation.problem import Attack, AttackContext
from precad.simulation.randomness import Randomness, kept_generators
from precad.simulation.uncounted import refuse_none, uncounted, warn
from precad.simulation.user_code import explained

Floats = NDArray[np.float64]
GROUP = 16
"""How many clients compute at a time: memory does not grow with their number."""
REHEARSED = 4
"""How many records of a client are tried before a run."""
SAMPLES = digest(b"precad samples")
"""In the place of a task's digest: with one seed, all protocols select the same clients and records."""


class SimulatedClients:
    """All clients of a run. ``attacks`` says what each malicious one sends."""

    def __init__(
        self,
        records: Mapping[str, Records],
        attacks: Mapping[str, Attack],
        hyperparameters: Hyperparameters,
        gradients: PerRecordGradients,
        randomness: Randomness,
    ) -> None:
        self._records, self._attacks, self._hyperparameters = records, attacks, hyperparameters
        self._gradients, self._randomness = gradients, randomness
        self._kinds = Kinds(gradients)
        self._fractional_bits = fixed_point.choose_fractional_bits(hyperparameters.client_bound)
        self._sizes = {name: len(held) for name, held in records.items()}

    def updates(self, round_: Round, names: tuple[str, ...], theta: Floats) -> Iterator[Updates]:
        """What the selected clients send, a few at a time: the malicious ones last, as they may know all others."""
        settings, malicious = self._hyperparameters, tuple(name for name in names if name in self._attacks)
        moments = _Moments(theta.size)
        for group in _in_groups(tuple(name for name in names if name not in self._attacks)):
            updates = self._honest(round_, group, theta)
            if malicious:
                moments.add(self._decoded(round_, x) for x in (updates.encoded or updates.raw).values())
            yield updates
        for group in _in_groups(malicious):
            contexts = (
                AttackContext(
                    round=round_,
                    client=name,
                    train=partial(self._delta, round_, name, theta),
                    theta=theta,
                    learning_rate=settings.schedule.learning_rate_at(round_.number, settings.rounds),
                    normaliser=settings.normaliser(self._sizes, names),
                    selected=len(names),
                    attackers=len(malicious),
                    honest_mean=moments.mean,
                    honest_std=moments.std,
                    rng=self._randomness.generator(f"attack {round_.number} {name}"),
                )
                for name in group
            )
            yield Updates({}, {context.client: self._attacked(context) for context in contexts})

    def _honest(self, round_: Round, names: tuple[str, ...], theta: Floats) -> Updates:
        """Algorithm 2, lines 1 to 7."""
        f, bound = round_.params.fractional_bits, round_.params.client_bound
        deltas = -self._sums(round_, names, theta)
        if self._hyperparameters.protocol is Protocol.PLAIN:
            return Updates({}, dict(zip(names, deltas, strict=True)))
        if self._hyperparameters.clip_after_noise:
            return Updates(dict(zip(names, deltas, strict=True)), {})
        floats = self._decoded(round_, deltas)
        clipped = on_usable_cores(lambda delta: clipping.encode_clipped(delta, bound, f), floats)
        return Updates(dict(zip(names, clipped, strict=True)), {})

    def _delta(self, round_: Round, name: str, theta: Floats) -> Floats:
        """Algorithm 2, lines 1 to 6."""
        delta: Floats = self._decoded(round_, -self._sums(round_, (name,), theta))[0]
        return delta

    def _attacked(self, context: AttackContext) -> Floats:
        with explained(f"the attack of {context.client} fails"), kept_generators():
            self._randomness.bind_generators("attack", context.round.number, context.client)
            sent = np.asarray(self._attacks[context.client](context), np.float64)
        if sent.shape != context.theta.shape:
            raise PrecadError(
                f"the attack of {context.client} must return a vector of {context.theta.size} entries, "
                f"got shape {sent.shape}"
            )
        return sent

    def rehearse(self, names: tuple[str, ...], theta: Floats) -> None:
        """Take the first records of these clients through the model; if none counts, all; refuse if none does."""
        for name in names:
            indices = np.arange(min(REHEARSED, self._sizes[name]))
            with explained(f"the model and the loss fail on the first records of {name}"), kept_generators():
                faults = self._kinds.faults(self._read(name, indices, 0), theta)
            if len(faults) < len(indices):
                return
        with kept_generators():
            self._randomness.bind_generators("records", 0, "all")
            refuse_none(uncounted(self._records, self._kinds, theta), self._sizes)

    def tell_uncounted(self, test: Records | None, theta: Floats) -> None:
        """Warn of records that do not count, of the clients and of the test set; refuse if no client has others."""
        with kept_generators():
            self._randomness.bind_generators("records", 0, "all")
            warn(uncounted(self._records, self._kinds, theta), self._sizes)
            if test is not None:
                found = uncounted({"the test set": test}, self._kinds, theta)
                warn(found, {"the test set": len(test), **self._sizes})

    def _sums(self, round_: Round, names: tuple[str, ...], theta: Floats) -> NDArray[Any]:
        """Algorithm 2, lines 1 to 5, for several clients in one pass: the sums of their samples' gradients."""
        samples = {}
        for name in names:
            stream = self._randomness.stream(Purpose.SAMPLE, Context(SAMPLES, round_.number, name))
            samples[name] = poisson_sample(stream, self._sizes[name], self._hyperparameters.record_rate)
        return self._sums_of(samples, theta, round_.number)

    def _sums_of(self, samples: Mapping[str, NDArray[np.int64]], theta: Floats, number: int) -> NDArray[Any]:
        """Clipped ones are integers on the grid, plain ones floats. Records of one kind are computed together."""
        private = self._hyperparameters.protocol is not Protocol.PLAIN
        clip = private and self._hyperparameters.unit is Unit.RECORD
        kinds: dict[object, list[tuple[int, Batch]]] = {}
        sums: NDArray[Any] = np.zeros((len(samples), theta.size), np.int64 if clip else np.float64)
        with kept_generators():
            for client, (name, indices) in enumerate(samples.items()):
                for batch in self._read(name, indices, number).batches:
                    if self._kinds.misfit(batch, theta) is None:
                        kinds.setdefault(batch.kind, []).append((client, batch))
            self._randomness.bind_generators("dropout", number, next(iter(samples)))
            for group in kinds.values():
                inputs = torch.cat([batch.inputs for _, batch in group])
                targets = torch.cat([batch.targets for _, batch in group])
                counts = np.zeros(len(samples), np.int64)
                counts[[client for client, _ in group]] = [len(batch.places) for _, batch in group]
                if clip:
                    bound, f = self._hyperparameters.record_bound, self._fractional_bits
                    sums += self._gradients.clipped_sums(
                        theta, inputs, targets, counts, record_bound=bound, fractional_bits=f
                    )
                else:
                    sums += self._gradients.sums(theta, inputs, targets, counts, finite=private)
        return sums

    def _read(self, name: str, indices: NDArray[np.int64], number: int) -> Read:
        """Some records of a client, with whatever its data set draws at random."""
        self._randomness.bind_generators("records", number, name)
        return read(self._records[name], indices)

    @staticmethod
    def _decoded(round_: Round, x: NDArray[Any]) -> Floats:
        """As floats, what may be on the grid."""
        return fixed_point.decode(x, round_.params.fractional_bits) if x.dtype == np.int64 else x


class _Moments:
    """Mean and standard deviation of vectors that come one by one (Welford, 1962)."""

    def __init__(self, dim: int) -> None:
        self.mean, self._squares, self._count = np.zeros(dim), np.zeros(dim), 0

    @property
    def std(self) -> Floats:
        return np.sqrt(self._squares / max(1, self._count))

    def add(self, vectors: Iterator[Floats]) -> None:
        for x in vectors:
            self._count += 1
            away = x - self.mean
            self.mean = self.mean + away / self._count
            self._squares += away * (x - self.mean)


def _in_groups(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(names), GROUP):
        yield names[start : start + GROUP]
