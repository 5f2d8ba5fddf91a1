"""A server whose disk is set back, by a backup or a snapshot: what the other server, if malicious, gains from it."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precad.deployment.client import RefusedError
from precad.deployment.replay import own_nonce
from precad.deployment.transport import Exchange
from precad.errors import ProtocolError, Reason
from precad.mpc.prg import vector_digest
from precad.mpc.secret import Secret
from precad.protocol import digests
from precad.protocol.codec import Blob
from precad.protocol.messages import Batch, Check, Close, NoisyShare, Nonce, Sealed, Tally, decode, encode
from precad.protocol.submission import check_sizes
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says

WORLD = world.make()
SIZES = check_sizes(WORLD.task.bounds)


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Consortium]:
    consortium = Consortium(tmp_path / "disks", WORLD)
    consortium.folder.mkdir()
    yield consortium
    consortium.close()


class Disk:
    """A copy of a server's files."""

    def __init__(self, parties: Consortium, party: str, copy: Path) -> None:
        self._parties, self._party, self._copy = parties, party, copy
        parties.kill(party)
        copy.mkdir()
        for file in self._files():
            shutil.copy2(file, copy)

    def set_back(self) -> None:
        """The server stops, its operator plays back the copy, and the server starts again."""
        self._parties.kill(self._party)
        for file in self._files():
            file.unlink()
        for file in self._copy.iterdir():
            shutil.copy2(file, self._parties.folder)

    def _files(self) -> list[Path]:
        return list(self._parties.folder.glob(f"{self._party}.db*"))


def close_of_a(parties: Consortium) -> Close:
    """A and B hold all submissions of round 0, and A closes."""
    parties.collect()
    kept = parties.a.store.kept(0, parties.a.store.headers(0))
    close = decode(parties.a.own(0, Exchange.CLOSE), Close)
    parties.b.exchange(0, Exchange.SUBMISSIONS, encode(Batch(tuple(Blob(each.relayed) for each in kept))))
    return close


def checks_of_b(parties: Consortium, close: Close) -> tuple[bytes, dict[str, bytes]]:
    """B's nonce, and the wires that it opens of each submission, for a closed set that A chooses."""
    parties.b.exchange(0, Exchange.CLOSE, encode(close))
    closed = decode(parties.b.own(0, Exchange.NONCE), Nonce).closed
    with pytest.raises(ProtocolError, match=says("nonces", "committed")):
        parties.b.exchange(0, Exchange.NONCE, encode(Nonce(closed, Secret.fresh())))
    true = encode(Nonce(closed, own_nonce(parties.a.store, 0)))
    nonce = decode(parties.b.exchange(0, Exchange.NONCE, true), Nonce).nonce
    batch = decode(parties.b.own(0, Exchange.CHECKS), Batch).items
    return nonce.value, {(check := decode(raw, Check, **SIZES)).client: check.wires.tobytes() for raw in batch}


def test_six_rollbacks_of_b_give_one_challenge_and_one_answer(parties: Consortium, tmp_path: Path) -> None:
    """A malicious A asks a rewound B again, for another closed set, with another nonce."""
    close = close_of_a(parties)
    disk = Disk(parties, "beta", tmp_path / "copy")
    nonces, answers = set[bytes](), set[tuple[str, bytes]]()
    for turn in range(6):
        nonce, checks = checks_of_b(parties, replace(close, headers=close.headers[turn % 3 :]))
        nonces.add(nonce)
        answers |= checks.items()
        disk.set_back()
    assert len(nonces) == 1
    assert len(answers) == len(WORLD.clients)


def test_a_server_set_back_to_before_its_round_takes_no_submission_of_it(parties: Consortium, tmp_path: Path) -> None:
    """It draws another nonce, which no header names and no client submits under."""
    parties.b.store.model()
    disk = Disk(parties, "beta", tmp_path / "copy")
    parties.collect()
    (begin,) = parties.wire[0, "begin", "alpha"]
    kept = list(parties.a.store.kept(0, parties.a.store.headers(0)))
    disk.set_back()
    parties.b.exchange(0, Exchange.BEGIN, begin)
    parties.b.exchange(0, Exchange.SUBMISSIONS, encode(Batch(tuple(Blob(each.relayed) for each in kept))))
    assert [rejected.reason for rejected in parties.b.rejections] == [Reason.FOREIGN] * 3


def test_a_client_answers_a_round_that_was_begun_twice_once(parties: Consortium, tmp_path: Path) -> None:
    disks = [Disk(parties, party, tmp_path / party) for party in ("alpha", "beta") if getattr(parties, party[0])]
    parties.collect()
    for disk in disks:
        disk.set_back()
    parties.a.start_round()
    with pytest.raises(RefusedError, match=says("round 0", "nonces", "twice")):
        parties.reply("bank")


def test_the_same_sum_has_the_same_noise_however_often_b_is_set_back(parties: Consortium, tmp_path: Path) -> None:
    close = close_of_a(parties)
    checks_of_b(parties, close)
    disk = Disk(parties, "beta", tmp_path / "copy")
    shares = set[bytes]()
    for _ in range(8):
        own = parties.a.own
        for what in (Exchange.CLOSE, Exchange.NONCE):
            parties.a.take(0, what, parties.b.own(0, what))
        parties.b.exchange(0, Exchange.CHECKS, own(0, Exchange.CHECKS))
        parties.a.take(0, Exchange.CHECKS, parties.b.own(0, Exchange.CHECKS))
        parties.b.exchange(0, Exchange.TALLY, own(0, Exchange.TALLY))
        shares.add(parties.b.own(0, Exchange.SHARE))
        disk.set_back()
    assert len(shares) == 1


def test_another_sum_has_another_noise(parties: Consortium, tmp_path: Path) -> None:
    """Two sums under one noise would give their difference away: an update."""
    close = close_of_a(parties)
    disk = Disk(parties, "beta", tmp_path / "copy")
    opened = {}
    for dropped in (0, 1):
        fewer = replace(close, headers=close.headers[dropped:])
        checks_of_b(parties, fewer)
        held = parties.b._guarded(0, lambda replay: replay._agreed.headers)
        parties.b.store.pin(0, {"valid": json.dumps(sorted(held)).encode()})
        parties.b.own(0, Exchange.TALLY)
        opened[dropped] = parties.b.store.pinned(0, "own share")
        disk.set_back()
    shares = [decode(raw, NoisyShare, share=world.DIM).share.view(np.int64) for raw in opened.values() if raw]
    assert np.abs(shares[0] - shares[1]).min() > 2**20


def test_a_tally_tells_nothing_about_a_share_that_can_be_guessed(parties: Consortium) -> None:
    parties.round()
    (raw,) = parties.wire[0, "tally", "beta"]
    (opened,) = parties.wire[0, "share", "beta"]
    tally, share = decode(raw, Tally), decode(opened, NoisyShare, share=world.DIM)
    assert tally.share == digests.tally(share.salt, share.share)
    assert tally.share not in (vector_digest(share.share), digests.tally(Secret(bytes(32)), share.share))


def test_a_resent_submission_replaces_a_damaged_part_for_b(parties: Consortium) -> None:
    parties.a.start_round()
    reply = parties.reply("bank")
    sealed = decode(reply, Sealed)
    damaged = replace(sealed, part_b=Blob(bytes(len(sealed.part_b))))
    assert parties.a.submit(encode(damaged)) is None
    assert parties.a.submit(reply) is None
    parties.a.finish_round()
    assert parties.a.ledger.participations() == {"bank": 1}


def test_a_server_that_lies_about_its_share_moves_the_model_by_a_bounded_step(parties: Consortium) -> None:
    """Its tally fits its share, but no noise is so long: the other server opens nothing."""
    lie = np.full(world.DIM, 1 << 50, np.uint64)
    salt = Secret.fresh()

    def tamper(_round: int, what: Exchange, sender: str, message: bytes) -> bytes:
        if sender == "beta" and what is Exchange.TALLY:
            return encode(replace(decode(message, Tally), share=digests.tally(salt, lie)))
        if sender == "beta" and what is Exchange.SHARE:
            return encode(NoisyShare(decode(message, NoisyShare, share=world.DIM).outcome, salt, lie))
        return message

    parties.tamper = tamper
    before = parties.a.model()
    with pytest.raises(ProtocolError, match=says("opened sum", "longer")):
        parties.round()
    assert np.array_equal(parties.a.model(), before)
