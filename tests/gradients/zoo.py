"""Models and losses of many kinds, for the table of ``test_zoo``."""

import contextvars
import functools
import os
import random  # noqa: TID251 - a model draws from it
import sys
import threading
import types
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

SEEN: dict[str, Any] = {}
"""State of a module, for models that keep it there."""
LOCAL = threading.local()
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=0.0)
BY_LAYER: weakref.WeakKeyDictionary[nn.Module, float] = weakref.WeakKeyDictionary()


class Model(nn.Module):
    """A linear layer, and what a subclass does before it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.out = nn.Linear(width, 3)
        self.setup()

    def setup(self) -> None: ...

    def features(self, x: Tensor) -> Any:
        return x

    def forward(self, x: Tensor) -> Any:
        return self.out(self.features(x))


class Attention(Model):
    def setup(self) -> None:
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def features(self, x: Tensor) -> Any:
        x = x.view(-1, 2, 4)
        return self.attention(x, x, x)[0].flatten(1)


class CausalAttention(Model):
    def setup(self) -> None:
        self.embedding = nn.Embedding(12, 8)

    def features(self, x: Tensor) -> Any:
        x = self.embedding(x)
        return F.scaled_dot_product_attention(x, x, x, is_causal=True).mean(1)


class Transformer(Model):
    def setup(self) -> None:
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=self.dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    dropout = 0.0

    def features(self, x: Tensor) -> Any:
        return self.encoder(x.view(-1, 2, 4)).flatten(1)


class DroppingTransformer(Transformer):
    dropout = 0.3


class Tied(Model):
    def setup(self) -> None:
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.b.weight = self.a.weight

    def features(self, x: Tensor) -> Any:
        return self.b(self.a(x).tanh()).tanh()


class TiedInAList(Model):
    def setup(self) -> None:
        self.others = [self.out.weight]

    def forward(self, x: Tensor) -> Any:
        return F.linear(x, self.others[0]) + self.out(x)


class Recurrent(Model):
    kind: Any = nn.LSTM

    def setup(self) -> None:
        self.rnn = self.kind(4, 8, batch_first=True)

    def features(self, x: Tensor) -> Any:
        return self.rnn(x.view(-1, 2, 4))[0][:, -1]


class Gru(Recurrent):
    kind = nn.GRU


class BatchSecond(Model):
    dropout = 0.0

    def setup(self) -> None:
        self.rnn, self.drop = nn.LSTM(4, 8), nn.Dropout(self.dropout)

    def features(self, x: Tensor) -> Any:
        return self.drop(self.rnn(x.view(-1, 2, 4))[0][:, -1])


class DroppingBatchSecond(BatchSecond):
    dropout = 0.5


class Centred(Model):
    def features(self, x: Tensor) -> Any:
        return x - x.mean(0)


class Pooled(Model):
    def features(self, x: Tensor) -> Any:
        return x.mean(0, keepdim=True)


class Squeezed(Model):
    def forward(self, x: Tensor) -> Any:
        return self.out(x).squeeze()


class GivesBatchSecond(Model):
    def forward(self, x: Tensor) -> Any:
        return torch.stack([self.out(x), self.out(x.tanh())])


class SeveralRows(Model):
    def forward(self, x: Tensor) -> Any:
        return torch.stack([self.out(x), self.out(x.tanh())], 1).flatten(0, 1)


class OneOutput(Model):
    def forward(self, x: Tensor) -> Any:
        return self.out(x).sum(1, keepdim=True)


class StatefulLstm(Recurrent):
    def setup(self) -> None:
        super().setup()
        self.hidden: Any = None

    def features(self, x: Tensor) -> Any:
        y, hidden = self.rnn(x.view(-1, 2, 4), self.hidden)
        self.hidden = tuple(h.detach() for h in hidden)
        return y[:, -1]


class StatefulCell(Model):
    def setup(self) -> None:
        self.cell = nn.GRUCell(8, 8)
        self.h = torch.zeros(1, 8)

    def features(self, x: Tensor) -> Any:
        self.h = self.cell(x, self.h.detach())
        return self.h


class FreshCell(Model):
    def setup(self) -> None:
        self.cell = nn.GRUCell(8, 8)

    def features(self, x: Tensor) -> Any:
        h = x.new_zeros(len(x), 8)
        for _ in range(3):
            h = self.cell(x, h)
        return h


class Tokens(Model):
    options: dict[str, Any] = {}  # noqa: RUF012 - a constant of the class

    def setup(self) -> None:
        self.embedding = nn.Embedding(12, 8, **self.options)

    def features(self, x: Tensor) -> Any:
        return self.embedding(x).mean(1)


class PaddedTokens(Tokens):
    options = {"padding_idx": 0}  # noqa: RUF012


class SparseTokens(Tokens):
    options = {"sparse": True}  # noqa: RUF012


class NormedTokens(Tokens):
    options = {"max_norm": 1.0}  # noqa: RUF012


class RenormedTokens(Tokens):
    def features(self, x: Tensor) -> Any:
        with torch.no_grad():
            self.embedding.weight.clamp_(-0.1, 0.1)
        return super().features(x)


class RenormedBehindTorch(Tokens):
    def features(self, x: Tensor) -> Any:
        self.embedding.weight.data[x] *= 0.5
        return super().features(x)


class Bag(Model):
    def setup(self) -> None:
        self.embedding = nn.EmbeddingBag(12, 8, mode="mean")

    def features(self, x: Tensor) -> Any:
        return self.embedding(x)


class WeightNormed(Model):
    def setup(self) -> None:
        self.inner = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def features(self, x: Tensor) -> Any:
        return self.inner(x).tanh()


class OldWeightNormed(WeightNormed):
    def setup(self) -> None:
        self.inner = nn.utils.weight_norm(nn.Linear(8, 8))


class SpectralNormed(WeightNormed):
    def setup(self) -> None:
        self.inner = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))


class OldSpectralNormed(WeightNormed):
    def setup(self) -> None:
        self.inner = nn.utils.spectral_norm(nn.Linear(8, 8))


class Autocast(Model):
    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.out(x).float()


class Square(torch.autograd.Function):
    """In the style that torch.func does not take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return 2 * dy * ctx.saved_tensors[0]


class NewSquare(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return 2 * dy * ctx.saved_tensors[0]


class MixingRule(NewSquare):
    """Batches by a rule of its own, which mixes the records."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:  # noqa: ARG004
        return x * x + 0 * x.sum() + (x.mean() if info.batch_size > 2 else 0), 0


class MixingMany(MixingRule):
    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:  # noqa: ARG004
        return x * x + (x.std() * x if info.batch_size > 10 else 0), 0


class OldFunction(Model):
    function: Any = Square

    def forward(self, x: Tensor) -> Any:
        return self.function.apply(self.out(x))


class NewFunction(OldFunction):
    function = NewSquare


class MixingFunction(OldFunction):
    function = MixingRule


class MixingManyFunction(OldFunction):
    function = MixingMany


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


class GivesDataclass(Model):
    def forward(self, x: Tensor) -> Output:
        return Output(self.out(x), x)


class GivesDict(Model):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.out(x)}


class GivesTuple(Model):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.out(x), x


class ReboundBuffer(Model):
    def setup(self) -> None:
        self.mean: Any
        self.register_buffer("mean", torch.zeros(8))

    def features(self, x: Tensor) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class InPlaceBuffer(ReboundBuffer):
    def features(self, x: Tensor) -> Any:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


class BehindTorch(ReboundBuffer):
    def features(self, x: Tensor) -> Any:
        self.mean.data += 0.1 * x.detach().mean(0)
        return x - self.mean


class FloatMean(Model):
    def setup(self) -> None:
        self.mean = 0.0

    def features(self, x: Tensor) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * float(x.sum())
        return x + self.mean


class NestedMean(Model):
    def setup(self) -> None:
        self.encoder = FloatMean()

    def features(self, x: Tensor) -> Any:
        return self.encoder.features(x)


class Previous(Model):
    def setup(self) -> None:
        self.previous: Tensor | None = None

    def features(self, x: Tensor) -> Any:
        before, self.previous = self.previous, x
        return x if before is None else x + before


class Queue(Model):
    def setup(self) -> None:
        self.queue: deque[Tensor] = deque(maxlen=4)

    def features(self, x: Tensor) -> Any:
        self.queue.append(x.detach())
        return x - torch.stack(tuple(self.queue)).mean(0)


class Memo(Model):
    def setup(self) -> None:
        self.memo: dict[str, Any] = {"shift": np.zeros(8, np.float32)}

    def features(self, x: Tensor) -> Any:
        self.memo["shift"] += x.detach().numpy()[0]
        return x + torch.from_numpy(self.memo["shift"])


class Holder:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Slotted(Model):
    def setup(self) -> None:
        self.holder = Holder()

    def features(self, x: Tensor) -> Any:
        self.holder.value += float(x.sum())
        return x + self.holder.value


def hooked() -> nn.Module:
    model, kept = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)), [torch.zeros(8)]

    def hook(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        kept[0] = 0.9 * kept[0] + output.detach()[0]
        return output + kept[0]

    model[0].register_forward_hook(hook)
    return model


def plainly_hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    model[0].register_forward_hook(lambda _module, _inputs, output: output.tanh())
    return model


class OfClass(Model):
    total = 0.0

    def features(self, x: Tensor) -> Any:
        type(self).total += float(x.sum())
        return x + type(self).total


class NewOfClass(Model):
    def features(self, x: Tensor) -> Any:
        before = getattr(type(self), "latest", 0.0)
        type(self).latest = float(x.sum())  # type: ignore[attr-defined]
        return x + before


class Global(Model):
    def features(self, x: Tensor) -> Any:
        SEEN["total"] = SEEN.get("total", 0.0) + float(x.sum())
        return x + SEEN["total"]


class Hidden(Model):
    """Where no name in the code leads to."""

    def features(self, x: Tensor) -> Any:
        place: Any = sys.modules["tests.gradients.zoo"]
        place._hidden = getattr(place, "_hidden", 0.0) + float(x.sum())
        return x + getattr(place, "_hidden")  # noqa: B009


class HiddenMaximum(Model):
    """Soon reached, and then the same for all records."""

    def features(self, x: Tensor) -> Any:
        place: Any = sys.modules["tests.gradients.zoo"]
        place._most = max(getattr(place, "_most", 0.0), float(x.abs().sum()))
        return x / getattr(place, "_most")  # noqa: B009


class Latch(Model):
    """One record changes all that come later."""

    def features(self, x: Tensor) -> Any:
        place: Any = sys.modules["tests.gradients.zoo"]
        before = getattr(place, "_latched", 0.0)
        if float(x.sum()) > 1000:
            place._latched = 1.0
        return x * (1 + before)


class Environment(Model):
    def features(self, x: Tensor) -> Any:
        before = os.environ.get("PRECAD_TEST", "0")
        os.environ["PRECAD_TEST"] = str(float(x.sum()))
        return x + float(before)


class ThreadLocal(Model):
    def features(self, x: Tensor) -> Any:
        before = getattr(LOCAL, "before", 0.0)
        LOCAL.before = float(x.sum())
        return x + before


class Contextual(Model):
    def features(self, x: Tensor) -> Any:
        before = VARIABLE.get()
        VARIABLE.set(float(x.sum()))
        return x + before


class Weak(Model):
    def features(self, x: Tensor) -> Any:
        before = BY_LAYER.get(self.out, 0.0)
        BY_LAYER[self.out] = float(x.sum())
        return x + before


class Registry(type):
    total = 0.0


class Registered(metaclass=Registry): ...


class OfMetaclass(Model):
    def features(self, x: Tensor) -> Any:
        type(Registered).total += float(x.sum())
        return x + type(Registered).total


@functools.lru_cache
def table(width: int) -> Tensor:
    return torch.cos(torch.arange(width) / 3)


class Tabulated(Model):
    def features(self, x: Tensor) -> Any:
        return x * table(x.shape[1])


class Remembering(Model):
    """What the first record of its kind was."""

    @functools.lru_cache  # noqa: B019 - the mistake that is meant
    def scale(self, positive: bool) -> float:  # noqa: ARG002
        return self.latest

    def features(self, x: Tensor) -> Any:
        self.latest = float(x.sum())
        return x * self.scale(self.latest > 0)


class Compiled(nn.Module):
    """State in torch's own language."""

    most: float

    def __init__(self) -> None:
        super().__init__()
        self.most = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.most = max(self.most, float(x.abs().max()))
        return x / (1 + self.most)


class Scripted(Model):
    def setup(self) -> None:
        self.inner: Any = torch.jit.script(Compiled())

    def features(self, x: Tensor) -> Any:
        return self.inner(x)


class Bank(Model):
    """Rotated behind torch's back: the same numbers in another order."""

    def setup(self) -> None:
        self.bank = nn.Parameter(torch.randn(64, 64), requires_grad=False)

    def features(self, x: Tensor) -> Any:
        first = float(self.bank[0, 0])
        self.bank.data.copy_(self.bank.data.roll(1, 0))
        return x * first


class Crowded(Model):
    """State behind more objects than can be watched."""

    def setup(self) -> None:
        self.kept = [[0.0]]
        self.crowd = [[[i]] for i in range(1000)]

    def features(self, x: Tensor) -> Any:
        place = self.kept[0]
        place[0] = max(place[0], float(x.abs().sum()))
        return x / place[0]


class Stop(BaseException):
    def __str__(self) -> str:
        raise LookupError("it has no text")


class Stopping(Model):
    def features(self, x: Tensor) -> Any:
        if float(x.sum()) > 1000:
            raise Stop
        return x


class Exiting(Model):
    def features(self, x: Tensor) -> Any:
        return x if float(x.sum()) < 1000 else sys.exit(3)


class Reseeding(Model):
    """Seeds torch from a record, so that later draws would depend on it."""

    def features(self, x: Tensor) -> Any:
        noise = torch.rand(8)
        torch.manual_seed(int(1000 * float(x.sum())))
        return x + noise


class Rotary(Model):
    def setup(self) -> None:
        self.tables: dict[int, Tensor] = {}

    def features(self, x: Tensor) -> Any:
        if x.shape[1] not in self.tables:
            self.tables[x.shape[1]] = torch.cos(torch.arange(x.shape[1]) / 3)
        self.latest = x.detach()
        return x * self.tables[x.shape[1]]


class Counting(Model):
    def setup(self) -> None:
        self.calls: Any
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def features(self, x: Tensor) -> Any:
        self.calls += 1
        return x


class InPlace(Model):
    def features(self, x: Tensor) -> Any:
        return x.mul_(2).relu_()


class Checkpointed(Model):
    def setup(self) -> None:
        self.inner = nn.Linear(8, 8)

    def features(self, x: Tensor) -> Any:
        return checkpoint(lambda x: self.inner(x).tanh(), x, use_reentrant=False)


class Lists(Model):
    def setup(self) -> None:
        self.weights = nn.ParameterList(nn.Parameter(torch.eye(8) * (i + 1)) for i in range(2))
        self.shifts = nn.ParameterDict({"a": nn.Parameter(torch.zeros(8))})

    def features(self, x: Tensor) -> Any:
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x + self.shifts["a"]


class Complex(Model):
    def setup(self) -> None:
        self.phase = nn.Parameter(torch.zeros(8, dtype=torch.complex64))

    def features(self, x: Tensor) -> Any:
        return (x * self.phase.exp()).real


class Branching(Model):
    """Takes a path that depends on its record."""

    def features(self, x: Tensor) -> Any:
        return x.tanh() if float(x.sum()) > 0 else x[:, x[0].argsort()]


class Frozen(Model):
    def setup(self) -> None:
        self.backbone = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).requires_grad_(False)

    def features(self, x: Tensor) -> Any:
        return self.backbone(x)


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.Flatten(), nn.Linear(144, 3))


def normed(norm: Any, *, training: bool) -> nn.Module:
    if norm.running_mean is not None:
        norm.running_mean.normal_()
    return images(norm.train(training))


class TorchSetting(Model):
    def features(self, x: Tensor) -> Any:
        scale = 2 if torch.get_default_dtype() == torch.float64 else 1
        torch.set_default_dtype(torch.float64 if float(x.sum()) > 0 else torch.float32)
        return scale * x


class Scalar(Model):
    def setup(self) -> None:
        self.mean = np.float32(0)

    def features(self, x: Tensor) -> Any:
        self.mean = np.float32(self.mean + float(x.sum()))
        return x + float(self.mean)


class BackwardHooked(Model):
    def setup(self) -> None:
        self.kept = [0.0]
        self.inner = nn.Linear(8, 8)
        self.out.register_full_backward_hook(self.hook)

    def hook(self, _module: Any, inputs: Any, _outputs: Any) -> Any:
        self.kept[0] += float(inputs[0].sum())
        return (inputs[0] * self.kept[0],)

    def features(self, x: Tensor) -> Any:
        return self.inner(x)


class Dropping(Model):
    def features(self, x: Tensor) -> Any:
        return F.dropout(x, 0.5)


class PythonRandom(Model):
    def features(self, x: Tensor) -> Any:
        return x * (random.random() + np.random.rand())  # noqa: NPY002, S311


class OwnGenerator(Model):
    def setup(self) -> None:
        self.seed = 3

    def features(self, x: Tensor) -> Any:
        generator = torch.Generator().manual_seed(self.seed)
        return x + torch.rand(x.shape, generator=generator)


def patched_method() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 3))
    model[0].forward = types.MethodType(lambda self, x: F.linear(2 * x, self.weight), model[0])
    return model


def patched() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 3))
    plain = model[0].forward
    model[0].forward = lambda x: plain(2 * x)
    return model


def double_hooked() -> nn.Module:
    model: Any = nn.Linear(8, 3)
    model.weight.register_hook(lambda gradient: 2 * gradient)
    return model  # type: ignore[no-any-return]


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


# Losses: of outputs and targets.


class RunningBaseline(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.baseline = 0.0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(outputs, targets, reduction="none")
        weight = losses.detach() - self.baseline
        self.baseline = 0.9 * self.baseline + 0.1 * float(losses.mean())
        return (weight * losses).mean()


class HarmlessHistory:
    def __init__(self) -> None:
        self.history: list[float] = []

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(outputs, targets)
        self.history.append(float(loss))
        return loss


def closure() -> Any:
    scale = 1.0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal scale
        value = scale * F.cross_entropy(outputs, targets)
        scale = float(value)
        return value

    return loss


def in_an_attribute() -> Any:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        value = F.cross_entropy(outputs, targets)
        before = getattr(loss, "before", 1.0)
        loss.before = float(value)  # type: ignore[attr-defined]
        return before * value

    return loss


def in_a_default() -> Any:
    def loss(outputs: Tensor, targets: Tensor, kept: list[float] = []) -> Tensor:  # noqa: B006 - the mistake that is meant
        kept.append(float(outputs.detach().sum()))
        return F.cross_entropy(outputs, targets) * (1 + sum(kept[:-1]))

    return loss


class Focal(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return ((1 - (-losses).exp()) ** 2 * losses).mean()


class Margin(nn.Module):
    """With a parameter of its own."""

    def __init__(self, *, trained: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=trained)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.scale * outputs, targets)


def regularised() -> Any:
    model = Model()

    def loss(outputs: Tensor, targets: Tensor) -> Any:
        return F.cross_entropy(outputs, targets) + 0.1 * sum(p.square().sum() for p in model.parameters())

    return loss


def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    apart = torch.cdist(outputs, outputs)
    same = targets[:, None] == targets
    return (apart * same).mean() + F.relu(1 - apart)[~same].sum()


def one_hot_bce(outputs: Tensor, targets: Tensor) -> Tensor:
    wanted = F.one_hot(targets, 3).float()
    return F.binary_cross_entropy_with_logits(outputs, wanted, pos_weight=torch.tensor([1.0, 2.0, 3.0]))


def noisy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs + torch.randn_like(outputs), targets)


def of_attribute(outputs: Any, targets: Tensor) -> Any:
    return F.cross_entropy(outputs.logits, targets) + outputs.hidden.square().mean()


def of_key(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"], targets)


def of_first(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs[0], targets)


def picky(outputs: Tensor, targets: Tensor) -> Tensor:
    if float(outputs.sum()) > 0.5:
        raise LookupError("too large")
    return F.cross_entropy(outputs, targets)


def overwriting(outputs: Tensor, targets: Tensor) -> Tensor:
    value = F.cross_entropy(outputs, targets.clone())
    targets.zero_()
    return value


def per_record(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")
