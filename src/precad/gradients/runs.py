"""A person's code, run and differentiated once, for a record or a chunk, from the state that it was given in."""

from collections.abc import Callable
from contextvars import copy_context

import torch
from torch import Tensor
from torch.func import grad, vmap

from precad.errors import failure
from precad.gradients.isolation import State, StateError, same_numbers

Gradients = dict[str, Tensor]
"""By the names of parameters, or by "" alone."""


class Runs:
    """Gradients of ``value(parameters, inputs, targets)``, a batch's, by the parameters or, ``by_input``, by inputs."""

    def __init__(
        self, value: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor], state: State, *, by_input: bool
    ) -> None:
        self.state, self._value, self._by_input = state, value, by_input
        self.changed: set[str] = set()
        """The names of all that was put back."""
        self.copies_parameters = False
        """Whether each run has parameters of its own, as the code changes them."""

    def alone(self, parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Gradients:
        """Of one record."""
        found = self.together(parameters, x[None], target[None])
        return {"": found[""][0]} if self._by_input else found

    def together(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Gradients:
        """Of the records as one batch."""
        with torch.enable_grad():
            own = {name: p.detach().requires_grad_() for name, p in self._own(parameters).items()}
            inputs = inputs.clone().requires_grad_(self._by_input)
            value = self._value(own, inputs, targets.clone())
            variables = {"": inputs} if self._by_input else own
            if not value.requires_grad:
                return {name: torch.zeros_like(v) for name, v in variables.items()}
            found = torch.autograd.grad(value, list(variables.values()), allow_unused=True, materialize_grads=True)
        return {name: g.to_dense().detach() for name, g in zip(variables, found, strict=True)}

    def mapped(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Gradients:
        """Of each record of a chunk, as a batch of its own."""

        def of_one(parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
            return self._value(parameters, x[None], target[None])

        of_each = vmap(grad(of_one, argnums=1 if self._by_input else 0), in_dims=(None, 0, 0), randomness="different")
        found = of_each(self._own(parameters), inputs.clone(), targets.clone())
        return {"": found} if self._by_input else found

    def outcome(self, run: Callable[[], Gradients], seed: int) -> Gradients | Exception:
        """Run from the kept state and the seed; put back what changes."""
        found = self.caught(run, seed)
        self.changed.update(self.state.put_back())
        return found

    def caught(self, run: Callable[[], Gradients], seed: int) -> Gradients | Exception:
        """Run from the seed, in a context of its own; what changes stays."""
        self.state.sources.seed(seed)
        try:
            return copy_context().run(run)
        except Exception as error:
            return error.with_traceback(None)
        except BaseException as error:  # as SystemExit
            return RuntimeError(failure(error))

    def expect(self, expected: Gradients, run: Callable[[], Gradients], seed: int) -> None:
        """Refuse code that gives anything else now: it keeps hidden state."""
        if not same(self.outcome(run, seed), expected):
            raise StateError(
                "a record's gradient is another after other records: the model or the loss keeps state that cannot be "
                "seen from outside, or draws randomness that cannot be seeded (PROTOCOL §9)"
            )

    def _own(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: p.clone() for name, p in parameters.items()} if self.copies_parameters else parameters


def demanded(outcome: Gradients | Exception) -> Gradients:
    """The gradients, or else the exception raised."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def same(a: Gradients | Exception, b: Gradients | Exception) -> bool:
    """Whether both are the same to the bit, but on a GPU, which adds in any order."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        return type(a) is type(b)
    exact = next(iter(a.values())).device.type == "cpu"
    return all(
        same_numbers(g, b[name]) or (not exact and torch.allclose(g, b[name], 1e-3, 1e-5)) for name, g in a.items()
    )
