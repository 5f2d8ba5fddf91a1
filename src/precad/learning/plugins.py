"""A user's own function, by the name of its module and its own."""

import importlib
import sys
from typing import Any


def load_plugin(what: str, name: str) -> Any:
    """The function of ``module:function``, looked for in the working folder too; ``what`` it is, for the error."""
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"the {what} {name!r} cannot be loaded: {error}") from None
    if not callable(function):
        raise ValueError(f"the {what} {name!r} must be a function, got {type(function).__name__}")
    return function
