"""What a client refuses, what it counts, and that it never says two things."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from precad.deployment import receipts, sealing
from precad.deployment.client import Client, RefusedError
from precad.deployment.disk import StoreError
from precad.deployment.keys import sign
from precad.deployment.sealing import EpochKey
from precad.mpc.prg import Digest
from precad.protocol import aggregation, digests
from precad.protocol.codec import Blob
from precad.protocol.digests import model_digest
from precad.protocol.messages import Invitation, Told, decode, encode
from precad.protocol.states import Role
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says

WORLD = world.make()
TASK = WORLD.task


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Consortium]:
    consortium = Consortium(tmp_path, WORLD)
    consortium.a.start_round()
    yield consortium
    consortium.close()


def signed_by(role: Role, message: Invitation) -> Blob:
    nonces = digests.nonces(message.nonce_a, message.nonce_b)
    statement = sealing.start_statement(message.task, message.round, message.model, nonces)
    return sign(WORLD.servers[role].signing, statement)


def announced(role: Role, epoch: int, signer: Role | None = None) -> Blob:
    key = WORLD.servers[signer or role].signing
    return Blob(EpochKey.fresh(TASK, TASK.server(role), epoch, key).announced)


FORGED: dict[str, tuple[Callable[[Invitation], Invitation], str]] = {
    "another task": (lambda i: replace(i, task=Digest(bytes(32))), "another task"),
    "A's signature is missing": (lambda i: replace(i, signature_a=Blob(b"")), "alpha .*sign"),
    "B's signature is missing": (lambda i: replace(i, signature_b=Blob(bytes(64))), "beta .*sign"),
    "A signs for B": (lambda i: replace(i, signature_b=signed_by(Role.A, i)), "beta .*sign"),
    "signatures of another round": (lambda i: replace(i, round=1), "sign .*round 1"),
    "A makes B's key": (lambda i: replace(i, sealing_b=announced(Role.B, 0, Role.A)), "beta .*sign"),
    "A's key for B": (lambda i: replace(i, sealing_b=i.sealing_a), "task.*server.*epoch"),
    "a key of another epoch": (lambda i: replace(i, sealing_b=announced(Role.B, 1)), "task.*server.*epoch"),
    "no key": (lambda i: replace(i, sealing_a=Blob(b"")), "message ends"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_invitation_is_refused(parties: Consortium, name: str) -> None:
    change, message = FORGED[name]
    forged = encode(change(decode(parties.a.invitation(), Invitation)))
    with pytest.raises(RefusedError, match=message):
        parties.client("bank").join(forged, parties.a.model())
    assert parties.client("bank").participations() == 0


def test_another_model_is_refused(parties: Consortium) -> None:
    nan = world.MODEL.copy()
    nan[0] = np.nan
    for model in (world.MODEL + 1e-9, world.MODEL[:-1].copy(), nan, world.MODEL.astype(np.float32)):
        with pytest.raises(RefusedError, match=says("model", "signed")):
            parties.client("bank").join(parties.a.invitation(), model)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="message ends"):
        parties.client("bank").join(b"", world.MODEL)


def test_a_round_is_answered_once_in_the_same_bytes(parties: Consortium) -> None:
    first = parties.reply("bank")
    assert parties.reply("bank", np.ones(world.DIM)) == first
    parties.kill("bank")
    assert parties.reply("bank", np.zeros(world.DIM)) == first
    assert parties.client("bank").participations() == 1


def test_two_processes_of_one_client_say_the_same(parties: Consortium) -> None:
    """Both were asked before either answered."""
    twin = Client(TASK, "bank", WORLD.clients["bank"].signing, parties.folder / "bank.db")
    both = [client.join(parties.a.invitation(), parties.a.model()) for client in (parties.client("bank"), twin)]
    first = parties.client("bank").answer(both[0], np.ones(world.DIM))
    assert twin.answer(both[1], np.zeros(world.DIM)) == first
    assert len(twin.log()) == twin.participations() == 1
    twin.close()


def test_an_earlier_round_and_another_model_are_refused(parties: Consortium) -> None:
    old = parties.a.invitation()
    parties.a.submit(parties.reply("bank"))
    parties.a.finish_round()
    parties.a.start_round()
    parties.reply("bank")
    with pytest.raises(RefusedError, match=says("round 0", "round 1", "set back")):
        parties.client("bank").join(old, world.MODEL)
    other = world.MODEL + 1
    now = decode(parties.a.invitation(), Invitation)
    both = replace(now, model=model_digest(other))
    both = replace(both, signature_a=signed_by(Role.A, both), signature_b=signed_by(Role.B, both))
    with pytest.raises(RefusedError, match=says("round 1", "another model")):
        parties.client("bank").join(encode(both), other)


def test_the_budget_is_the_clients_own(parties: Consortium) -> None:
    client = parties.client("bank")
    for number in range(10, 10 + TASK.training.participations):
        client.ledger.record(number, ["bank"])
    with pytest.raises(RefusedError, match=says("5 times", "budget")):
        parties.reply("bank")
    assert parties.a.submit(parties.reply("lab")) is None
    parties.a.finish_round()


def test_a_crash_after_counting_costs_nothing_more(parties: Consortium) -> None:
    """At the cap: the last round was counted, and the reply not yet stored."""
    client = parties.client("bank")
    for number in (0, 10, 11, 12, 13):
        client.ledger.record(number, ["bank"])
    assert parties.a.submit(parties.reply("bank")) is None
    assert client.participations() == 5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_zeros_are_sent_for_an_update_that_is_not_finite(
    parties: Consortium, value: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence would tell of the records."""
    monkeypatch.setattr(aggregation, "integer_gaussian", lambda _std, size, _stream: np.zeros(size, np.int64))
    update = np.ones(world.DIM)
    update[3] = value
    before = parties.a.model()
    wrong = {"bank": update, "clinic": np.zeros(3), "lab": np.array(["a"])}
    sent = {name: parties.reply(name, x) for name, x in wrong.items()}
    assert all(parties.client(name).participations() == 1 for name in wrong)
    assert len({len(reply) for reply in sent.values()}) == 1
    assert re.search(says("entry 3", "140 entries", "zeros"), caplog.text)
    assert [parties.a.submit(reply) for reply in sent.values()] == [None] * 3
    assert np.array_equal(parties.a.finish_round(), before)


def test_a_huge_update_is_clipped(parties: Consortium) -> None:
    assert parties.a.submit(parties.reply("bank", np.full(world.DIM, 1e30))) is None
    parties.a.finish_round()
    assert parties.a.ledger.participations() == {"bank": 1}


def test_keys_and_files(tmp_path: Path) -> None:
    key = WORLD.clients["bank"].signing
    with pytest.raises(ValueError, match=says("stranger", "roster")):
        Client(TASK, "stranger", key, tmp_path / "x.db")
    with pytest.raises(ValueError, match=says("key", "roster", "lab")):
        Client(TASK, "lab", key, tmp_path / "x.db")
    Client(TASK, "bank", key, tmp_path / "bank.db").close()
    with pytest.raises(StoreError, match=says("state of bank")):
        Client(TASK, "lab", WORLD.clients["lab"].signing, tmp_path / "bank.db")


def test_the_log_names_nobody_else(parties: Consortium) -> None:
    for name in world.CLIENTS:
        parties.a.submit(parties.reply(name))
    parties.a.finish_round()
    text = "\n".join(parties.client("bank").log())
    assert "bank" in text
    assert not any(name in text for name in ("clinic", "lab"))
    (line,) = parties.client("bank").log()
    assert receipts.parse(line).events.kind == receipts.SENT


def test_a_verdict_is_heard_once_and_checked(parties: Consortium) -> None:
    for name in world.CLIENTS:
        parties.a.submit(parties.reply(name))
    assert parties.a.told("bank") is None
    parties.a.finish_round()
    raw, client = parties.a.told("bank"), parties.client("bank")
    assert raw is not None
    told = decode(raw, Told)
    other = Digest(bytes(32))
    for forged, words in (
        (replace(told, verdict="invalid"), "alpha .*sign .*verdict"),
        (replace(told, next_model=other), "alpha .*sign .*verdict"),
        (replace(told, signature_b=told.signature_a), "beta .*sign .*verdict"),
        (replace(told, header=other), "send.* round 0"),
        (replace(told, round=1), "send.* round 1"),
        (replace(told, task=other), "did not send"),
    ):
        with pytest.raises(RefusedError, match=words):
            client.hear(encode(forged))
    with pytest.raises(RefusedError, match="message ends"):
        client.hear(b"")
    lab = parties.a.told("lab")
    assert lab is not None
    with pytest.raises(RefusedError, match="did not send"):
        client.hear(lab)
    assert len(client.log()) == 1, "nothing forged is logged"
    assert client.hear(raw) == client.hear(raw) == receipts.VALID
    assert len(client.log()) == 2
    logs = parties.a.store.log(), parties.b.store.log()
    assert receipts.audit(TASK, *logs, {"bank": client.log()}).endswith("bank sent in 1 rounds, and counted in 1")


def test_the_state_holds_no_update(parties: Consortium) -> None:
    """Only sealed bytes, which the client itself cannot open."""
    reply = parties.reply("bank")
    parties.kill("bank")
    connection = sqlite3.connect(parties.folder / "bank.db")
    assert connection.execute("SELECT reply FROM sent").fetchall() == [(reply,)]
    connection.close()
