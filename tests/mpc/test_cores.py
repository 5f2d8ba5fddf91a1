"""Pools follow the cores that the process may use."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from precad.mpc.cores import each_on_usable_cores, on_usable_cores, usable_cores
from precad.protocol.params import Validation
from precad.protocol.round import run_round
from precad.protocol.states import Role
from tests.protocol.drivers import SECRETS, make_round

ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()


@pytest.fixture
def one_core() -> Iterator[None]:
    if not ALL:
        pytest.skip("the system has no affinity")
    os.sched_setaffinity(0, {min(ALL)})
    yield
    os.sched_setaffinity(0, ALL)


def threads_at_work(items: int, expected: int) -> int:
    """The most threads that are at work on the items at once. Each waits until all expected ones came."""
    present, seen, changed = set[int](), 0, threading.Condition()

    def work(_: int) -> None:
        nonlocal seen
        with changed:
            present.add(threading.get_ident())
            seen = max(seen, len(present))
            changed.notify_all()
            changed.wait_for(lambda: seen >= expected, timeout=60)
        time.sleep(0.02)
        with changed:
            present.remove(threading.get_ident())

    on_usable_cores(work, range(items))
    return seen


def test_results_keep_the_order() -> None:
    assert on_usable_cores(lambda x: x * x, range(100)) == [x * x for x in range(100)]


def test_items_are_taken_as_they_are_needed() -> None:
    """However many there are, the memory is that of one for each core, and one more."""
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(50):
            taken += 1
            yield item

    for done, _ in enumerate(each_on_usable_cores(lambda x: x, items())):
        assert taken <= done + usable_cores() + 1
    assert taken == 50


def test_a_failure_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        on_usable_cores(lambda x: 1 // (x - 7), range(50))


def test_a_pool_has_as_many_threads_as_cores() -> None:
    assert usable_cores() == (len(ALL) or os.cpu_count())
    assert threads_at_work(3 * usable_cores(), usable_cores()) == usable_cores()


@pytest.mark.parametrize("count", [1, 3, 64])
def test_a_pool_follows_the_cores(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(count)), raising=False)
    assert usable_cores() == count
    assert threads_at_work(2 * count, count) == count


def test_without_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    for known, used in ((7, 7), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert usable_cores() == used


@pytest.mark.usefixtures("one_core")
def test_one_core_is_enough() -> None:
    """With a real affinity: one thread, and both servers of a round in turn."""
    assert usable_cores() == 1
    assert threads_at_work(4, 1) == 1
    before = threading.active_count()
    run_round(make_round(validation=Validation.NONE), {}, SECRETS[Role.A], SECRETS[Role.B])
    assert threading.active_count() == before
