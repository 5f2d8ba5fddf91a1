"""The gradient of every record, and each client's sum of clipped ones (paper: Algorithm 2, lines 2 to 5).

The records of all clients of a round go through the model together, grouped by client, in chunks of bounded memory.
A chain of known layers (:mod:`precad.gradients.layers`) is differentiated by hand; any other model by ``torch.func``,
which gives the same gradients but for rounding.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.gradients.chunk import ChunkGradients, Code, largest
from precad.gradients.isolation import StateError
from precad.gradients.losses import LossFunction
from precad.gradients.models import check_model, copied
from precad.gradients.rows import raised
from precad.privacy.record_sums import add_clipped, add_unclipped, check_record_bound

__all__ = ["LossFunction", "PerRecordGradients", "check_model"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MIN_RECORDS, MAX_RECORDS = 16, 256
MAX_ENTRIES = 1 << 24
"""Of a chunk: records, and entries of their gradients (64 MiB)."""


class PerRecordGradients:
    """Gradients of ``loss(model(inputs), targets)``, record by record, at any parameters θ.

    θ, and every gradient, is the flat vector of the trainable parameters in the order of ``model.parameters()``.
    Works on a copy of ``model`` as it is now, in its present mode. A record's gradient is that of a fresh copy of
    model and loss on this record alone, with randomness of its own, seeded from torch's generator; it does not depend
    on the values of the others. A model that mixes records, or a loss, is refused by name (PROTOCOL §9). A record that
    raises has gradient 0. ``inputs`` and ``targets`` are tensors with one record per row. Same arguments and torch
    threads, same bits. One object serves one thread at a time, as it keeps its buffers. Chunks are spread over
    ``threads`` (torch's present number by default), and torch itself uses one thread meanwhile.
    """

    dim: int
    """How many parameters are trained."""

    by_hand: bool
    """Whether the model is a chain of known layers."""

    def __init__(
        self, model: nn.Module, loss: LossFunction, *, device: torch.device | str = "cpu", threads: int | None = None
    ) -> None:
        check_model(model)
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self._device = torch.device(device)
        own = copied(model)._apply(self._moved)  # type: ignore[no-untyped-call] # `to` would cast complex buffers
        trained = {name: p for name, p in own.named_parameters() if p.requires_grad}
        self._shapes = {name: p.shape for name, p in trained.items()}
        ends = list(itertools.accumulate(p.numel() for p in trained.values()))
        self._slices = {name: slice(end - p.numel(), end) for (name, p), end in zip(trained.items(), ends, strict=True)}
        self.dim = ends[-1]
        self._code = Code(own, loss)
        self.by_hand = self._code.steps is not None
        workers = (threads or torch.get_num_threads()) if self.by_hand and self._device.type == "cpu" else 1
        self._workers = [ChunkGradients(self._code, self._slices) for _ in range(workers)]

    @property
    def takes_batches(self) -> bool:
        """Whether the model gives for a batch what it gives for each of its records, as far as was seen."""
        return self._code.takes_batches

    def clipped_sums(
        self,
        theta: Floats,
        inputs: Tensor,
        targets: Tensor,
        counts: Integers,
        *,
        record_bound: float,
        fractional_bits: int,
    ) -> Integers:
        """Each client's sum of its records' gradients, each clipped to R and truncated to the grid, as integers.

        Client i owns the next ``counts[i]`` rows, maybe none. One row per client; see ``add_clipped`` for the bound.
        """
        check_record_bound(record_bound, fractional_bits)
        sums = np.zeros((len(counts), self.dim), np.int64)

        def add(gradients: Tensor, client: int) -> None:
            add_clipped(gradients.cpu().numpy(), record_bound, fractional_bits, sums[client])

        self._each_client(theta, inputs, targets, counts, add)
        return sums

    def sums(self, theta: Floats, inputs: Tensor, targets: Tensor, counts: Integers, *, finite: bool = False) -> Floats:
        """Each client's plain sum of its records' gradients, for training without a bound on records.

        ``finite``: a record's gradient that is not finite counts as 0 (PROTOCOL §7a).
        """
        sums = np.zeros((len(counts), self.dim))

        def add(gradients: Tensor, client: int) -> None:
            if finite:
                gradients = gradients[gradients.isfinite().all(1)]
            add_unclipped(gradients.cpu().numpy(), sums[client])

        self._each_client(theta, inputs, targets, counts, add)
        return sums

    def per_record(self, theta: Floats, inputs: Tensor, targets: Tensor) -> NDArray[np.float32]:
        """The gradient of every record, one per row."""
        out = np.empty((len(inputs), self.dim), np.float32)

        def copy_out(rows: slice, gradients: Tensor) -> None:
            out[rows] = gradients.cpu().numpy()

        self._each_chunk(theta, inputs, targets, copy_out)
        return out

    def faults(self, theta: Floats, inputs: Tensor, targets: Tensor) -> dict[int, str]:
        """Row → why this record does not count, for those that do not: in rounds with this θ they add 0."""
        found = {
            **_not_finite(targets, "its target is not finite"),
            **_not_finite(inputs, "its input is not finite"),
        }
        kept = range(len(inputs)) if not found else [row for row in range(len(inputs)) if row not in found]

        def find(worker: ChunkGradients, parameters: dict[str, Tensor], rows: slice, *chunk: Any) -> None:
            for row, why in worker.faults(parameters, *chunk).items():
                found[kept[rows.start + row]] = why

        rows = kept if found else slice(None)
        self._in_chunks(theta, inputs[rows], targets[rows], find)
        return dict(sorted(found.items()))

    def misfit(self, theta: Floats, inputs: Tensor, targets: Tensor) -> str | None:
        """Why no record of this shape and type can count, tried on the first of them; None if they may."""
        try:
            self.faults(theta, inputs[:1], targets[:1])
        except StateError:
            raise
        except Exception as error:
            return raised(error)
        return None

    def _each_client(
        self, theta: Floats, inputs: Tensor, targets: Tensor, counts: Integers, add: Callable[[Tensor, int], None]
    ) -> None:
        """Call ``add`` on the gradients of each client, or on parts of them, never at once for the same client.

        Where a client's last row is not in a chunk, but next to it, its part is empty: so the number of calls does
        not depend on how the rows are shared out among two clients.
        """
        counts = np.asarray(counts)
        if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any() or counts.sum() != len(inputs):
            raise ValueError(f"counts must be integers from 0 that add up to the {len(inputs)} records, got {counts}")
        ends = np.cumsum(counts, dtype=np.int64)
        locks = [threading.Lock() for _ in ends]

        def add_parts(rows: slice, gradients: Tensor) -> None:
            start = rows.start
            for client in range(int(np.searchsorted(ends, start)), len(ends)):
                stop = min(int(ends[client]), rows.stop)
                if start < stop or ends[client] == start:
                    with locks[client]:
                        add(gradients[start - rows.start : stop - rows.start], client)
                start = max(start, stop)

        self._each_chunk(theta, inputs, targets, add_parts)

    def _each_chunk(self, theta: Floats, inputs: Tensor, targets: Tensor, use: Callable[[slice, Tensor], None]) -> None:
        """Call ``use`` on the rows of each chunk and their gradients, which the thread's next chunk overwrites."""

        def run(worker: ChunkGradients, parameters: dict[str, Tensor], rows: slice, *chunk: Any) -> None:
            use(rows, worker.gradients(parameters, *chunk).gradients)

        self._in_chunks(theta, inputs, targets, run)

    def _in_chunks(self, theta: Floats, inputs: Tensor, targets: Tensor, run: Callable[..., None]) -> None:
        """Call ``run(worker, parameters, rows, inputs, targets, seed)`` for each chunk, on all threads."""
        if len(inputs) != len(targets):
            raise ValueError(f"expected one target per record, got {len(inputs)} records and {len(targets)} targets")
        if theta.shape != (self.dim,):
            raise ValueError(f"theta must be a vector of {self.dim} parameters, got shape {theta.shape}")
        flat = torch.from_numpy(theta.astype(np.float32)).to(self._device)
        parameters = {name: flat[self._slices[name]].view(shape) for name, shape in self._shapes.items()}
        number = len(self._workers)
        chunks = _chunks(len(inputs), self.dim, number)
        seed = int(torch.randint(1 << 62, ()))

        def work(first: int) -> None:
            with torch.no_grad():
                for rows in chunks[first::number]:
                    x, y = (self._moved(tensor[rows]) for tensor in (inputs, targets))
                    run(self._workers[first], parameters, rows, x, y, seed + rows.start)

        with self._code.isolated(targets):
            if len(chunks) <= 1 or number == 1:
                work(0)
                return
            with _one_torch_thread():
                done = [_pool(number).submit(work, first) for first in range(number)]
                wait(done)  # all of them, if one fails too: they share this object's buffers and torch's threads
            for future in done:
                future.result()

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, torch.float32 if tensor.is_floating_point() else None)


def _not_finite(rows: Tensor, why: str) -> dict[int, str]:
    if not rows.is_floating_point() or largest(rows) < torch.inf:
        return {}
    bad = ~rows.reshape(len(rows), -1).isfinite().all(1)
    return dict.fromkeys(bad.nonzero().flatten().tolist(), why)


def _chunks(records: int, dim: int, threads: int) -> list[slice]:
    """Slices of nearly equal length: no longer than memory allows, one or more per thread if they are not too short."""
    longest = max(1, min(MAX_RECORDS, MAX_ENTRIES // dim))
    rounds = -(-records // (longest * threads))
    number = rounds * threads if records >= threads * MIN_RECORDS else -(-records // longest)
    edges = [records * i // number for i in range(number + 1)] if number else [0]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Torch uses one thread per caller; its number of threads is common to the process, so calls are counted."""
    global _callers, _torch_threads
    with _counting:
        if not _callers:
            _torch_threads = torch.get_num_threads()
            torch.set_num_threads(1)
        _callers += 1
    try:
        yield
    finally:
        with _counting:
            _callers -= 1
            if not _callers:
                torch.set_num_threads(_torch_threads)


_counting = threading.Lock()
_callers, _torch_threads = 0, 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Its threads each tell torch's BLAS, which asks them and not the process, to use one thread."""
    return ThreadPoolExecutor(threads, "precad-gradients", torch.set_num_threads, (1,))
