"""The cores that this process may use, and the threads that share them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def usable_cores() -> int:
    """How many cores the process may use: those of its affinity where the system has one, else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_usable_cores(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The results of ``work``, in the order of the items. It gains where work is in kernels and ciphers: no lock."""
    return list(_pool(usable_cores()).map(work, items))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "precad-cores")
