"""What a person's model and loss keep from one call to the next: watched, named, and put back as it was.

State is every attribute of an object that the code can reach, but for the trained parameters: buffers, numbers, lists,
hidden states, the variables of closures and hooks, attributes of classes and functions, globals that a function names.
A cheap comparison by identity (and of tensors by version) tells what one record changed. What a library in C keeps, or
a file, is not seen here: :mod:`precad.gradients.rows` recomputes records to notice it.
"""

import operator
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from precad.data.records import put_default_device
from precad.errors import UnusableError
from precad.gradients.randomness import Sources
from precad.gradients.reachable import MISSING, Cache, Namespace, reach

_SMALL = 1 << 12
"""Bytes of an array that is compared whole after every record; larger ones after every chunk."""
_COPIED = 1 << 26
"""Bytes of an array that is copied, so that it can be put back; a larger one that changes is refused."""
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch.get_default_dtype()": (torch.get_default_dtype, torch.set_default_dtype),
    "torch.get_float32_matmul_precision()": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch.get_deterministic_debug_mode()": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "torch.get_default_device()": (torch.get_default_device, put_default_device),
    "torch.is_anomaly_enabled()": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
}
"""Of torch, which a person's code may change."""
_COMMON = {name: value for name, value in vars(torch.nn.modules.module).items() if name.startswith("_global_")}
"""Torch's hooks on all modules, which everybody's code runs."""
_PLAIN = bool | int | float | complex | str | bytes | None


class StateError(UnusableError):
    """A model or a loss makes a record depend on others."""


class State:
    """The state of what ``roots`` (name → object) can reach, as it is now. Parameters that are trained are no state."""

    def __init__(self, roots: Mapping[str, object], trained: Iterable[Tensor]) -> None:
        self._roots, self._trained = {**_COMMON, **roots}, {id(p) for p in trained}
        self._by_content: set[int] = set()
        self.renew()

    def renew(self) -> None:
        """Take the present state for the one to go back to."""
        found = reach(self._roots, self._trained)
        if found.untrained:
            raise StateError(
                f"`{found.untrained[0]}` requires a gradient, but is not trained as a parameter of the model: take it "
                "from its layer in the forward pass, put it into the model, or call its requires_grad_(False)"
            )
        self._dicts = [(path, d) for path, d in found.containers if isinstance(d, dict)]
        others = [(path, c) for path, c in found.containers if not isinstance(c, dict)]
        for _, container in others:
            if isinstance(container, Cache):
                container.write([])
        self._others = [(path, c, list(_read(c))) for path, c in others]
        self._plain_dicts = [d for _, d in self._dicts]
        self._sizes = [len(d) for d in self._plain_dicts]
        self._keys = list(chain.from_iterable(self._plain_dicts))
        self._values = list(chain.from_iterable(map(dict.values, self._plain_dicts)))
        self._tensors = [_Watched.of(path, tensor) for path, tensor in found.tensors]
        self._arrays = [_Watched.of(path, array) for path, array in found.arrays]
        self.sources = Sources(found.generators)
        self._settings = [get() for get, _ in _SETTINGS.values()]

    def changed(self, *, whole: bool = False) -> list[str]:
        """The names of what is not as it was; ``whole`` compares large arrays too, whatever torch counts."""
        settings = zip(_SETTINGS.items(), self._settings, strict=True)
        names = [name for (name, (get, _)), saved in settings if get() != saved]
        if not self._same_dicts():
            names += self._changed_items()
        for path, container, saved in self._others:
            if not _as_before(container, saved):
                names += _names(path, container, list(_read(container)), saved)
        for watched in chain(self._tensors, self._arrays):
            if watched.differs(whole=whole or watched.small or id(watched.array) in self._by_content):
                names.append(watched.path)
        return names

    def compare_each_time(self, names: Iterable[str]) -> None:
        """Arrays that changed behind torch's back: compare them whole after every record from now on."""
        wanted = set(names)
        self._by_content |= {id(w.array) for w in chain(self._tensors, self._arrays) if w.path in wanted}

    def restore(self) -> None:
        """Put everything back as it was. What cannot be put back is a ``StateError`` that names it."""
        for (get, put), saved in zip(_SETTINGS.values(), self._settings, strict=True):
            if get() != saved:
                put(saved)
        start = 0
        for (_, d), size in zip(self._dicts, self._sizes, strict=True):
            keys, values = self._keys[start : start + size], self._values[start : start + size]
            if len(d) != size or not all(map(operator.is_, d.values(), values)) or not all(map(operator.is_, d, keys)):
                d.clear()
                d.update(zip(keys, values, strict=True))
            start += size
        for _, container, saved in self._others:
            if not _as_before(container, saved):
                _write(container, saved)
        for watched in chain(self._tensors, self._arrays):
            watched.restore()

    def put_back(self) -> list[str]:
        """The names of what was not as it was, and now is."""
        if changed := self.changed():
            self.restore()
        return changed

    def values(self, names: Collection[str]) -> object:
        """What is under these names now, to be compared by content; equal to nothing if one is gone."""
        found, here = reach(self._roots, self._trained), set(_SETTINGS)

        def wanted(path: str) -> bool:
            hits = [name for name in names if path == name or path.startswith((f"{name}.", f"{name}["))]
            here.update(hits)
            return bool(hits)

        seen: list[object] = [get() for get, _ in _SETTINGS.values()]
        for path, container in found.containers:
            for name, value in _items(path, container):
                if wanted(name):
                    seen.append((name, _content(value)))
            if wanted(path):
                seen.append((path, [_content(value) for value in _read(container)]))
        seen += [(path, _content(array)) for path, array in chain(found.tensors, found.arrays) if wanted(path)]
        return seen if here.issuperset(names) else object()

    def _same_dicts(self) -> bool:
        return (
            list(map(len, self._plain_dicts)) == self._sizes
            and all(map(operator.is_, chain.from_iterable(map(dict.values, self._plain_dicts)), self._values))
            and all(map(operator.is_, chain.from_iterable(self._plain_dicts), self._keys))
        )

    def _changed_items(self) -> list[str]:
        names, start = [], 0
        for (path, d), size in zip(self._dicts, self._sizes, strict=True):
            before = dict(zip(self._keys[start : start + size], self._values[start : start + size], strict=True))
            keys = [*before, *(key for key in d if key not in before)]
            names += [
                f"{path}{_subscript(path, key)}"
                for key in keys
                if not _same(before.get(key, MISSING), d.get(key, MISSING))
            ]
            start += size
        return names


@dataclass
class _Watched:
    """A tensor or numpy array, with what it held."""

    path: str
    array: Any
    version: int
    place: int
    saved: Any
    """A copy, or a checksum of what is too large to be copied."""
    small: bool

    @classmethod
    def of(cls, path: str, array: Any) -> "_Watched":
        size = array.numel() * array.element_size() if isinstance(array, Tensor) else array.nbytes
        numpy = isinstance(array, np.ndarray)
        plain = size <= _COPIED if numpy else array.layout == torch.strided
        copied = size <= _COPIED and not (isinstance(array, torch.nn.Parameter) and size > _SMALL)
        saved = None if not plain else _copy(array) if copied else _checksum(array)
        return cls(path, array, _version(array), _place(array), saved, size <= _SMALL)

    def differs(self, *, whole: bool) -> bool:
        if self.version != _version(self.array) or self.place != _place(self.array):
            return not self._equal() or self.place != _place(self.array)
        return whole and not self._equal()

    def restore(self) -> None:
        if self.differs(whole=True):
            if self.saved is None or isinstance(self.saved, int):
                raise StateError(f"`{self.path}` is changed by the model or the loss, and too large to be put back")
            if isinstance(self.array, np.ndarray):
                np.copyto(self.array, self.saved)
            elif self.array.shape == self.saved.shape:
                self.array.data.copy_(self.saved)
            else:
                self.array.data = self.saved.clone()
        self.version, self.place = _version(self.array), _place(self.array)

    def _equal(self) -> bool:
        if self.saved is None:
            return self.version == _version(self.array)
        if isinstance(self.saved, int):
            return _checksum(self.array) == self.saved
        return same_bytes(self.array, self.saved)


def same_bytes(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bytes: −0 is not 0. Of objects, the same ones."""
    if isinstance(a, np.ndarray):
        if a.dtype == object:
            return a.shape == b.shape and all(map(operator.is_, a.flat, b.flat))
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach(), b.detach()
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.view(words), b.view(words))


def same_numbers(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same numbers, where NaN equals NaN and −0 equals 0."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach(), b.detach()
    return torch.equal(a, b) or (a.is_floating_point() and torch.equal(a.nan_to_num(0.125), b.nan_to_num(0.125)))


def _content(value: object, depth: int = 6) -> object:
    """Something that equals that of another value if both hold the same."""
    if isinstance(value, Tensor):
        plain = value.detach().cpu()
        exact = plain.to(torch.float64) if plain.is_floating_point() else plain
        return tuple(plain.shape), str(plain.dtype), exact.numpy().tobytes()
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.tobytes()
    if isinstance(value, _PLAIN | np.generic):
        return type(value).__name__, repr(value)
    if depth == 0:
        return object()  # equal to nothing
    if isinstance(value, tuple | list | deque):
        return type(value).__name__, [_content(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return [(repr(key), _content(item, depth - 1)) for key, item in value.items()]
    return type(value).__name__, _content(vars(value), depth - 1) if hasattr(value, "__dict__") else object()


def _same(before: object, now: object) -> bool:
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, tuple):
        other: Any = now
        return len(before) == len(other) and all(map(_same, before, other))
    return isinstance(before, _PLAIN | np.generic) and repr(before) == repr(now)


def _names(path: str, container: Any, now: list[Any], saved: list[Any]) -> list[str]:
    if isinstance(container, Namespace):
        pairs = zip(container.names, saved, now, strict=True)
        other = [name for name, before, after in pairs if not _same(before, after)]
        return [f"{path}.{name}" for name in (*other, *container.added())]
    unchanged = len(now) == len(saved) and all(map(_same, saved, now))
    return [] if unchanged else [path]


def _items(path: str, container: Any) -> Iterable[tuple[str, object]]:
    if isinstance(container, dict):
        return [(f"{path}{_subscript(path, key)}", value) for key, value in container.items()]
    if isinstance(container, Namespace):
        return [(f"{path}.{name}", value) for name, value in zip(container.names, container.read(), strict=True)]
    return [(f"{path}[{i}]", value) for i, value in enumerate(container)]


def _subscript(path: str, key: object) -> str:
    """A key of a dict, as a part of a name: an attribute if the dict is an object's, whose path ends in ``.``."""
    return str(key) if path == "" or path.endswith(".") else f"[{key!r}]"


def _as_before(container: Any, saved: list[Any]) -> bool:
    now = list(_read(container))
    same = len(now) == len(saved) and all(map(operator.is_, now, saved))
    return same and not (isinstance(container, Namespace) and container.added())


def _read(container: Any) -> Iterable[Any]:
    return container.read() if isinstance(container, Namespace) else container


def _write(container: Any, saved: list[Any]) -> None:
    if isinstance(container, Namespace):
        container.write(saved)
    elif isinstance(container, list | bytearray):
        container[:] = saved if isinstance(container, list) else bytes(saved)
    else:  # a deque or a set
        container.clear()
        (container.extend if hasattr(container, "extend") else container.update)(saved)


def _version(array: Any) -> int:
    return array._version if isinstance(array, Tensor) and not array.is_inference() else 0


def _place(array: Any) -> int:
    return int(array.data_ptr()) if isinstance(array, Tensor) and array.layout == torch.strided else 0


def _copy(array: Any) -> Any:
    return array.detach().clone() if isinstance(array, Tensor) else array.copy()


def _checksum(array: Any) -> int:
    return zlib.crc32(array.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
