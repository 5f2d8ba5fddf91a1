"""Where a person's code may draw randomness from, so that every record has its own."""

import random  # noqa: TID251 - a person's code may draw from it
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class Sources:
    """The generators of torch, Python and numpy that all share, and those that the code has by itself."""

    def __init__(self, own: list[Any]) -> None:
        common = [torch.default_generator, random, np.random, *_on_gpu()]
        self._all = [*common, *own]

    def seed(self, seed: int) -> None:
        """Start all of them from ``seed``."""
        for generator in self._all:
            _seed(generator, seed)

    def standing(self, *, of_torch: bool = True) -> list[Any]:
        """Where they stand, as something that compares; those that are not torch's, or all."""
        return [_get_state(g) for g in self._all if of_torch or not isinstance(g, torch.Generator)]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Afterwards all of them go on as if nobody had drawn meanwhile."""
        states = self.standing()
        try:
            yield
        finally:
            for generator, state in zip(self._all, states, strict=True):
                _set_state(generator, state)


def _on_gpu() -> tuple[torch.Generator, ...]:
    return tuple(torch.cuda.default_generators) if torch.cuda.is_available() else ()


def _seed(generator: Any, seed: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    else:  # random, numpy.random, and objects of theirs
        generator.seed(seed % 2**32)


def _get_state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.Generator):
        return str(generator.bit_generator.state), generator.bit_generator.state
    if isinstance(generator, random.Random) or generator is random:
        return generator.getstate()
    name, key, *rest = generator.get_state()
    return name, key.tobytes(), *rest


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state[1]
    elif isinstance(generator, random.Random) or generator is random:
        generator.setstate(state)
    else:
        generator.set_state((state[0], np.frombuffer(state[1], np.uint32), *state[2:]))
