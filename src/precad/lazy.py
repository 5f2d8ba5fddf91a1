"""The public names of a package, loaded when first used: importing the package then costs nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def public_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: The package's ``__name__``.
        homes: For each public name its module, or ``module:name`` where it has another name there.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        return getattr(import_module(module), attribute or name)

    return load, lambda: sorted(sys.modules[package].__all__)
