"""The engine: models by hand and by torch, clients' sums to the bit, and what it refuses."""

import contextlib
import functools
import math
import random  # noqa: TID251 - a caller may draw from it
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from precad.gradients import engine as gradients
from precad.gradients import plans
from precad.gradients.engine import PerRecordGradients
from precad.gradients.losses import LossFunction
from precad.privacy.clipping import encode_clipped
from precad.simulation.models import cifar_cnn, digits_model, mnist_cnn
from tests.gradients.reference import assert_close, classes, normal, one_by_one, seeded, theta_of
from tests.gradients.zoo import FloatMean, Model, Tokens, one_hot_bce
from tests.messages import says

R, F = 0.5, 16


def engine_of(model: nn.Module, **options: Any) -> PerRecordGradients:
    return PerRecordGradients(model, functional.cross_entropy, **options)


def slow_sums(rows: NDArray[np.float32], counts: list[int]) -> NDArray[np.int64]:
    sums = np.zeros((len(counts), rows.shape[1]), np.int64)
    for owner, row in zip(np.repeat(np.arange(len(counts)), counts), rows, strict=True):
        if np.isfinite(row).all():
            sums[owner] += encode_clipped(row, R, F)
    return sums


def clipped(engine: PerRecordGradients, model: nn.Module, x: Tensor, y: Tensor, counts: list[int]) -> NDArray[np.int64]:
    return engine.clipped_sums(theta_of(model), x, y, np.array(counts), record_bound=R, fractional_bits=F)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("build", "shape"), [(mnist_cnn, (1, 28, 28)), (cifar_cnn, (3, 32, 32))])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_cnns_of_the_paper(
    build: Callable[[str], nn.Module], shape: tuple[int, ...], activation: str, threads: int
) -> None:
    model, x, y = seeded(build, activation), normal(40, *shape), classes(40)
    engine = engine_of(model, threads=threads)
    assert engine.by_hand
    assert engine.dim == theta_of(model).size
    rows = engine.per_record(theta_of(model), x, y)
    assert_close(rows[::8], one_by_one(model, functional.cross_entropy, x[::8], y[::8]))
    counts = [11, 0, 20, 8, 1, 0]
    assert np.array_equal(clipped(engine, model, x, y, counts), slow_sums(rows, counts))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out, self.scale = nn.Linear(12, 12), nn.Linear(12, 10), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.scale * self.inner(x).tanh())  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 3, 4)
        return self.out(self.attention(x, x, x, need_weights=False)[0].mean(1))  # type: ignore[no-any-return]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 10)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.b(self.a(x).tanh()).tanh())  # type: ignore[no-any-return]


class ByGru(nn.Module):
    """Which torch cannot batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(16, 5, batch_first=True), nn.Linear(5, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.gru(x.view(-1, 4, 16))[0][:, -1])  # type: ignore[no-any-return]


class OwnForward(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return self[0](2 * x)  # type: ignore[no-any-return]


def twice() -> nn.Module:
    layer = nn.Linear(12, 12)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(12, 10))


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 10))
    model[0].register_forward_hook(lambda _module, _inputs, output: output.tanh())
    return model


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "build",
    [Residual, Attention, Tied, twice, hooked, lambda: OwnForward(nn.Linear(12, 10))],
    ids=["residual", "attention", "tied", "a layer used twice", "a hook", "a forward of its own"],
)
def test_other_models_go_through_torch(build: Callable[[], nn.Module]) -> None:
    model, x, y = seeded(build), normal(30, 12), classes(30)
    engine = engine_of(model)
    assert not engine.by_hand
    rows = engine.per_record(theta_of(model), x, y)
    expected = one_by_one(model, functional.cross_entropy, x, y)
    assert_close(rows, expected)
    assert np.array_equal(clipped(engine, model, x, y, [10, 20]), slow_sums(rows, [10, 20]))
    plain = engine.sums(theta_of(model), x, y, np.array([10, 20]))
    assert_close(plain, np.array([expected[:10].sum(0), expected[10:].sum(0)]))


LOSSES: dict[str, tuple[LossFunction, Callable[[], Tensor]]] = {
    "cross entropy": (nn.CrossEntropyLoss(), lambda: classes(40)),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), lambda: classes(40)),
    "weighted classes": (
        lambda y, t: (functional.cross_entropy(y, t, reduction="none") * (t + 1)).mean(),
        lambda: classes(40),
    ),
    "probabilities": (functional.cross_entropy, lambda: normal(40, 10).softmax(1)),
    "squares": (functional.mse_loss, lambda: normal(40, 10)),
    "its own": (lambda y, t: (y[:, 0] - t).abs().mean(), lambda: normal(40)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    loss, targets = LOSSES[name][0], LOSSES[name][1]()
    model, x = seeded(digits_model), normal(40, 64)
    rows = PerRecordGradients(model, loss, threads=2).per_record(theta_of(model), x, targets)
    assert_close(rows, one_by_one(model, loss, x, targets))


def test_ignored_targets_have_no_gradient() -> None:
    model, x, y = seeded(digits_model), normal(6, 64), classes(6)
    y[2] = -100
    rows = engine_of(model).per_record(theta_of(model), x, y)
    assert not np.nan_to_num(rows[2]).any()
    assert_close(rows[3:], one_by_one(model, functional.cross_entropy, x[3:], y[3:]))


def test_the_gradient_is_at_theta_and_leaves_the_model_alone() -> None:
    model, x, y = seeded(digits_model), normal(6, 64), classes(6)
    before = theta_of(model)
    rows = engine_of(model).per_record(before + 1, x, y)
    assert np.array_equal(theta_of(model), before)
    nn.utils.vector_to_parameters(torch.from_numpy(before + 1).float(), model.parameters())
    assert_close(rows, one_by_one(model, functional.cross_entropy, x, y))


@pytest.mark.parametrize("frozen", [["1.weight"], ["1.weight", "1.bias"], ["3.weight", "1.bias"]])
def test_frozen_parameters_are_left_out(frozen: list[str]) -> None:
    model, x, y = seeded(digits_model), normal(6, 64), classes(6)
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    engine = engine_of(model)
    assert engine.dim == theta_of(model).size < 2_410
    rows = engine.per_record(theta_of(model), x, y)
    assert_close(rows, one_by_one(model, functional.cross_entropy, x, y))


@settings(max_examples=15)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sampled_from([1, 2, 3]))
def test_clients_of_any_size(counts: list[int], threads: int) -> None:
    model, x, y = seeded(digits_model), normal(sum(counts), 64), classes(sum(counts))
    engine = engine_of(model, threads=threads)
    rows = engine.per_record(theta_of(model), x, y)
    assert np.array_equal(clipped(engine, model, x, y, counts), slow_sums(rows, counts))
    plain = engine.sums(theta_of(model), x, y, np.array(counts))
    ends = np.cumsum(counts)
    expected = np.array([rows[end - n : end].sum(0, dtype=np.float64) for n, end in zip(counts, ends, strict=True)])
    assert_close(plain, expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "build", [lambda: mnist_cnn("relu"), lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softmax(1))]
)
def test_a_record_does_not_depend_on_the_others(build: Callable[[], nn.Module], threads: int) -> None:
    model, x, y = seeded(build), normal(50, 1, 28, 28), classes(50)
    engine = engine_of(model, threads=threads)
    rows = engine.per_record(theta_of(model), x, y)
    assert np.array_equal(rows, engine.per_record(theta_of(model), x, y))
    other = x.clone()
    other[17] = math.nan
    assert np.array_equal(np.delete(rows, 17, 0), np.delete(engine.per_record(theta_of(model), other, y), 17, 0))
    fewer = engine.per_record(theta_of(model), x[:31], y[:31])
    assert_close(fewer, rows[:31])


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = seeded(mnist_cnn), normal(60, 1, 28, 28), classes(60)
    whole = engine_of(model).per_record(theta_of(model), x, y)
    monkeypatch.setattr(gradients, "MAX_RECORDS", 7)
    engine = engine_of(model, threads=2)
    rows = engine.per_record(theta_of(model), x, y)
    assert_close(rows, whole)
    assert np.array_equal(clipped(engine, model, x, y, [13, 0, 47]), slow_sums(rows, [13, 0, 47]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_record_without_a_finite_gradient_counts_as_zero(bad: float) -> None:
    model, x, y = seeded(mnist_cnn), normal(6, 1, 28, 28), classes(6)
    x[2, 0, 5, 5] = bad
    engine = engine_of(model)
    total = clipped(engine, model, x, y, [3, 3])
    kept = torch.tensor([0, 1, 3, 4, 5])
    assert np.array_equal(total[0], slow_sums(engine.per_record(theta_of(model), x, y)[:2], [2])[0])
    assert np.abs(total - clipped(engine, model, x[kept], y[kept], [2, 3])).max() <= 3


def test_dropout_differs_from_record_to_record() -> None:
    model = seeded(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 10)))
    engine = engine_of(model)
    assert not engine.by_hand
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rows = engine.per_record(theta_of(model), torch.ones(2, 64), torch.zeros(2, dtype=torch.int64))
    assert not np.array_equal(rows[0] != 0, rows[1] != 0)


def test_doubles_are_taken_as_floats() -> None:
    model, x, y = seeded(digits_model), normal(6, 64), classes(6)
    expected = engine_of(model).per_record(theta_of(model), x, y)
    theta = theta_of(model)
    assert np.array_equal(engine_of(model.double()).per_record(theta, x.double(), y), expected)


@pytest.mark.parametrize("fails", [False, True])
def test_torch_has_its_threads_again(fails: bool) -> None:
    model, x, y = seeded(digits_model), normal(80, 64), classes(80)
    before, seen = torch.get_num_threads(), SimpleQueue[int]()  # a list would be put back as it was

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.put(torch.get_num_threads())
        if fails:
            raise KeyError
        return functional.cross_entropy(outputs, targets)

    engine = PerRecordGradients(model, loss, threads=4)
    with contextlib.ExitStack() as stack:
        if fails:
            stack.enter_context(pytest.raises(KeyError))
        clipped(engine, model, x, y, [80])
    assert {seen.get() for _ in range(seen.qsize())} == {1}
    assert torch.get_num_threads() == before


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), r"'1' \(BatchNorm2d\).*nn\.GroupNorm"),
    "synchronised": (lambda: nn.Sequential(nn.SyncBatchNorm(2)), r"'0' \(SyncBatchNorm\).*nn\.GroupNorm"),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.BatchNorm1d(2))), r"'0\.0' \(BatchNorm1d\)"),
    "instance norm": (
        lambda: nn.Sequential(nn.InstanceNorm2d(2, track_running_stats=True)),
        r"track_running_stats=False",
    ),
    "max_norm": (lambda: nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), r"'0' \(Embedding\).*max_norm=None"),
    "nothing to train": (lambda: nn.Sequential(nn.ReLU()), "no trainable parameters"),
    "all frozen": (lambda: nn.Linear(2, 2).requires_grad_(False), "no trainable parameters"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_refused(name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        engine_of(build())


def test_a_lazy_model_is_refused() -> None:
    with pytest.raises(ValueError, match="lazy"):
        engine_of(nn.Sequential(nn.LazyLinear(3)))


def test_wrong_arguments_are_named() -> None:
    model, x, y = seeded(digits_model), normal(4, 64), classes(4)
    engine, theta = engine_of(model), theta_of(model)
    for counts in ([1, 2], [5, -1], [[4]], [2.0, 2.0]):
        with pytest.raises(ValueError, match=says("counts", 0, 4)):
            engine.sums(theta, x, y, np.array(counts))
    with pytest.raises(ValueError, match=says("theta", 2410)):
        engine.per_record(theta[1:], x, y)
    with pytest.raises(ValueError, match=says("4 records", "3 targets")):
        engine.per_record(theta, x, y[:3])
    for bound in (0.0, math.nan, 2.0**-17, 1024.0):
        with pytest.raises(ValueError, match=says("record_bound", bound)):
            engine.clipped_sums(theta, x, y, np.array([4]), record_bound=bound, fractional_bits=16)
    with pytest.raises(ValueError, match=says("threads", 1, 0)):
        engine_of(model, threads=0)


def test_faults_name_the_records_that_do_not_count() -> None:
    model, x, y = seeded(lambda: nn.Linear(64, 10)), normal(40, 64), classes(40)
    x[3, 2], y[5], y[6] = math.nan, 12, -100
    x[30] = 3e38 * model.get_parameter("weight")[0].detach().sign()  # its sums overflow
    engine = engine_of(model, threads=2)
    assert engine.faults(theta_of(model), x, y) == {
        3: "its input is not finite",
        5: "its label 12 is not in [0, 10)",
        6: "its label -100 is ignored by the loss",
        30: "its gradient is not finite",
    }
    good = [row for row in range(40) if row not in (3, 5, 6, 30)]
    assert engine.faults(theta_of(model), x[good], y[good]) == {}


@pytest.mark.parametrize("error", [KeyError, IndexError, AssertionError, MemoryError, ZeroDivisionError, StopIteration])
@pytest.mark.parametrize("build", [digits_model, lambda: nn.Sequential(nn.Linear(64, 10), nn.Softmax(1)), ByGru])
def test_a_record_that_raises_counts_as_zero(error: type[Exception], build: Callable[[], nn.Module]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.max() > 2:
            raise error("no")
        return functional.cross_entropy(outputs, targets)

    model, x = seeded(build), normal(20, 64)
    y = classes(20, 3)
    engine = PerRecordGradients(model, loss)
    rows, bad = engine.per_record(theta_of(model), x, y), y.clone()
    bad[[4, 11]] = 3
    why = f"it raises {error.__name__}: {error('no')}"
    assert engine.faults(theta_of(model), x, bad) == {4: why, 11: why}
    again = engine.per_record(theta_of(model), x, bad)
    assert np.array_equal(np.delete(again, [4, 11], 0), np.delete(rows, [4, 11], 0))
    assert not again[[4, 11]].any()


def test_an_interrupt_is_not_a_record_that_raises() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if float(targets.sum()) > 0:
            raise KeyboardInterrupt
        return functional.cross_entropy(outputs, targets)

    model = seeded(digits_model)
    with pytest.raises(KeyboardInterrupt):
        PerRecordGradients(model, loss).per_record(theta_of(model), normal(4, 64), classes(4))


@pytest.mark.parametrize("label", [-100, -1, 10, 1 << 40])
@pytest.mark.parametrize("build", [digits_model, ByGru, lambda: nn.Sequential(nn.Linear(64, 10), nn.Softmax(1))])
def test_a_label_that_does_not_count_leaves_the_others_alone(label: int, build: Callable[[], nn.Module]) -> None:
    model, x, y = seeded(build), normal(40, 64), classes(40)
    engine = engine_of(model)
    rows, wrong = engine.per_record(theta_of(model), x, y), y.clone()
    wrong[17] = label
    again = engine.per_record(theta_of(model), x, wrong)
    assert np.array_equal(np.delete(again, 17, 0), np.delete(rows, 17, 0))
    assert not again[17].any()


@pytest.mark.parametrize("token", [-1, 9, 1 << 40])
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_token_that_there_is_not_leaves_the_others_alone(token: int, by_hand: bool) -> None:
    layers = [nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 10), nn.Identity() if by_hand else nn.Softmax(1)]
    model, y = seeded(lambda: nn.Sequential(*layers)), classes(20)
    x = torch.randint(0, 9, (20, 6), generator=torch.Generator().manual_seed(3))
    engine = engine_of(model)
    assert engine.by_hand is by_hand
    rows, wrong = engine.per_record(theta_of(model), x, y), x.clone()
    wrong[7, 2] = token
    again = engine.per_record(theta_of(model), wrong, y)
    assert np.array_equal(np.delete(again, 7, 0), np.delete(rows, 7, 0))
    assert not again[7].any()
    assert list(engine.faults(theta_of(model), wrong, y)) == [7]


def test_a_loss_over_the_batch_is_refused_whatever_came_first() -> None:
    weighted = functools.partial(functional.cross_entropy, weight=torch.arange(1.0, 11.0))
    model, x, y = seeded(digits_model), normal(6, 64), classes(6)
    x[0] = math.nan
    engine = PerRecordGradients(model, weighted)
    for records in (x[:1], x[1:2], x):
        with pytest.raises(ValueError, match="not the mean"):
            engine.per_record(theta_of(model), records, y[: len(records)])


def test_a_running_mean_cannot_move_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """One exchanged record moved the sum of 200 clipped gradients by a hundred times R."""
    model, x, y = seeded(FloatMean), normal(200, 8), classes(200, 3)
    other = x.clone()
    other[0] = 1e4
    engine = engine_of(model)
    with pytest.raises(ValueError, match="`mean` keeps state"):
        clipped(engine, model, x, y, [200])
    monkeypatch.setattr(plans, "_judge", lambda *_: None)
    # if nobody refused it, its state would still be put back for every record
    before, after = (clipped(engine, model, inputs, y, [200]) for inputs in (x, other))
    assert np.linalg.norm(before - after) <= 2 * R * 2**F


def test_a_model_that_mixes_only_for_some_records_does_not_mix_them() -> None:
    """Nor is it refused then: a client's sum of nothing, instead of its records', would tell of them."""

    class Later(FloatMean):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def features(self, x: Tensor) -> Any:
            self.calls += 1
            return super().features(x) if x.sum() > 8 else x

    model, x, y = seeded(Later), normal(60, 8), classes(60, 3)
    x[30:] = x[:30].abs() + 1
    engine = engine_of(model)
    engine.per_record(theta_of(model), x[:30].clamp(max=0), y[:30])
    rows = engine.per_record(theta_of(model), x, y)
    singly = (one_by_one(seeded(Later), functional.cross_entropy, x[i : i + 1], y[i : i + 1]) for i in range(len(x)))
    assert_close(rows, np.concatenate(list(singly)))
    x[40] *= 1000
    again = engine.per_record(theta_of(model), x, y)
    assert np.array_equal(np.delete(again, 40, 0), np.delete(rows, 40, 0))


def test_parameters_that_some_records_change_are_put_back() -> None:
    class Shrinking(Model):
        def features(self, x: Tensor) -> Any:
            if x.sum() > 1000:
                self.out.weight.data.mul_(0.5)
            return x

    model, x, y = seeded(Shrinking), normal(20, 8), classes(20, 3)
    engine = engine_of(model)
    rows = engine.per_record(theta_of(model), x, y)
    x[7] = 1e6
    for _ in range(2):
        again = engine.per_record(theta_of(model), x, y)
        assert np.array_equal(np.delete(again, 7, 0), np.delete(rows, 7, 0))


def test_whether_a_record_counts_does_not_depend_on_one_that_raises() -> None:
    """``one_hot`` raises for one record of a label that there is not, and gives zeros where torch batches."""
    model, y = seeded(Tokens), classes(20, 3)
    x = torch.randint(0, 12, (20, 6), generator=torch.Generator().manual_seed(3))
    y[5] = 7
    engine = PerRecordGradients(model, one_hot_bce)
    rows = engine.per_record(theta_of(model), x, y)
    x[9] = 99
    again = engine.per_record(theta_of(model), x, y)
    assert not again[9].any()
    assert np.array_equal(np.delete(again, 9, 0), np.delete(rows, 9, 0))


def test_what_a_person_changes_between_calls_stays_changed() -> None:
    scale = [1.0]
    model, x, y = seeded(digits_model), normal(6, 64), classes(6)
    engine = PerRecordGradients(model, lambda o, t: scale[0] * functional.cross_entropy(o, t))
    once = engine.per_record(theta_of(model), x, y)
    scale[0] = 2.0
    assert np.array_equal(engine.per_record(theta_of(model), x, y), 2 * once)
    assert scale == [2.0]


def test_the_randomness_of_the_caller_goes_on() -> None:
    model, x, y = seeded(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 10))), normal(6, 64), classes(6)
    engine = engine_of(model)
    draws = []
    for records in (x, 100 * x):
        torch.manual_seed(5)
        engine.per_record(theta_of(model), records, y)
        draws.append(float(torch.rand(())))
    assert draws[0] == draws[1]
    before = random.getstate()
    engine.per_record(theta_of(model), x, y)
    assert random.getstate() == before
