"""The cores that this process may use, and the threads that share them."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

MANY = 1 << 10
"""More threads than this are never of use."""


def usable_cores() -> int:
    """How many cores the process may use: those of its affinity where the system has one, else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_usable_cores(work: Callable[[_Item], _Result], items: Iterable[_Item], at_once: int = MANY) -> list[_Result]:
    """The results of ``work``, in the order of the items. It gains where work is in kernels and ciphers: no lock."""
    return list(each_on_usable_cores(work, items, at_once))


def each_on_usable_cores(
    work: Callable[[_Item], _Result], items: Iterable[_Item], at_once: int = MANY
) -> Iterator[_Result]:
    """The same, one result after the other, with ``at_once`` items at work at most.

    The calling thread takes the items, and never more than one that is not yet at work.
    """
    cores, pending = min(usable_cores(), at_once), deque[Future[_Result]]()
    if cores == 1:
        yield from map(work, items)
        return
    try:
        for item in items:
            pending.append(_pool(cores).submit(work, item))
            if len(pending) > cores:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "precad-cores")
