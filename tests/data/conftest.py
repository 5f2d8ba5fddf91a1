"""No test of this folder reads or writes the user's cache, or downloads anything from outside."""

from tests.simulation.conftest import cache

__all__ = ["cache"]
