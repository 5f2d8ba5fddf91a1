"""Loads what a person brings, a model, a loss, data, an attack, and reports its mistakes in one sentence."""

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precad.errors import PrecadError, UnusableError
from precad.files import read_bytes

if TYPE_CHECKING:
    import torch


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Whatever goes wrong in a person's code is a ``PrecadError`` that begins with ``what``."""
    try:
        yield
    except UnusableError as error:
        raise UnusableError(f"{what}: {error}") from error
    except PrecadError:
        raise
    except Exception as error:
        raise PrecadError(f"{what}: {sentence(error)}") from error


def sentence(error: Exception) -> str:
    """What an exception says, with its type where it would not be understood without, as of a ``KeyError``."""
    first, name = (str(error).strip().splitlines() or [""])[0], type(error).__name__
    if isinstance(error, ValueError | TypeError | RuntimeError | ImportError | AttributeError) and first:
        return first
    return f"{name}: {first}" if first else name


def usable(device: "torch.device | str") -> "torch.device | str":
    """The device, if torch can compute on it here."""
    import torch  # others load a person's code without it

    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def load_plugin(what: str, name: str) -> Any:
    """The function of ``module:function``, looked for in the working folder too; ``what`` it is, for the error.

    To load it is to run it: the log says so before, with the file. The working folder is the last one that is looked
    into, for this module and for what it imports, so that no file there takes the place of a library.
    """
    module_name, _, function_name = name.partition(":")
    try:
        place = module_file(module_name)
        if module_name.partition(".")[0] != __name__.partition(".")[0]:
            _announce(f"{what} {name!r} is code: it is loaded from {place or 'Python itself'}, and run")
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # whatever a person's module raises
        raise ValueError(f"the {what} {name!r} cannot be loaded: {sentence(error)}") from None
    if not callable(function):
        raise ValueError(f"the {what} {name!r} must be a function, got {type(function).__name__}")
    return function


def module_file(module_name: str) -> Path | None:
    """The file, or the package, that an import of a module would run; nothing of it is run here.

    Raises:
        ValueError: There is none; or the working folder has one of this name, and so does an installed library.
    """
    top = module_name.partition(".")[0]
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    spec = PathFinder.find_spec(top, sys.path)
    if spec is None and top not in {*sys.builtin_module_names, *sys.modules}:
        raise ValueError(f"there is no module {top!r}, neither here nor installed")
    found = Path(spec.origin) if spec is not None and spec.origin else None
    own = next((path for path in (Path(folder, f"{top}.py"), Path(folder, top, "__init__.py")) if path.is_file()), None)
    loaded = getattr(sys.modules.get(top), "__file__", None)
    others = {Path(other).resolve() for other in (found, loaded) if other is not None}
    if own is not None and others != {own.resolve()}:
        raise ValueError(f"{own} has the name of another module, {loaded or found}: give yours another name")
    return found


def plugin_source(what: str, name: str) -> bytes:
    """The text of its module, by which a changed function is known."""
    load_plugin(what, name)
    file = sys.modules[name.partition(":")[0]].__file__
    return read_bytes(Path(file)) if file else b""


@cache
def _announce(sentence_: str) -> None:
    """Once for each file."""
    logging.getLogger(__name__).info(sentence_)
