"""The store: what is pinned stays, what is grouped is written together, what is wrong is said in words."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.deployment.disk import DiskError, StoreError, in_words
from precad.deployment.store import Kept, Status, Store
from precad.errors import ProtocolError
from precad.mpc.prg import Digest
from precad.protocol.update import Model, Optimiser
from tests.deployment import world
from tests.messages import says

TASK = world.make().task
HEADER = Digest(bytes(32))
KEPT = Kept("bank", b"header", b"signature", b"part", b"relayed")


def plain(theta: NDArray[np.float64]) -> Model:
    return Model.initial(theta, Optimiser.SGD)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "x.db", TASK, "alpha")
    opened.start_from(plain(world.MODEL))
    opened.begin(0, ["lab", "bank"])
    yield opened
    opened.close()


def test_the_first_value_stands_for_ever(store: Store, tmp_path: Path) -> None:
    store.pin(0, {"x": b"1", "y": b"2"})
    store.pin(0, {"x": b"1"})
    for again in (store, Store(tmp_path / "x.db", TASK, "alpha")):
        with pytest.raises(ProtocolError, match="x was another before"):
            again.pin(0, {"z": b"3", "x": b"9"})
        assert again.pinned(0, "x") == b"1"
        assert again.pinned(0, "z") is None
        again.close()


def test_submissions_are_kept_once(store: Store) -> None:
    store.keep(0, KEPT, HEADER)
    with pytest.raises(ProtocolError, match="seen before"):
        store.keep(0, KEPT, HEADER)
    assert [kept.part for kept in store.kept(0, ["bank"])] == [b"part"]
    with pytest.raises(ProtocolError, match="not kept"):
        list(store.kept(0, ["lab"]))
    assert "part" not in repr(KEPT).replace("part=<4 bytes>", "")


def test_the_headers_of_old_rounds_are_not_forgotten(store: Store) -> None:
    store.keep(0, KEPT, HEADER)
    store.finish(0, plain(world.MODEL + 1), {})
    store.settle(0, "line", {}, {"bank": b"valid"})
    store.begin(1, ["bank"])
    with pytest.raises(ProtocolError, match="seen before"):
        store.keep(1, KEPT, HEADER)


def test_together_is_all_or_nothing(store: Store) -> None:
    def half() -> None:
        with store.together():
            store.keep(0, KEPT, HEADER)
            raise ProtocolError("half way")

    with pytest.raises(ProtocolError, match="half way"):
        half()
    assert store.headers(0) == {}
    with store.together():
        store.keep(0, KEPT, HEADER)
    assert store.headers(0) == {"bank": b"header"}


def test_a_round_moves_on(store: Store) -> None:
    row = store.last_round()
    assert row is not None
    assert (row.number, row.selected, row.status) == (0, frozenset({"bank", "lab"}), Status.OPEN)
    store.advance(0, Status.REVEALED)
    assert store.opened_rounds() == 1
    store.finish(0, plain(world.MODEL + 1), {"events": b"e"})
    assert np.array_equal(store.model(), world.MODEL + 1)
    store.start_from(plain(world.MODEL))
    assert np.array_equal(store.model(), world.MODEL + 1)
    store.settle(0, "line", {}, {"bank": b"valid"})
    assert store.log() == ["line"]
    assert store.told("bank") == b"valid"
    assert store.told("lab") is None


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"junk" * 1000)
    with pytest.raises(StoreError, match=says("store", "not a database")):
        Store(tmp_path / "junk.db", TASK, "alpha")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Store(tmp_path / "file" / "x.db", TASK, "alpha")


def test_a_store_that_cannot_be_opened_for_want_of_room_says_so() -> None:
    """SQLite calls it an I/O error when there is none for the file beside its write-ahead log."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    with pytest.raises(DiskError, match="the disk is full: nothing was lost"), in_words():
        raise error
    with pytest.raises(DiskError, match="disk I/O error"), in_words():
        raise sqlite3.OperationalError("disk I/O error")


def test_commits_are_on_the_disk(store: Store) -> None:
    """FULL is 2, WAL is the journal, secure_delete is on: what the guarantees rest on."""
    connection = store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)


def test_only_a_simulation_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    quick = Store(tmp_path / "quick.db", TASK, "alpha", durable=False)
    assert quick._connection.execute("PRAGMA synchronous").fetchone() == (0,)
    quick.close()


def test_what_the_optimiser_remembers_is_kept(store: Store) -> None:
    moved = Model(world.MODEL + 1, world.MODEL * 2, world.MODEL * 3, 7)
    store.finish(0, moved, {})
    kept = store.optimised()
    for name in ("theta", "first", "second"):
        assert np.array_equal(getattr(kept, name), getattr(moved, name))
    assert kept.steps == 7
