"""A user's own function, by the name of its module and its own."""

import importlib
import sys
from pathlib import Path
from typing import Any

from precad.learning.mistakes import sentence


def load_plugin(what: str, name: str) -> Any:
    """The function of ``module:function``, looked for in the working folder too; ``what`` it is, for the error."""
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # whatever a person's module raises
        raise ValueError(f"the {what} {name!r} cannot be loaded: {sentence(error)}") from None
    if not callable(function):
        raise ValueError(f"the {what} {name!r} must be a function, got {type(function).__name__}")
    return function


def plugin_source(what: str, name: str) -> bytes:
    """The text of its module, by which a changed function is known."""
    load_plugin(what, name)
    file = sys.modules[name.partition(":")[0]].__file__
    return Path(file).read_bytes() if file else b""
