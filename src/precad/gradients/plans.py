"""What is decided about a person's code, on made-up records alone: so that no decision tells of the data (PROTOCOL §9).

Whether torch can batch it; whether a record's gradient depends on state that another record changed, which is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from precad.gradients.isolation import StateError, same_numbers
from precad.gradients.runs import Gradients, Runs, demanded, same

_LARGE = 1000.0
_OF_TORCH = ("_flat_weights", "_flat_weight_refs")
"""What torch makes anew in each pass of its recurrent layers."""


@dataclass(frozen=True)
class Plan:
    """A made-up record that the code takes, whether torch can batch the code, and what it gave at first."""

    x: Tensor
    target: Tensor
    batched: bool
    run: Callable[[], Gradients]
    expected: Gradients

    def confirm(self, runs: Runs) -> None:
        """Refuse code that gives anything else now."""
        runs.expect(self.expected, self.run, 0)


def plan(runs: Runs, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Plan:
    """How to compute records of this shape.

    Raises:
        StateError: A record's gradient depends on others; the message names the state.
        Exception: Whatever the code raises for every made-up record: it does not fit the shape of the data.
    """
    parameters = {name: p.clone() for name, p in parameters.items()}
    before = {name: p.clone() for name, p in parameters.items()}
    records = list(_made_up(inputs, targets))
    outcomes = [runs.outcome(partial(runs.alone, parameters, *record), 0) for record in records]
    if silent := runs.state.changed(whole=True):
        runs.changed.update(silent)
        runs.state.compare_each_time(silent)
        runs.state.restore()
    for name, p in parameters.items():
        if not same_numbers(p, before[name]):
            raise StateError(f"the model changes its parameter `{name}` in the forward pass")
    taken = [record for record, found in zip(records, outcomes, strict=True) if not isinstance(found, Exception)]
    if not taken:
        demanded(outcomes[0])
    if runs.changed:
        _judge(runs, sorted(runs.changed), parameters, taken)
    first = next(found for found in outcomes if not isinstance(found, Exception))
    runs.expect(first, partial(runs.alone, parameters, *taken[0]), 0)
    return _tried(runs, parameters, *taken[0])


def _tried(runs: Runs, parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Plan:
    """Batch the code if torch can, and then computes the same as for one record."""
    sources = runs.state.sources
    sources.seed(0)
    others, every = sources.standing(of_torch=False), sources.standing()
    run = partial(runs.alone, parameters, x, target)
    alone = demanded(runs.outcome(run, 0))
    looped = Plan(x, target, False, run, alone)
    if sources.standing(of_torch=False) != others:
        return looped  # vmap would draw once for all records
    draws = sources.standing() != every
    run = partial(runs.mapped, parameters, x.expand(2, *x.shape), target.expand(2, *target.shape))
    both = runs.outcome(run, 0)
    if isinstance(both, Exception):
        return looped  # a layer that torch.func cannot batch, as nn.GRU
    judged = not draws and all(bool(g.isfinite().all()) for g in alone.values())
    close = (torch.allclose(both[n][1], g, 1e-2, 1e-3 * float(g.abs().max()) + 1e-6) for n, g in alone.items())
    return looped if judged and not all(close) else Plan(x, target, True, run, both)


def _judge(runs: Runs, names: list[str], parameters: dict[str, Tensor], records: list[tuple[Tensor, Tensor]]) -> None:
    """Refuse state that records change, if it changes what another record gives; a cache does not."""

    def run(x: Tensor, target: Tensor) -> Gradients | Exception:
        return runs.caught(partial(runs.alone, parameters, x, target), 0)

    alone, states = [], []
    for record in records:
        alone.append(run(*record))
        states.append(runs.state.values(names))
        runs.state.restore()
    if all(state == states[0] for state in states):
        return
    for i, record in enumerate(records):
        for others in ([record], records[i - 1 : i] or records[-1:], [*records[i + 1 :], *records[:i]]):
            for other in others:
                run(*other)
            after = run(*record)
            runs.state.restore()
            if not same(alone[i], after):
                own = [name for name in names if name.rpartition(".")[2] not in _OF_TORCH] or names
                what = ", ".join(f"`{name}`" for name in own[:3])
                raise StateError(
                    f"{what} keeps state from one record to the next, and a record's gradient depends on it: "
                    "compute it anew in each forward pass, or make it a constant (PROTOCOL §9)"
                )


def _made_up(inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Records of the same shape that depend on no data."""
    normal, other = _normal(inputs), _normal(targets)
    zero, one = (f(inputs[:1])[0] for f in (torch.zeros_like, torch.ones_like))
    no, yes = (f(targets[:1])[0] for f in (torch.zeros_like, torch.ones_like))
    large = _LARGE * normal if normal.is_floating_point() else one
    yield from ((normal, no), (zero, no), (one, yes), (-normal, yes), (normal, other), (large, no))


def _normal(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(like.shape[1:], generator=generator).to(like.device)
    return drawn.to(like.dtype) if like.is_floating_point() else torch.zeros_like(like[:1])[0]
