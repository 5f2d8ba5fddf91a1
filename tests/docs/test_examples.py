"""The examples in the docstrings of public names run, and print what they say."""

import doctest
import inspect
from importlib import import_module

import pytest

from tests.test_exported_members import EXPORTED

WITH_EXAMPLES = ["precad.Hyperparameters", "precad.Params", "precad.train"]


def examples() -> list[doctest.DocTest]:
    """Of every public name; a class's own and those of its methods."""
    found = []
    for package, names in EXPORTED.items():
        if package == "precad.flower":
            pytest.importorskip("flwr")
        for name in names:
            item = getattr(import_module(package), name)
            if inspect.isclass(item) or inspect.isfunction(item):
                scope = vars(inspect.getmodule(item) or object)
                tests = doctest.DocTestFinder().find(item, f"{package}.{name}", globs=dict(scope))
                found += [test for test in tests if test.examples]
    return found


def test_the_examples_of_public_names() -> None:
    pytest.importorskip("torch")
    tests = examples()
    assert [test.name for test in tests] == WITH_EXAMPLES
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0
