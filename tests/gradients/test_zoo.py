"""The table: every kind of model and loss gives what a fresh copy for each record gives, or is refused by name."""

import copy
import warnings
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray
from torch import Tensor, nn

import precad
from precad.gradients import reachable
from precad.gradients.engine import PerRecordGradients
from precad.gradients.models import check_model, copied
from tests.gradients import zoo
from tests.gradients.reference import assert_close, classes, normal, seeded, theta_of

WEIGHTS = torch.tensor([1.0, 5.0, 0.2])


@dataclass(frozen=True)
class Kind:
    """One line of the table."""

    build: Callable[[], nn.Module] = zoo.Model
    loss: Callable[[], Any] = lambda: F.cross_entropy
    data: str = "vectors"
    expected: Callable[[], Any] | None = None
    """The loss of one record, if it is not ``loss``."""
    refused: str | None = None
    random: bool = False
    tolerance: float = 1e-4


def loss(value: Any) -> Callable[[], Any]:
    return lambda: value


TABLE: dict[str, Kind] = {
    # models that treat each record by itself
    "linear": Kind(),
    "multi-head attention": Kind(zoo.Attention),
    "causal attention": Kind(zoo.CausalAttention, data="tokens"),
    "transformer": Kind(zoo.Transformer),
    "transformer with dropout": Kind(zoo.DroppingTransformer, random=True),
    "tied weights": Kind(zoo.Tied),
    "LSTM": Kind(zoo.Recurrent),
    "GRU": Kind(zoo.Gru),
    "GRUCell, unrolled": Kind(zoo.FreshCell),
    "embedding": Kind(zoo.Tokens, data="tokens"),
    "embedding with padding": Kind(zoo.PaddedTokens, data="tokens"),
    "embedding, sparse": Kind(zoo.SparseTokens, data="tokens"),
    "embedding after another layer": Kind(
        lambda: nn.Sequential(nn.Flatten(), nn.Embedding(12, 4), nn.Flatten(), nn.Linear(24, 3)), data="tokens"
    ),
    "embedding of short integers": Kind(
        lambda: nn.Sequential(nn.Embedding(12, 4), nn.Flatten(), nn.Linear(24, 3)), data="short tokens"
    ),
    "embedding bag": Kind(zoo.Bag, data="tokens"),
    "weight norm": Kind(zoo.WeightNormed),
    "weight norm, the older": Kind(zoo.OldWeightNormed),
    "spectral norm": Kind(zoo.SpectralNormed),
    "spectral norm, the older": Kind(zoo.OldSpectralNormed),
    "spectral norm, evaluating": Kind(lambda: zoo.SpectralNormed().eval()),
    "bf16, taken as float32": Kind(lambda: zoo.Model().bfloat16().float()),
    "autocast to bf16": Kind(zoo.Autocast, tolerance=0.05),
    "custom function, the older style": Kind(zoo.OldFunction),
    "custom function": Kind(zoo.NewFunction),
    "gives a dataclass": Kind(zoo.GivesDataclass, loss(zoo.of_attribute)),
    "gives a dict": Kind(zoo.GivesDict, loss(zoo.of_key)),
    "gives a tuple": Kind(zoo.GivesTuple, loss(zoo.of_first)),
    "a cache that changes nothing": Kind(zoo.Rotary),
    "a counter that changes nothing": Kind(zoo.Counting),
    "changes its input in place": Kind(zoo.InPlace),
    "checkpointing": Kind(zoo.Checkpointed),
    "lists and dicts of parameters": Kind(zoo.Lists),
    "a branch on the record": Kind(zoo.Branching),
    "a frozen backbone": Kind(zoo.Frozen),
    "dropout": Kind(zoo.Dropping, random=True),
    "python's and numpy's randomness": Kind(zoo.PythonRandom, random=True),
    "seeds torch from a record": Kind(zoo.Reseeding, random=True),
    "a generator of its own": Kind(zoo.OwnGenerator),
    "a hook": Kind(zoo.plainly_hooked),
    "a layer whose forward is replaced": Kind(zoo.patched_method),
    "a layer whose forward is replaced by one of the original": Kind(
        zoo.patched, refused=r"`<lambda>\.plain\.\w+` requires"
    ),
    "group norm": Kind(lambda: zoo.images(nn.GroupNorm(2, 4)), data="images"),
    "batch norm, evaluating": Kind(lambda: zoo.normed(nn.BatchNorm2d(4), training=False), data="images"),
    "batch norm, evaluating, frozen": Kind(
        lambda: zoo.normed(nn.BatchNorm2d(4).requires_grad_(False), training=False), data="images"
    ),
    "instance norm": Kind(lambda: zoo.normed(nn.InstanceNorm2d(4, affine=True), training=True), data="images"),
    "instance norm, evaluating": Kind(
        lambda: zoo.normed(nn.InstanceNorm2d(4, track_running_stats=True), training=False), data="images"
    ),
    # models that do not
    "rebound buffer": Kind(zoo.ReboundBuffer, refused="`mean`"),
    "buffer in place": Kind(zoo.InPlaceBuffer, refused="`mean`"),
    "buffer behind torch's back": Kind(zoo.BehindTorch, refused="`mean`"),
    "mean as a float": Kind(zoo.FloatMean, refused="`mean`"),
    "mean as a float, in a part": Kind(zoo.NestedMean, refused="`encoder.mean`"),
    "previous input": Kind(zoo.Previous, refused="`previous`"),
    "queue": Kind(zoo.Queue, refused="`queue`"),
    "dict of arrays": Kind(zoo.Memo, refused=r"`memo\['shift'\]`"),
    "object with slots": Kind(zoo.Slotted, refused=r"`holder\.value`"),
    "stateful LSTM": Kind(zoo.StatefulLstm, refused="`hidden`"),
    "stateful GRUCell": Kind(zoo.StatefulCell, refused="`h`"),
    "stateful hook": Kind(zoo.hooked, refused="`hook.kept`"),
    "state of the class": Kind(zoo.OfClass, refused="`OfClass.total`"),
    "state of the class, made on the way": Kind(zoo.NewOfClass, refused="`NewOfClass.latest`"),
    "state of the module": Kind(zoo.Global, refused=r"SEEN\['total'\]`"),
    "a numpy number": Kind(zoo.Scalar, refused="`mean`"),
    "a stateful backward hook": Kind(zoo.BackwardHooked, refused="`kept`"),
    "a setting of torch": Kind(zoo.TorchSetting, refused=r"torch\.get_default_dtype"),
    "state that no name leads to": Kind(zoo.Hidden, refused="keeps state that cannot be seen"),
    "a maximum that no name leads to": Kind(zoo.HiddenMaximum, refused="keeps state that cannot be seen"),
    "the environment": Kind(zoo.Environment, refused="keeps state that cannot be seen"),
    "a variable of the thread": Kind(zoo.ThreadLocal, refused=r"LOCAL\.before`"),
    "a variable of the context": Kind(zoo.Contextual),
    "a weak dict": Kind(zoo.Weak, refused=r"BY_LAYER\.data"),
    "state of a metaclass": Kind(zoo.OfMetaclass, refused=r"`Registry\.total`"),
    "a function's cache that changes nothing": Kind(zoo.Tabulated),
    "a function's cache": Kind(zoo.Remembering, refused=r"`Remembering\.scale\.cache`"),
    "a scripted part with state": Kind(zoo.Scripted, refused="keeps state that cannot be seen"),
    "a scripted model": Kind(
        lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 3))), refused=r"layer '' \(RecursiveScriptModule\)"
    ),
    "a frozen bank, rotated": Kind(zoo.Bank, refused="`bank` is changed"),
    "custom function with a rule that mixes many": Kind(
        zoo.MixingManyFunction, refused="keeps state that cannot be seen"
    ),
    "custom function with a mixing rule": Kind(zoo.MixingFunction, refused="keeps state that cannot be seen"),
    "embedding with max_norm": Kind(zoo.NormedTokens, data="tokens", refused="max_norm=None"),
    "parameters changed in place": Kind(zoo.RenormedTokens, data="tokens", refused="`embedding.weight`"),
    "parameters changed behind torch's back": Kind(
        zoo.RenormedBehindTorch, data="tokens", refused="`embedding.weight`"
    ),
    "a parameter under another name": Kind(zoo.TiedInAList, refused=r"`others\[0\]` requires"),
    "a hook on a parameter": Kind(zoo.double_hooked, refused="'weight' has a hook"),
    "complex parameters": Kind(zoo.Complex, refused="'phase'.*complex64"),
    "a model without numbers": Kind(lambda: zoo.Model().to("meta"), refused="'out.weight' is on torch's meta device"),
    "lazy layers": Kind(zoo.lazy, refused="lazy"),
    "batch norm, training": Kind(
        lambda: zoo.normed(nn.BatchNorm2d(4), training=True), data="images", refused=r"'1' \(BatchNorm2d\).*precad\.fix"
    ),
    "batch norm without statistics, evaluating": Kind(
        lambda: zoo.normed(nn.BatchNorm2d(4, track_running_stats=False), training=False),
        data="images",
        refused=r"'1' \(BatchNorm2d\).*precad\.fix",
    ),
    "instance norm with statistics": Kind(
        lambda: zoo.normed(nn.InstanceNorm2d(4, track_running_stats=True), training=True),
        data="images",
        refused=r"'1' \(InstanceNorm2d\).*precad\.fix",
    ),
    "the mean of a batch": Kind(zoo.Centred, refused="mixes the records of a batch.*mean"),
    "the mean of a batch, kept": Kind(zoo.Pooled, refused="mixes the records of a batch"),
    "softmax over a batch": Kind(
        lambda: nn.Sequential(nn.Linear(8, 3), nn.Softmax(0)), refused="mixes the records of a batch.*softmax"
    ),
    "LSTM over a batch": Kind(zoo.BatchSecond, refused="mixes the records of a batch.*batch_first"),
    "LSTM over a batch, with dropout": Kind(zoo.DroppingBatchSecond, refused="mixes the records of a batch"),
    "outputs without a batch": Kind(zoo.Squeezed, loss(lambda o, t: F.cross_entropy(o.view(-1, 3), t))),
    "outputs with the batch second": Kind(zoo.GivesBatchSecond, loss(lambda o, t: F.cross_entropy(o.mean(0), t))),
    "outputs with several rows for a record": Kind(
        zoo.SeveralRows, loss(lambda o, t: F.cross_entropy(o.view(-1, 2, 3).mean(1), t))
    ),
    # losses
    "squares, broadcast": Kind(
        lambda: nn.Linear(8, 1), nn.MSELoss, data="numbers", refused=r"not the mean.*\(n, 1\).*\(n,\)"
    ),
    "squares by a function, broadcast": Kind(
        zoo.OneOutput, loss(F.mse_loss), data="numbers", refused=r"not the mean.*\(n, 1\).*\(n,\)"
    ),
    "cross-entropy": Kind(loss=nn.CrossEntropyLoss),
    "cross-entropy, summed": Kind(loss=lambda: nn.CrossEntropyLoss(reduction="sum")),
    "cross-entropy with weights": Kind(
        loss=lambda: nn.CrossEntropyLoss(weight=WEIGHTS), expected=lambda: nn.CrossEntropyLoss(WEIGHTS, reduction="sum")
    ),
    "cross-entropy with weights, in torch": Kind(
        zoo.Tied,
        lambda: nn.CrossEntropyLoss(weight=WEIGHTS),
        expected=lambda: nn.CrossEntropyLoss(WEIGHTS, reduction="sum"),
    ),
    "cross-entropy with weights and smoothing": Kind(
        loss=lambda: nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1),
        expected=lambda: nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1, reduction="sum"),
    ),
    "negative log-likelihood with weights": Kind(
        lambda: nn.Sequential(nn.Linear(8, 3), nn.LogSoftmax(1)),
        lambda: nn.NLLLoss(WEIGHTS),
        expected=lambda: nn.NLLLoss(WEIGHTS, reduction="sum"),
    ),
    "weights in a mean of one's own": Kind(
        loss=loss(lambda o, t: (WEIGHTS[t] * F.cross_entropy(o, t, reduction="none")).mean())
    ),
    "weights in torch's function": Kind(
        loss=lambda: partial(F.cross_entropy, weight=WEIGHTS), refused=r"not the mean.*reduction=\"none\""
    ),
    "weights in a lambda": Kind(
        zoo.Tied, loss(lambda o, t: F.cross_entropy(o, t, weight=WEIGHTS)), refused="not the mean"
    ),
    "label smoothing": Kind(loss=lambda: nn.CrossEntropyLoss(label_smoothing=0.2)),
    "an ignored label": Kind(
        loss=lambda: nn.CrossEntropyLoss(ignore_index=1),
        expected=lambda: nn.CrossEntropyLoss(ignore_index=1, reduction="sum"),
    ),
    "an ignored label, in torch": Kind(
        zoo.Tied,
        lambda: nn.CrossEntropyLoss(ignore_index=1),
        expected=lambda: nn.CrossEntropyLoss(ignore_index=1, reduction="sum"),
    ),
    "one loss for each record": Kind(loss=loss(zoo.per_record)),
    "binary cross-entropy with pos_weight": Kind(loss=loss(zoo.one_hot_bce)),
    "squares": Kind(loss=nn.MSELoss, data="values"),
    "Huber": Kind(zoo.Gru, nn.HuberLoss, data="values"),
    "focal": Kind(loss=zoo.Focal),
    "a loss with a constant parameter": Kind(loss=zoo.Margin),
    "a loss with a parameter": Kind(loss=lambda: zoo.Margin(trained=True), refused=r"`loss\.scale` requires"),
    "a loss of the model's parameters": Kind(loss=zoo.regularised, refused=r"`loss\.model\.out\.\w+` requires"),
    "a loss that draws": Kind(loss=loss(zoo.noisy), random=True),
    "a loss with a history": Kind(loss=zoo.HarmlessHistory),
    "a loss that raises for some": Kind(loss=loss(zoo.picky)),
    "a loss with a running baseline": Kind(loss=zoo.RunningBaseline, refused=r"`loss\.baseline`"),
    "a loss with a running baseline, in torch": Kind(zoo.Tied, zoo.RunningBaseline, refused=r"`loss\.baseline`"),
    "a loss with a closure": Kind(loss=zoo.closure, refused=r"`loss\.scale`"),
    "a loss with an attribute": Kind(loss=zoo.in_an_attribute, refused=r"`loss\.before`"),
    "a loss with a default": Kind(loss=zoo.in_a_default, refused="`loss` keeps"),
    "a loss that overwrites its targets": Kind(loss=loss(zoo.overwriting)),
    "a loss that is no tensor": Kind(
        loss=loss(lambda o, t: float(F.cross_entropy(o, t))), refused="must be.*got float"
    ),
    "a loss that is complex": Kind(loss=loss(lambda o, t: 1j * F.cross_entropy(o, t)), refused="must be.*complex64"),
    "a loss for each class": Kind(loss=loss(lambda o, _: o.exp()[0]), refused=r"must be.*shape \(3,\)"),
    "a contrastive loss": Kind(loss=loss(zoo.contrastive), refused="not the mean"),
}


def records(kind: str, number: int = 20) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    match kind:
        case "tokens":
            return torch.randint(0, 12, (number, 6), generator=generator), classes(number, 3)
        case "short tokens":
            return torch.randint(0, 12, (number, 6), generator=generator, dtype=torch.int32), classes(number, 3)
        case "images":
            return normal(number, 3, 8, 8), classes(number, 3)
        case "numbers":
            return normal(number, 8), normal(number, 1, seed=2)[:, 0]
        case "values":
            return normal(number, 8), normal(number, 3, seed=2)
    return normal(number, 8), classes(number, 3)


def fresh_copies(model: nn.Module, loss: Any, x: Tensor, y: Tensor) -> NDArray[np.float32]:
    """The reference: a loop over the records, each with a model and a loss of its own; 0 for one that raises."""
    rows = []
    for i in range(len(x)):
        own, own_loss = copied(model), copy.deepcopy(loss)
        trained = [p for p in own.parameters() if p.requires_grad]
        try:
            outputs = copy_context().run(own, x[i : i + 1].clone())
            value = own_loss(outputs, y[i : i + 1].clone()).reshape(())
            found = torch.autograd.grad(value, trained, allow_unused=True, materialize_grads=True)
            rows.append(torch.cat([g.to_dense().flatten() for g in found]).numpy())
        except LookupError:
            rows.append(np.zeros(sum(p.numel() for p in trained), np.float32))
    return np.array(rows)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about old ways and slow paths
        yield


@pytest.mark.parametrize("name", TABLE)
def test_a_kind_of_model_or_loss(name: str) -> None:
    kind = TABLE[name]
    model, given, (x, y) = seeded(kind.build), kind.loss(), records(kind.data)
    if kind.refused:
        with pytest.raises(ValueError, match=kind.refused):
            PerRecordGradients(model, given, threads=1).per_record(theta_of(model), x, y)
        return
    engine, before = PerRecordGradients(model, given, threads=1), x.clone()
    torch.manual_seed(3)
    rows = engine.per_record(theta_of(model), x, y)
    assert torch.equal(x, before)
    assert np.abs(rows).max() > 0
    if not kind.random:
        assert_close(rows, fresh_copies(model, (kind.expected or kind.loss)(), x, y), kind.tolerance)
    other, labels = x.clone(), y.clone()
    other[7], labels[7] = other[8], labels[8]
    if labels.is_floating_point():
        other[9] = torch.nan
    else:
        labels[9] = 1_000  # a label that there is not
    if not other.is_floating_point():
        other[9] = 1_000  # nor such a token
    torch.manual_seed(3)
    again = engine.per_record(theta_of(model), other, labels)
    assert np.array_equal(np.delete(again, [7, 9], 0), np.delete(rows, [7, 9], 0))
    assert not np.nan_to_num(again[9]).any() or labels.is_floating_point()


def test_a_refusal_names_the_state_and_not_what_torch_makes_anew() -> None:
    model, (x, y) = seeded(zoo.StatefulLstm), records("vectors")
    with pytest.raises(ValueError, match=r"^`hidden` keeps state"):
        PerRecordGradients(model, F.cross_entropy).per_record(theta_of(model), x, y)


def test_what_is_near_is_watched_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "_MOST", 1000)
    model, (x, y) = seeded(zoo.Crowded), records("vectors")
    with pytest.raises(ValueError, match=r"`kept\[0\]`"):
        PerRecordGradients(model, F.cross_entropy).per_record(theta_of(model), x, y)


def test_one_record_that_changes_all_later_ones_is_noticed_in_its_round() -> None:
    model, (x, y) = seeded(zoo.Latch), records("vectors")
    engine = PerRecordGradients(model, F.cross_entropy)
    for _ in range(2):
        engine.per_record(theta_of(model), x, y)
    x[7] = 1e6
    with pytest.raises(ValueError, match="keeps state that cannot be seen"):
        engine.per_record(theta_of(model), x, y)


@pytest.mark.parametrize("value", [zoo.Stopping, zoo.Exiting])
def test_whatever_a_record_raises_it_counts_as_nothing(value: Any) -> None:
    model, (x, y) = seeded(value), records("vectors")
    engine = PerRecordGradients(model, F.cross_entropy)
    before = engine.per_record(theta_of(model), x, y)
    x[7] = 1e6
    after = engine.per_record(theta_of(model), x, y)
    assert not after[7].any()
    assert np.array_equal(np.delete(after, 7, 0), np.delete(before, 7, 0))
    assert list(engine.faults(theta_of(model), x, y)) == [7]


def test_hooks_on_all_modules_are_run() -> None:
    kept = [0.0]

    def hook(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        kept[0] += float(output.sum())
        return output * kept[0]

    model, (x, y) = nn.Sequential(nn.Linear(8, 3)), records("vectors")
    handle = nn.modules.module.register_module_forward_hook(hook)  # type: ignore[arg-type]
    try:
        with pytest.raises(ValueError, match=r"`hook\.kept`"):
            PerRecordGradients(model, F.cross_entropy).per_record(theta_of(model), x, y)
    finally:
        handle.remove()


def test_a_group_norm_of_vectors_takes_a_single_record() -> None:
    model, (x, y) = nn.Sequential(nn.Linear(8, 4), nn.GroupNorm(4, 4), nn.Linear(4, 3)), records("vectors")
    engine = PerRecordGradients(model, F.cross_entropy)
    both = engine.per_record(theta_of(model), x[:2], y[:2])
    assert_close(engine.per_record(theta_of(model), x[:1], y[:1]), both[:1])


def test_what_a_person_changes_between_calls_is_no_state() -> None:
    settings = {"scale": 1.0}

    def scaled(outputs: Tensor, targets: Tensor) -> Tensor:
        return settings["scale"] * F.cross_entropy(outputs, targets)

    model, (x, y) = seeded(zoo.Gru), records("vectors")
    engine = PerRecordGradients(model, scaled)
    once = engine.per_record(theta_of(model), x, y)
    settings["scale"] = 2.0
    assert np.array_equal(engine.per_record(theta_of(model), x, y), 2 * once)


def test_a_fixed_model_has_no_batch_norm() -> None:
    model: Any = nn.Sequential(zoo.images(nn.BatchNorm2d(4)), nn.Linear(3, 40), nn.BatchNorm1d(40), nn.Linear(40, 3))
    model[0][1].weight.data.fill_(3.0)
    before = {name: p.clone() for name, p in model.named_parameters()}
    fixed: Any = precad.fix(model)
    assert isinstance(model[2], nn.BatchNorm1d)
    assert [type(m) for m in fixed.modules()].count(nn.GroupNorm) == 2
    assert (fixed[0][1].num_groups, fixed[2].num_groups) == (4, 1)
    assert all(torch.equal(p, before[name]) for name, p in fixed.named_parameters())
    assert {id(p) for p in fixed.parameters()}.isdisjoint(id(p) for p in model.parameters())
    x, y = records("images")
    rows = PerRecordGradients(fixed, F.cross_entropy).per_record(theta_of(fixed), x, y)
    assert_close(rows, fresh_copies(fixed, F.cross_entropy, x, y))
    assert isinstance(precad.fix(nn.BatchNorm1d(6, affine=False)), nn.GroupNorm)
    instance: Any = precad.fix(nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True)))
    assert instance[0].running_mean is None
    check_model(nn.Sequential(instance, nn.Linear(2, 2)))


def test_the_table_is_long() -> None:
    assert len(TABLE) >= 80
    assert len({kind.build for kind in TABLE.values()}) >= 40
