"""All that a person's model or loss can reach in Python: the objects that may keep state."""

import dis
import random  # noqa: TID251 - its objects may be a model's
import sys
import types
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper, cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MISSING = object()
"""In the place of a name that is not bound."""
_LIBRARIES = (sys.stdlib_module_names | {"torch", "numpy", "precad", "numba", "builtins"}) - {"__main__"}
"""Their functions and classes are constants. All other code is a person's."""
_CONTAINERS = {
    *("collections", "types", "queue", "argparse", "functools", "random", "torch", "builtins"),
    *("_thread", "weakref"),
}
"""Of the libraries, those whose objects may hold what a person puts in."""
_CONSTANT = (str, bytes, int, float, complex, type(None), types.ModuleType)
_MOST = 200_000
"""Objects that are looked at, at most: whoever reaches a whole data set need not compare it record by record."""


@dataclass
class Namespace:
    """Some names of something that is no dict to itself: a closure's cell, a module's globals, slots."""

    owner: Any
    names: tuple[str, ...]

    def read(self) -> list[Any]:
        """The values, ``MISSING`` where there is none."""
        if isinstance(self.owner, dict):
            return [self.owner.get(name, MISSING) for name in self.names]
        if isinstance(self.owner, types.CellType):
            return [_cell(self.owner)]
        return [getattr(self.owner, name, MISSING) for name in self.names]

    def added(self) -> list[str]:
        """Names that came later."""
        return []

    def write(self, values: list[Any]) -> None:
        """Bind the names to these values again."""
        for name, value, now in zip(self.names, values, self.read(), strict=True):
            if value is now:
                continue
            if isinstance(self.owner, dict):
                _ = self.owner.pop(name, None) if value is MISSING else self.owner.update({name: value})
            elif isinstance(self.owner, types.CellType):
                self.owner.cell_contents = value
            elif value is MISSING:
                delattr(self.owner, name)
            else:
                setattr(self.owner, name, value)
        for name in self.added():
            delattr(self.owner, name)


class ClassSpace(Namespace):
    """The attributes of a class."""

    def read(self) -> list[Any]:
        """The values, ``MISSING`` where there is none."""
        own = vars(self.owner)
        return [own.get(name, MISSING) for name in self.names]

    def added(self) -> list[str]:
        """Names that came later."""
        known = set(self.names)
        return [name for name in vars(self.owner) if name not in known and not name.startswith("__")]


class Cache(Namespace):
    """What a function under ``functools.lru_cache`` remembers: it starts with nothing."""

    def read(self) -> list[Any]:
        """None, or something that equals nothing."""
        return [object() if self.owner.cache_info().currsize else None]

    def write(self, values: list[Any]) -> None:  # noqa: ARG002
        """Forget."""
        self.owner.cache_clear()


@dataclass
class Reached:
    """What was found, each with its path in a person's words."""

    trained: Collection[int]
    containers: list[tuple[str, Any]] = field(default_factory=list)
    """Dicts, lists, sets, deques and namespaces."""
    tensors: list[tuple[str, Tensor]] = field(default_factory=list)
    arrays: list[tuple[str, Any]] = field(default_factory=list)
    generators: list[Any] = field(default_factory=list)
    """Sources of randomness."""
    untrained: list[str] = field(default_factory=list)
    """Paths of tensors that torch would train, but for training by the model's own parameters."""


def reach(roots: Mapping[str, object], trained: Collection[int]) -> Reached:
    """Everything from ``roots`` (path → object) on but for trained parameters, given by identity, in their layers."""
    found, seen, todo = Reached(trained), set[int](), deque(roots.items())
    while todo and len(seen) < _MOST:
        path, value = todo.popleft()
        if id(value) not in seen and not isinstance(value, _CONSTANT):
            seen.add(id(value))
            todo += _visit(path, value, found)
    return found


def _visit(path: str, value: Any, found: Reached) -> Iterator[tuple[str, Any]]:
    """Note what may change of ``value``; what to visit next."""
    match value:
        case Tensor():
            found.tensors.append((path, value))
            if value.requires_grad and value.is_leaf:
                found.untrained.append(path)
        case np.ndarray():
            found.arrays.append((path, value))
        case torch.Generator() | np.random.Generator() | np.random.RandomState() | random.Random():
            found.generators.append(value)
        case dict():
            found.containers.append((path, value))
            yield from ((f"{path}{_part(path, key)}", item) for key, item in list(value.items()))
        case list() | set() | deque() | bytearray():
            found.containers.append((path, value))
            if not isinstance(value, bytearray):
                yield from ((f"{path}[{i}]", item) for i, item in enumerate(value))
        case tuple() | frozenset():
            yield from ((f"{path}[{i}]", item) for i, item in enumerate(value))
        case types.FunctionType():
            yield from _function(value, found)
        case types.MethodType():
            yield from ((path, value.__self__), (path, value.__func__))
        case partial():
            yield from ((path, part) for part in (value.func, value.args, value.keywords))
        case _lru_cache_wrapper() if _root(value.__module__) not in _LIBRARIES:
            found.containers.append((path, Cache(value, ("cache",))))
        case staticmethod() | classmethod():
            yield path, value.__func__
        case property():
            yield from ((path, part) for part in (value.fget, value.fset) if part is not None)
        case type():
            yield from _class(value, found)
    if not isinstance(value, type | types.FunctionType) and _library(type(value)) in {None, *_CONTAINERS}:
        yield from _object(path, value, found)


def _object(path: str, value: Any, found: Reached) -> Iterator[tuple[str, Any]]:
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        start = f"{path}." if path else ""
        found.containers.append((start, own))
        for key, item in list(own.items()):
            if isinstance(value, nn.Module) and key in ("_modules", "_buffers", "_parameters"):
                if isinstance(item, dict):  # but for scripted modules
                    found.containers.append((start, item))
                yield from ((f"{start}{name}", child) for name, child in item.items() if id(child) not in found.trained)
            elif not (isinstance(value, nn.RNNBase) and key == "_flat_weights"):
                yield f"{start}{key}", item
    slots = tuple(
        name
        for kind in type(value).__mro__
        if _library(kind) is None
        for name in _as_tuple(vars(kind).get("__slots__", ()))
        if name not in ("__dict__", "__weakref__")
    )
    if slots:
        space = Namespace(value, slots)
        found.containers.append((path, space))
        yield from ((f"{path}.{name}", item) for name, item in zip(slots, space.read(), strict=True))
    yield from ((kind.__name__, kind) for kind in type(value).__mro__ if _library(kind) is None)


def _class(kind: type, found: Reached) -> Iterator[tuple[str, Any]]:
    if _library(kind) is None:
        names = tuple(name for name in vars(kind) if not name.startswith("__"))
        found.containers.append((kind.__name__, ClassSpace(kind, names)))
        yield from ((f"{kind.__name__}.{name}", vars(kind)[name]) for name in vars(kind))
        yield from ((other.__name__, other) for other in (*kind.__bases__, type(kind)))


def _function(function: types.FunctionType, found: Reached) -> Iterator[tuple[str, Any]]:
    if _root(function.__module__) in _LIBRARIES:
        return
    path = function.__name__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        found.containers.append((path, Namespace(cell, (name,))))
        yield f"{path}.{name}", _cell(cell)
    found.containers.append((f"{path}.", vars(function)))
    yield from ((f"{path}.{name}", item) for name, item in vars(function).items())
    yield from ((path, item) for item in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    of_globals, others = _names_in(function.__code__)
    modules = [v for n in of_globals if isinstance(v := function.__globals__.get(n), types.ModuleType)]
    spaces = [(vars(module), others) for module in modules if _root(module.__name__) not in _LIBRARIES]
    for space, names in ((function.__globals__, of_globals), *spaces):
        if names:
            here, module = Namespace(space, names), str(space.get("__name__"))
            found.containers.append((module, here))
            yield from ((f"{module}.{name}", item) for name, item in zip(names, here.read(), strict=True))


@cache
def _names_in(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals that a function names, and its other names: attributes, of a module maybe."""
    found: set[str] = {i.argval for i in dis.get_instructions(code) if i.opname.endswith(("_GLOBAL", "_NAME"))}
    others = set(code.co_names) - found
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _names_in(constant)
            found, others = found.union(inner[0]), others.union(inner[1])
    return tuple(sorted(found)), tuple(sorted(others))


def _library(kind: type) -> str | None:
    """The library that a class is of, None for a person's."""
    root = _root(kind.__module__)
    return root if root in _LIBRARIES else None


def _root(module: str | None) -> str:
    return (module or "builtins").partition(".")[0]


def _part(path: str, key: object) -> str:
    return str(key) if path == "" or path.endswith(".") else f"[{key!r}]"


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _as_tuple(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
