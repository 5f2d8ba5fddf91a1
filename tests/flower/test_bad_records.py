"""Any record of any data set, through the client's update: a bad one is as if it were not there, to the bit."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from precad.flower import wire
from precad.flower.records import record_update
from precad.privacy.sampling import most_drawn

RECORDS, BAD = 20, 7
WORDS = "record 17 of Jane Doe"


class Listed(Dataset[Any]):
    """Good records, and one place that gives whatever ``bad`` does."""

    def __init__(self, bad: Callable[["Listed"], Any] | None = None) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs, self.targets = torch.randn(RECORDS, 12, generator=generator), torch.arange(RECORDS) % 10
        self.bad, self.size, self.reads = bad, RECORDS, list[int]()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        if index == BAD and self.bad is not None:
            return self.bad(self)
        return self.inputs[index].numpy(), int(self.targets[index])


class Own(nn.Module):
    """Not a chain of known layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) + 0.0
        return out


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 10))


def summed(data: Any, model: Callable[[], nn.Module] = chain, rate: float = 1.0, **terms: Any) -> NDArray[np.int64]:
    """The update that goes to the mod, computed as the mod has it computed: in a thread of its own."""
    torch.manual_seed(3)
    net = model()
    local = {"record_bound": 0.5, "record_rate": rate, "fractional_bits": 16, "records": RECORDS, **terms}
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), wire.LOCAL: ConfigRecord(local)})
    message = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(record_update(message, net, cross_entropy, data))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    total: NDArray[np.int64] = found[0].content.array_records[wire.SUM][wire.SUM].numpy()
    return total


class _SilentError(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


class _Sour(Tensor):
    """A tensor that raises in whatever is done with it, but for some calls."""

    allowed: tuple[str, ...] = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in cls.allowed:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        raise RuntimeError(WORDS)


class _Sweet(_Sour):
    allowed = ("detach", "__get__", "clone")


def raises(error: BaseException) -> Callable[[Listed], Any]:
    def bad(_: Listed) -> Any:
        raise error

    return bad


def gives(*record: Any) -> Callable[[Listed], Any]:
    return lambda _: record


def _recurses(data: Listed) -> Any:
    return _recurses(data)


def _later(_: Listed) -> Any:
    async def later() -> None: ...

    coroutine = later()
    coroutine.close()
    return coroutine


def _shrinks(data: Listed) -> Any:
    data.size = 3
    raise ValueError(WORDS)


X = torch.zeros(12)
ZERO = {  # what does not count
    **{
        type(error).__name__: raises(error)
        for error in (
            IndexError(WORDS),
            StopIteration(WORDS),
            KeyboardInterrupt(WORDS),
            SystemExit(WORDS),
            MemoryError(WORDS),
            RecursionError(WORDS),
            GeneratorExit(WORDS),
            asyncio.CancelledError(WORDS),
            BaseExceptionGroup(WORDS, [KeyboardInterrupt()]),
            _SilentError(),
        )
    },
    "exits": lambda _: sys.exit(WORDS),
    "recurses": _recurses,
    "a coroutine": _later,
    "a string": lambda _: WORDS,
    "None": lambda _: None,
    "strings": gives(WORDS, WORDS),
    "no label": gives(X, None),
    "label -100": gives(X, -100),
    "label -1": gives(X, -1),
    "label 10": gives(X, 10),
    "label 10^18": gives(X, 10**18),
    "label 10^30": gives(X, 10**30),
    "label NaN": gives(X, float("nan")),
    "label 1.0": gives(X, 1.0),
    "label of complex type": gives(X, torch.tensor(1j)),
    "labels": gives(X, torch.zeros(3, dtype=torch.int64)),
    "NaN": gives(X * torch.nan, 1),
    "infinite": gives(X + torch.inf, 1),
    "infinite as float": gives(X.double() + 1e300, 1),
    "another shape": gives(torch.zeros(13), 1),
    "another shape, not finite": gives(torch.zeros(13) * torch.nan, 1),
    "another shape, too large": gives(torch.zeros(13) + 1e20, 1),
    "no numbers": gives(torch.zeros(0), 1),
    "a matrix": gives(torch.zeros(12, 12), 1),
    "a scalar": gives(torch.tensor(1.0), 1),
    "integers": gives(torch.zeros(12, dtype=torch.int64), 1),
    "complex": gives(torch.zeros(12, dtype=torch.complex64), 1),
    "no memory": gives(torch.zeros(12, device="meta"), 1),
    "sparse": gives(torch.zeros(12).to_sparse(), 1),
    "compressed": lambda _: (torch.zeros(12, 12).to_sparse_csr(), 1),
    "quantised": lambda _: (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), 1),
    "nested": lambda _: (torch.nested.nested_tensor([X]), 1),
    "objects": gives(np.array([object()] * 12), 1),
    "dates": gives(np.array(["2026-01-01"] * 12, "datetime64[D]"), 1),
    "turned around": gives(np.zeros(12, np.float32)[::-1], 1),
    "a set": lambda _: {1, 2},
    "three parts": gives(X, 1, 1),
    "shorter from now on": _shrinks,
}
COUNTS = {  # what counts, as it would alone: as zeros with label 1
    "requires a gradient": gives(torch.zeros(12, requires_grad=True), 1),
    "a parameter": gives(nn.Parameter(torch.zeros(12)), 1),
    "of a graph": gives(torch.ones(12, requires_grad=True) * 0, torch.tensor(1)),
    "raises in all": gives(torch.zeros(12).as_subclass(_Sour), 1),
    "raises later": gives(torch.zeros(12).as_subclass(_Sweet), torch.tensor(1)),
    "double precision": gives(torch.zeros(12, dtype=torch.float64), 1),
    "half precision": gives(torch.zeros(12, dtype=torch.bfloat16), 1),
    "denormal": gives(X + 1e-45, 1),
    "negative zeros": gives(-X, 1),
    "not contiguous": gives(torch.zeros(12, 3)[:, 1], 1),
    "conjugate": gives(torch.zeros(12, dtype=torch.complex64).conj().real, 1),
    "a small label": gives(X, torch.tensor(1, dtype=torch.uint8)),
    "read-only": gives(np.broadcast_to(np.float32(0), (12,)), np.int64(1)),
}


@pytest.mark.parametrize("model", [chain, Own])
def test_a_bad_record_is_as_if_it_were_not_there(model: Callable[[], nn.Module]) -> None:
    without = summed(Listed(raises(OSError(WORDS))), model)
    one = summed(Listed(gives(X, 1)), model)
    assert not np.array_equal(without, one)
    wrong = {}
    for expected, kinds in ((without, ZERO), (one, COUNTS)):
        for what, bad in kinds.items():
            try:
                if not np.array_equal(summed(Listed(bad), model), expected):
                    wrong[what] = "another sum"
            except BaseException as error:
                wrong[what] = repr(type(error))
    assert wrong == {}


@pytest.mark.parametrize("model", [chain, Own])
@pytest.mark.parametrize("size", [1e-44, 1e-20, 1e6, 1e20, 1e30, 1e36, 3e38])
def test_a_record_of_any_size_moves_the_sum_by_at_most_r(model: Callable[[], nn.Module], size: float) -> None:
    """Some of them overflow on the way, and count as 0."""
    without = summed(Listed(raises(OSError(WORDS))), model)
    signs = torch.tensor([1.0, -1.0]).repeat(6)
    for x in (X + size, signs * size):
        moved = summed(Listed(gives(x, 1)), model) - without
        assert np.linalg.norm(moved / 2**16) <= 0.5


def test_a_data_set_may_use_its_memory_again() -> None:
    """What was read stays what it was when the next record is written over it."""

    class OneBuffer(Listed):
        def __init__(self, buffer: Any) -> None:
            super().__init__()
            self.buffer = buffer

        def __getitem__(self, index: int) -> Any:
            self.buffer[:] = self.inputs[index].numpy() if isinstance(self.buffer, np.ndarray) else self.inputs[index]
            return self.buffer, int(self.targets[index])

    for buffer in (torch.zeros(12), np.zeros(12, np.float32)):
        assert np.array_equal(summed(OneBuffer(buffer)), summed(Listed()))


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_only_what_is_needed_is_read_and_always_as_much(rate: float) -> None:
    """Whatever is drawn, and also where the roster declares more than there are."""
    for declared in (RECORDS, 500):
        data = Listed(raises(OSError(WORDS)))
        numbers = set()
        for _ in range(10):
            data.reads.clear()
            summed(data, rate=rate, records=declared)
            numbers.add(len(data.reads))
        assert numbers == {RECORDS if rate == 1 else most_drawn(declared, rate)}


class _Counts(nn.Module):
    """Keeps state for unusual records alone, which then changes all others."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = nn.Linear(12, 10), 0.0

    def forward(self, x: Tensor) -> Tensor:
        if bool((x.max() > 1e6).item()):
            self.seen += 1
        out: Tensor = self.inner(x) * (1 + self.seen)
        return out


class _Widens(nn.Module):
    """Changes what belongs to the whole process for unusual records."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x.max() > 1e6).item()):
            torch.set_default_dtype(torch.float64)
        out: Tensor = self.inner(x) * torch.full((1,), 1 / 3)
        return out


@pytest.mark.parametrize("model", [_Counts, _Widens])
def test_a_record_that_leaves_state_behind_counts_by_itself_and_the_others_stay(model: Callable[[], nn.Module]) -> None:
    """To refuse the model in the rounds in which it is drawn would tell of it, and move the sum by C."""
    without = summed(Listed(raises(OSError(WORDS))), model)
    moved = summed(Listed(gives(X + 2e6, 1)), model) - without
    assert 0 < np.linalg.norm(moved) <= 0.5 * 2**16
    assert torch.get_default_dtype() is torch.float32
