"""The gradient of every record, and each client's sum of clipped ones (paper: Algorithm 2, lines 2 to 5).

The records of all clients of a round go through the model together, grouped by client, in chunks of bounded memory.
A chain of known layers (:mod:`precad.gradients.layers`) is differentiated by hand; any other model by ``torch.func``,
which gives the same gradients but for rounding.
"""

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.gradients.chain import chain
from precad.gradients.chunk import ChunkGradients, LossFunction
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
    Works on a copy of ``model`` as it is now, in its present mode; active dropout draws from torch's generator, apart
    for every record. A model that mixes records or keeps state across them is refused (PROTOCOL §9). ``inputs`` and
    ``targets`` are tensors with one record per row. Same arguments and torch threads, same bits; a record's gradient
    does not depend on the values of the others. One object serves one thread at a time, as it keeps its buffers.
    Chunks are spread over ``threads`` (torch's present number by default), and torch itself uses one thread meanwhile.
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
        own = copy.deepcopy(model).to(self._device, torch.float32)
        trained = {name: p for name, p in own.named_parameters() if p.requires_grad}
        self._shapes = {name: p.shape for name, p in trained.items()}
        ends = list(itertools.accumulate(p.numel() for p in trained.values()))
        self._slices = {name: slice(end - p.numel(), end) for (name, p), end in zip(trained.items(), ends, strict=True)}
        self.dim = ends[-1]
        steps = chain(own)
        self.by_hand = steps is not None
        workers = (threads or torch.get_num_threads()) if self.by_hand and self._device.type == "cpu" else 1
        self._workers = [ChunkGradients(own, loss, steps, self._slices) for _ in range(workers)]

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

    def _each_client(
        self, theta: Floats, inputs: Tensor, targets: Tensor, counts: Integers, add: Callable[[Tensor, int], None]
    ) -> None:
        """Call ``add`` on the gradients of each client, or on parts of them, never at once for the same client."""
        counts = np.asarray(counts)
        if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any() or counts.sum() != len(inputs):
            raise ValueError(f"counts must be integers from 0 that add up to the {len(inputs)} records, got {counts}")
        ends = np.cumsum(counts, dtype=np.int64)
        locks = [threading.Lock() for _ in ends]

        def add_parts(rows: slice, gradients: Tensor) -> None:
            start = rows.start
            for client in range(int(np.searchsorted(ends, start, side="right")), len(ends)):
                stop = min(int(ends[client]), rows.stop)
                if start < stop:
                    with locks[client]:
                        add(gradients[start - rows.start : stop - rows.start], client)
                start = max(start, stop)

        self._each_chunk(theta, inputs, targets, add_parts)

    def _each_chunk(self, theta: Floats, inputs: Tensor, targets: Tensor, use: Callable[[slice, Tensor], None]) -> None:
        """Call ``use`` on the rows of each chunk and their gradients, which the thread's next chunk overwrites."""
        if len(inputs) != len(targets):
            raise ValueError(f"expected one target per record, got {len(inputs)} records and {len(targets)} targets")
        if theta.shape != (self.dim,):
            raise ValueError(f"theta must be a vector of {self.dim} parameters, got shape {theta.shape}")
        flat = torch.from_numpy(theta.astype(np.float32)).to(self._device)
        parameters = {name: flat[self._slices[name]].view(shape) for name, shape in self._shapes.items()}
        number = len(self._workers)
        chunks = _chunks(len(inputs), self.dim, number)

        def work(first: int) -> None:
            with torch.no_grad():
                for rows in chunks[first::number]:
                    x, y = (self._moved(tensor[rows]) for tensor in (inputs, targets))
                    use(rows, self._workers[first].gradients(parameters, x, y))

        if len(chunks) <= 1 or number == 1:
            work(0)
        else:
            with _one_torch_thread():
                done = [_pool(number).submit(work, first) for first in range(number)]
                wait(done)  # all of them, if one fails too: they share this object's buffers and torch's threads
            for future in done:
                future.result()

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, torch.float32 if tensor.is_floating_point() else None)


def check_model(model: nn.Module) -> None:
    """Refuse a model of which a record's gradient is undefined, naming the layer and what to use instead."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model must be a torch nn.Module, got {type(model).__name__}")
    for name, module in model.named_modules():
        place = f"layer {name!r} ({type(module).__name__})"
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"{place} mixes the records of a batch: use nn.GroupNorm instead")
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            raise ValueError(
                f"{place} keeps statistics across records: use track_running_stats=False or nn.GroupNorm instead"
            )
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise ValueError(f"{place} changes its weights in the forward pass: use max_norm=None instead")
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        raise ValueError("the model has lazy parameters: call it once on a batch first")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("the model has no trainable parameters")


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
