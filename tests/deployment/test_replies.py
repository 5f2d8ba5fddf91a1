"""A client's reply comes whatever training does, and at the time that the task names."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precad.deployment.client import RefusedError
from precad.deployment.parties import Parties
from precad.deployment.replies import MARGIN, reply_to
from precad.protocol import aggregation, submission
from precad.protocol.params import Unit
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says

SECONDS = 1.0
RECORDS = dict.fromkeys(world.CLIENTS, 40)


def parties_of(folder: Path, seconds: float) -> Consortium:
    params = replace(world.PARAMS, unit=Unit.RECORD, noise_multiplier=8.0)
    made = Parties.new(world.MODEL, params, replace(world.TRAINING, reply_seconds=seconds), RECORDS)
    return Consortium(folder, made)


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Consortium]:
    monkeypatch.setattr(aggregation, "integer_gaussian", lambda _std, size, _stream: np.zeros(size, np.int64))
    made = parties_of(tmp_path, SECONDS)
    made.a.start_round()
    yield made
    made.close()


def timed(parties: Consortium, name: str, train: object, arrived: float | None = None) -> tuple[bytes, float]:
    begun = time.monotonic()
    reply = reply_to(
        parties.client(name),
        parties.a.invitation(),
        parties.a.model(),
        train,  # type: ignore[arg-type]
        arrived=arrived,
    )
    return reply, time.monotonic() - begun


def ones() -> np.ndarray:
    return np.ones(world.DIM)


def fails() -> np.ndarray:
    raise SystemExit("record 17 of Jane Doe")


def test_replies_have_one_length_and_one_time(parties: Consortium) -> None:
    """That of a client that trains, that fails, and that is asked again; none comes before its time."""
    replies = [timed(parties, name, train) for name, train in {"bank": ones, "clinic": fails}.items()]
    replies.append(timed(parties, "bank", fails))
    assert len({len(reply) for reply, _ in replies}) == 1
    assert replies[0][0] == replies[2][0]
    for _, seconds in replies:
        assert SECONDS <= seconds < SECONDS + 0.5
    assert [parties.a.submit(reply) for reply, _ in replies[:2]] == [None, None]
    moved = parties.a.finish_round() - world.MODEL
    assert np.allclose(moved, moved[0])
    assert moved[0] > 0


def test_the_time_counts_from_when_the_invitation_came(parties: Consortium) -> None:
    _, seconds = timed(parties, "bank", ones, arrived=time.monotonic() - SECONDS / 2)
    assert SECONDS / 2 <= seconds < SECONDS


def test_training_that_hangs_is_not_waited_for(parties: Consortium, caplog: pytest.LogCaptureFixture) -> None:
    never = threading.Event()
    parties.client("bank").note_rehearsal(0.05)

    def hangs() -> np.ndarray:
        never.wait(10)
        return ones()

    reply, seconds = timed(parties, "bank", hangs)
    never.set()
    assert SECONDS <= seconds < SECONDS + 0.5
    assert parties.a.submit(reply) is None
    assert np.array_equal(parties.a.finish_round(), world.MODEL)
    assert "training took more than" in caplog.text


@pytest.mark.parametrize("error", [MemoryError(), OSError(24, "Too many open files")])
def test_training_that_leaves_no_room_for_sealing_is_an_update_of_zeros(
    error: Exception, parties: Consortium, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parties.client("bank").note_rehearsal(0.05)

    def fails(*_: object) -> None:
        raise error

    def train() -> np.ndarray:
        monkeypatch.setattr(submission, "submit", fails)
        return ones()

    reply, _ = timed(parties, "bank", train)
    assert parties.a.submit(reply) is None
    assert np.array_equal(parties.a.finish_round(), world.MODEL)
    assert "zeros" in caplog.text


def test_a_reply_time_that_is_too_short_is_refused_before_anything_is_counted(parties: Consortium) -> None:
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=says("rehearsal", f"{SECONDS:g} seconds", f"{MARGIN} times")):
        timed(parties, "bank", lambda: time.sleep(3 * SECONDS))
    assert time.monotonic() - begun < SECONDS
    assert parties.client("bank").participations() == 0
    assert parties.client("bank").rehearsed() is None


def test_a_rehearsal_is_done_once(parties: Consortium) -> None:
    """Also by processes that come after: what it took is in the client's state."""
    calls: list[str] = []

    def rehearse() -> np.ndarray:
        calls.append("rehearsal")
        raise KeyboardInterrupt

    def train() -> np.ndarray:
        calls.append("training")
        return ones()

    for _ in range(2):
        invitation, model = parties.a.invitation(), parties.a.model()
        parties.a.submit(reply_to(parties.client("bank"), invitation, model, train, rehearse=rehearse))
        parties.kill("bank")
        parties.a.finish_round()
        parties.a.start_round()
    assert calls == ["rehearsal", "training", "training"]


def test_without_a_reply_time_nobody_waits_and_nothing_is_rehearsed(tmp_path: Path) -> None:
    made = Consortium(tmp_path)
    made.a.start_round()
    _, seconds = timed(made, "bank", fails)
    assert seconds < SECONDS
    assert made.client("bank").rehearsed() is None
    made.close()


def test_a_client_of_a_task_by_record_needs_a_reply_time(tmp_path: Path) -> None:
    """Unless every record is drawn: then there is nothing to hide. A simulation hides nothing from itself."""
    made = parties_of(tmp_path, 0.0)
    with pytest.raises(ValueError, match=says("record_rate 0.05", "--reply-seconds")):
        made.client("bank")
    made.close()
