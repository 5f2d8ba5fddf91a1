"""The clipped sums of a round's clients against the usual ways, which take one client at a time."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from precad.gradients.engine import PerRecordGradients
from precad.lab.bench import medians
from precad.simulation.models import cifar_cnn, mnist_cnn

CLIENTS = 10
RECORD_BOUND = 2.0
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]] = {
    "mnist": (mnist_cnn, (1, 28, 28), 30),
    "cifar10": (cifar_cnn, (3, 32, 32), 25),
}
"""Name → model, shape of a record, records of a client."""

TARGETS = {"mnist": {"opacus": 3.0, "autograd": 1.0}, "cifar10": {"opacus": 2.0, "autograd": 1.0}}
"""How many times as fast as each other way we want to be, at least."""


def run(repeats: int = 15) -> dict[str, dict[str, Any]]:
    """For each model, milliseconds per client of every way, and how many times as fast as it ours is.

    ``ours``, ``vmap`` and ``opacus`` give sums of clipped gradients (ours in exact integers); ``autograd`` is the plain
    gradient without privacy. ``opacus`` is None if it is not installed. All use torch's present number of threads.
    """
    return {name: _row(name, repeats) for name in MODELS}


def _row(name: str, repeats: int) -> dict[str, Any]:
    build, shape, records = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    model = build()
    inputs = torch.randn(CLIENTS * records, *shape, generator=generator)
    targets = torch.randint(0, 10, (len(inputs),), generator=generator)
    theta = nn.utils.parameters_to_vector(model.parameters()).detach().numpy().astype(np.float64)
    ours, counts = PerRecordGradients(model, nn.functional.cross_entropy), np.full(CLIENTS, records)
    clients = [(inputs[i : i + records], targets[i : i + records]) for i in range(0, len(inputs), records)]
    cases: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.clipped_sums(
            theta, inputs, targets, counts, record_bound=RECORD_BOUND, fractional_bits=16
        ),
        "vmap": lambda: [_vmap(model, x, y) for x, y in clients],
        "autograd": lambda: [_autograd(model, x, y) for x, y in clients],
    }
    hooked = _with_opacus(build())
    if hooked is not None:
        cases["opacus"] = lambda: [_opacus(hooked, x, y) for x, y in clients]
    ms: dict[str, float | None] = {"opacus": None}
    ms |= {case: total / CLIENTS for case, total in medians(cases, repeats).items()}
    times = {case: value / ms["ours"] if value and ms["ours"] else None for case, value in ms.items()}
    missed = [case for case, target in TARGETS[name].items() if (times[case] or target) < target]
    return {"records": records, "threads": torch.get_num_threads(), "ms": ms, "times": times, "missed": missed}


def _autograd(model: nn.Module, x: Tensor, y: Tensor) -> Sequence[Tensor]:
    return torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters()))


def _vmap(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    def loss(parameters: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, parameters, (record[None],)), target[None])

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    return _clipped(list(vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y).values()))


def _with_opacus(model: nn.Module) -> Any:
    try:
        from opacus import GradSampleModule
    except ImportError:
        return None
    return GradSampleModule(model)


def _opacus(hooked: Any, x: Tensor, y: Tensor) -> list[Tensor]:
    hooked.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about Opacus' hooks
        nn.functional.cross_entropy(hooked(x), y).backward()  # type: ignore[no-untyped-call]
    return _clipped([p.grad_sample for p in hooked.parameters()])


def _clipped(gradients: list[Tensor]) -> list[Tensor]:
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    factors = (RECORD_BOUND / norms).clamp(max=1.0)
    return [torch.einsum("r,r...->...", factors, g) for g in gradients]
