"""A person's code, differentiated for each record apart (PROTOCOL §9).

A record's gradient is what a fresh copy of the model and the loss would give for this record alone: a function of the
parameters, the record and its own randomness. So every chunk (in which ``vmap`` makes each record a batch of its own)
and, where torch cannot batch, every record starts from the same state and its own seed. No decision depends on the
value of another record: :mod:`precad.gradients.plans` decides on made-up ones, and a record that raises counts as 0 and
is replaced by a made-up one, so that the others keep their bits. State that cannot be put back shows in a made-up
record, which must give at the end of a chunk what it gave before any other was seen, and in records that are computed
again.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from precad.errors import failure
from precad.gradients.isolation import State, same_numbers
from precad.gradients.plans import Plan, plan
from precad.gradients.runs import Gradients, Runs, demanded

_CHECK_BATCHED, _CHECK_LOOPED = 4096, 128
"""After how many records some are computed again, among others."""
_AMONG = 16
"""Records of a chunk that is computed again."""


class Rows:
    """Gradients of ``value(parameters, inputs, targets)``, a batch's, row by row, by the parameters or by the inputs.

    Serves one thread at a time; others wait.
    """

    def __init__(
        self, value: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor], state: State, *, by_input: bool = False
    ) -> None:
        self._runs = Runs(value, state, by_input=by_input)
        self._plans: dict[object, Plan] = {}
        self._unchecked = _CHECK_BATCHED
        self.lock = threading.Lock()

    def fill(
        self, out: Gradients, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, seed: int
    ) -> dict[int, str]:
        """Write each row's gradient into ``out``; row → why it counts as 0, for rows that raise.

        Raises:
            StateError: A record's gradient depends on others.
            Exception: Whatever the code raises for a made-up record too: it does not fit the shape of the data.
        """
        with self.lock:
            self._runs.changed.clear()
            chunk = _Chunk(parameters, inputs, targets, seed)
            plan = self.plan(parameters, inputs, targets)
            before = {name: p.clone() for name, p in parameters.items()}
            fill = self._fill_batched if plan.batched else self._fill_looped
            faults = fill(out, chunk, plan)
            if self._put_back(parameters, before):
                faults = fill(out, chunk, plan)
            self._unchecked += len(inputs)
            due = self._unchecked >= (_CHECK_BATCHED if plan.batched else _CHECK_LOOPED)
            good = [row for row in range(len(inputs)) if row not in faults]
            if due and good:
                check = self._check_batched if plan.batched else self._check_looped
                check(out, chunk, plan, good)
                self._unchecked = 0
            if due or not plan.batched:
                plan.confirm(self._runs)
            return faults

    def finite_together(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, seed: int) -> bool:
        """Whether all rows, as one batch, have a finite gradient: the mean of theirs, so each of them is finite.

        Much cheaper than ``fill``, which has the last word where this is False, and in every round. Refuses what the
        made-up records refuse.
        """
        with self.lock:
            self.plan(parameters, inputs, targets)
            own = {name: p.clone() for name, p in parameters.items()}
            found = self._runs.outcome(partial(self._runs.together, own, inputs, targets), seed)
            self._put_back(own, parameters)
            return not isinstance(found, Exception) and all(bool(g.isfinite().all()) for g in found.values())

    def plan(self, parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Plan:
        """One for each shape of a record, and number of torch's threads, on which bits may depend. Holds no lock."""
        key = x.shape[1:], x.dtype, target.shape[1:], target.dtype, torch.get_num_threads()
        if key not in self._plans:
            self._plans[key] = plan(self._runs, parameters, x, target)
        return self._plans[key]

    def forget(self) -> None:
        """Try made-up records anew: a person has changed what the code reads."""
        self._plans.clear()

    def _put_back(self, parameters: dict[str, Tensor], before: dict[str, Tensor]) -> bool:
        """Whether a record changed, behind torch's back, what others saw: from now on each has its own."""
        silent = self._runs.state.changed(whole=True)
        if silent:
            self._runs.state.compare_each_time(silent)
            self._runs.state.restore()
        moved = [name for name, p in parameters.items() if not same_numbers(p, before[name])]
        for name in moved:
            parameters[name].copy_(before[name])
            self._runs.copies_parameters = True
        return bool(silent or moved)

    def _fill_batched(self, out: Gradients, chunk: "_Chunk", plan: Plan) -> dict[int, str]:
        def attempt(rows: set[int]) -> Gradients | Exception:
            """The chunk with all but ``rows`` replaced by a made-up record."""
            keep = torch.tensor([row in rows for row in range(len(chunk.inputs))], device=chunk.inputs.device)
            return self._mapped(chunk.among(plan, keep))

        everyone, faults = set(range(len(chunk.inputs))), {}
        found = self._mapped(chunk)
        if isinstance(found, Exception):
            demanded(attempt(set()))  # a mistake in the code, not of a record, is raised here
            for row in everyone:
                tried = self._alone(chunk, row)
                if isinstance(tried, Exception) and isinstance(self._mapped(chunk.beside(plan, [row])), Exception):
                    faults[row] = raised(tried)
            faults |= _bisect(attempt, everyone - faults.keys())
            found = demanded(attempt(everyone - faults.keys()))
        for name, gradient in found.items():
            out[name].copy_(gradient)
            if faults:
                out[name][list(faults)] = 0
        return faults

    def _fill_looped(self, out: Gradients, chunk: "_Chunk", _: Plan) -> dict[int, str]:
        faults: dict[int, str] = {}
        for row in range(len(chunk.inputs)):
            found = self._alone(chunk, row)
            if isinstance(found, Exception):
                faults[row] = raised(found)
            for name, gradients in out.items():
                gradients[row] = 0 if isinstance(found, Exception) else found[name]
        return faults

    def _check_looped(self, out: Gradients, chunk: "_Chunk", _: Plan, good: list[int]) -> None:
        """Compute a record again after others."""
        own = good[len(good) // 2]
        for row in (good[0], good[-1]):
            self._alone(chunk, row)
        run = partial(self._runs.alone, chunk.parameters, chunk.inputs[own], chunk.targets[own])
        self._runs.expect({name: gradients[own] for name, gradients in out.items()}, run, chunk.seed + own)

    def _check_batched(self, _: Gradients, chunk: "_Chunk", plan: Plan, good: list[int]) -> None:
        """Compute a record again, among others and among made-up ones."""
        rows = good[:: -(-len(good) // _AMONG)]
        own = len(rows) // 2
        among = chunk.beside(plan, rows)
        lonely = among.among(plan, torch.arange(len(among.inputs), device=among.inputs.device) == own)

        def run(some: _Chunk) -> Gradients:
            found = self._runs.mapped(some.parameters, some.inputs, some.targets)
            return {name: g[own] for name, g in found.items()}

        self._runs.expect(demanded(self._runs.outcome(partial(run, among), 0)), partial(run, lonely), 0)

    def _mapped(self, chunk: "_Chunk") -> Gradients | Exception:
        return self._runs.outcome(partial(self._runs.mapped, chunk.parameters, chunk.inputs, chunk.targets), chunk.seed)

    def _alone(self, chunk: "_Chunk", row: int) -> Gradients | Exception:
        run = partial(self._runs.alone, chunk.parameters, chunk.inputs[row], chunk.targets[row])
        return self._runs.outcome(run, chunk.seed + row)


@dataclass(frozen=True)
class _Chunk:
    """Some records, and where their own randomness begins."""

    parameters: dict[str, Tensor]
    inputs: Tensor
    targets: Tensor
    seed: int

    def among(self, plan: Plan, keep: Tensor) -> "_Chunk":
        """These with all but ``keep`` replaced by a made-up record."""
        pairs = ((self.inputs, plan.x), (self.targets, plan.target))
        x, target = (torch.where(keep.view(-1, *[1] * by.ndim), rows, by) for rows, by in pairs)
        return _Chunk(self.parameters, x, target, self.seed)

    def beside(self, plan: Plan, rows: list[int]) -> "_Chunk":
        """Some of these, and two made-up ones."""
        pairs = ((self.inputs, plan.x), (self.targets, plan.target))
        x, target = (torch.cat([real[rows], by.expand(2, *by.shape)]) for real, by in pairs)
        return _Chunk(self.parameters, x, target, self.seed)


def raised(error: BaseException) -> str:
    """Why a record counts as 0."""
    return f"it raises {failure(error)}"


def _bisect(attempt: Callable[[set[int]], Gradients | Exception], rows: set[int]) -> dict[int, str]:
    """Of these rows, those that raise among made-up ones."""
    tried = attempt(rows) if rows else {}
    if not isinstance(tried, Exception):
        return {}
    if len(rows) == 1:
        return {next(iter(rows)): raised(tried)}
    order = sorted(rows)
    return _bisect(attempt, set(order[: len(order) // 2])) | _bisect(attempt, set(order[len(order) // 2 :]))
