"""Both servers over a transport in memory: rounds, refusals, and what stays on the disk."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precad.deployment import keys, receipts, sealing
from precad.deployment.disk import StoreError
from precad.deployment.helper import HelperServer
from precad.deployment.keys import sign
from precad.deployment.leader import Leader
from precad.deployment.store import Status
from precad.deployment.task import Participants, Task, TooFewError
from precad.deployment.totals import read_ledger
from precad.deployment.transport import Exchange, TransportError, submission_limit
from precad.errors import ProtocolError, Reason, Rejected
from precad.lab.attacks import cheating
from precad.lab.attacks.cheating import Cheat
from precad.mpc import field
from precad.mpc.field import FieldVector
from precad.mpc.prg import Digest
from precad.mpc.secret import Secret
from precad.protocol import aggregation
from precad.protocol.codec import Blob
from precad.protocol.messages import (
    Batch,
    Begin,
    Close,
    Header,
    Nonce,
    PartB,
    Receipt,
    Relayed,
    Sealed,
    Tally,
    decode,
    encode,
)
from precad.protocol.params import Round, Unit, Validation
from precad.protocol.states import Role
from tests.deployment import world
from tests.deployment.consortium import Consortium, Crash
from tests.messages import says

WORLD = world.make()


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Consortium]:
    consortium = Consortium(tmp_path, WORLD)
    yield consortium
    consortium.close()


def test_rounds_follow_each_other(parties: Consortium) -> None:
    models = [world.MODEL, *(parties.round() for _ in range(3))]
    assert len({model.tobytes() for model in models}) == 4
    parties.check()


def test_the_opened_sum_is_the_clients(tmp_path: Path) -> None:
    """Records of little weight, so that the sum shows over the noise: 3·½, times η = ½, over N = q·p·Σ|D_i| = 15."""
    params = replace(world.PARAMS, unit=Unit.RECORD, record_bound=0.01, noise_multiplier=1.0)
    consortium = Consortium(tmp_path, world.make(replace(world.TRAINING, reply_seconds=1.0), params))
    model = consortium.round()
    std = 0.011 * 2**0.5 * 0.5 / 15
    assert np.abs(model - (world.MODEL + 0.05)).max() < 7 * std < 0.01
    consortium.close()


@pytest.mark.parametrize("participants", [0, 1])
def test_a_round_with_too_few_is_never_opened(tmp_path: Path, participants: int) -> None:
    """It moves no model and spends nothing, at either server; the next round is another selection's."""
    parties = Consortium(tmp_path, world.make(replace(world.TRAINING, minimum=2)))
    parties.a.start_round()
    for name in world.CLIENTS[:participants]:
        assert parties.a.submit(parties.reply(name)) is None
    with pytest.raises(TooFewError, match=says(participants, "fewer", 2)):
        parties.a.finish_round()
    parties.a.abandon_round()
    assert parties.a.start_round() == 1
    for server in (parties.a, parties.b):
        assert np.array_equal(server.store.model(), world.MODEL)
        assert server.ledger.participations() == {}
        assert server.store.opened_rounds() == 0
        assert [receipts.parse(line).events.kind for line in server.store.log()] == [receipts.ABANDONED]
    assert [parties.a.submit(parties.reply(name)) for name in world.CLIENTS] == [None] * 3
    assert not np.array_equal(parties.a.finish_round(), world.MODEL)
    parties.close()


def test_b_tallies_no_round_with_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server A that would open it gets nothing from B; what is invalid counts for nobody. A crash changes nothing."""
    parties = Consortium(tmp_path, world.make(replace(world.TRAINING, minimum=2)))
    parties.a.start_round()
    assert parties.a.submit(parties.reply("bank")) is None
    with monkeypatch.context() as patch:
        patch.setattr(Task, "check_minimum", lambda *_: None)
        for what in (Exchange.CLOSE, Exchange.NONCE, Exchange.CHECKS):
            own = parties.a.own(0, what)
            if what is Exchange.CLOSE:
                kept = parties.a.store.kept(0, ["bank"])
                parties.exchange(0, Exchange.SUBMISSIONS, encode(Batch(tuple(Blob(each.relayed) for each in kept))))
            parties.a.take(0, what, parties.exchange(0, what, own))
        tally = parties.a.own(0, Exchange.TALLY)
    for _ in range(2):
        with pytest.raises(TooFewError, match=says(1, "fewer", 2)):
            parties.exchange(0, Exchange.TALLY, tally)
        parties.kill("beta")
    parties.kill("alpha")
    assert parties.a.start_round() == 1, "what was closed with too few is given up first"
    assert parties.b.ledger.participations() == {}
    parties.close()


def test_b_gives_up_a_round_until_it_has_tallied_it(parties: Consortium) -> None:
    """After that A may have let its share out, and could never go on alone."""
    with pytest.raises(ProtocolError, match="no round is under way"):
        parties.b.abandon_round()
    parties.collect()
    assert parties.b.abandon_round() == 0
    with pytest.raises(ProtocolError, match=says("beta", "given up round 0")):
        parties.a.finish_round()
    parties.a.abandon_round()
    parties.collect()
    tried: list[str] = []

    def hook(party: str, what: str) -> None:
        if party == "alpha" and what == "got tally":
            with pytest.raises(ProtocolError, match=says("tallied", "only be finished")):
                parties.b.abandon_round()
            tried.append(what)

    parties.hook = hook
    parties.a.finish_round()
    assert tried
    with pytest.raises(ProtocolError, match="cannot be abandoned"):
        parties.b.abandon_round()
    assert parties.b.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)


def test_hidden_participants_open_a_round_of_nobody(tmp_path: Path) -> None:
    """If it were given up, an opened round would tell all other clients together that the last one took part."""
    training = replace(world.TRAINING, participants=Participants.HIDDEN, minimum=0)
    parties = Consortium(tmp_path, world.make(training))
    parties.a.start_round()
    assert not np.array_equal(parties.a.finish_round(), world.MODEL)
    assert parties.a.ledger.participations() == {}
    parties.close()


def test_without_validation(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path, world.make(params=replace(world.PARAMS, validation=Validation.NONE)))
    consortium.round()
    consortium.check()
    with pytest.raises(ProtocolError, match="no exchange of checks"):
        consortium.b.exchange(0, Exchange.CHECKS, b"")
    consortium.close()


def test_the_cap_ends_participation(parties: Consortium) -> None:
    for _ in range(WORLD.task.training.participations):
        parties.round()
    parties.a.start_round()
    assert parties.a.selected() == frozenset()


def test_b_lets_in_fewer(parties: Consortium) -> None:
    for number in range(100, 105):
        parties.b.ledger.record(number, ["bank"])
    parties.a.start_round()
    assert parties.a.selected() == {"clinic", "lab"}
    assert parties.a.submit(parties.reply("lab")) is None
    parties.a.finish_round()
    with pytest.raises(ProtocolError, match="no round is open"):
        parties.a.selected()


def test_the_task_ends(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path, world.make(replace(world.TRAINING, rounds=1)))
    consortium.round()
    with pytest.raises(ProtocolError, match=says("1 rounds", "opened")):
        consortium.a.start_round()
    consortium.close()


def test_selection_follows_q(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path, world.make(replace(world.TRAINING, client_rate=1e-9)))
    assert consortium.a.select() == frozenset()
    consortium.close()


# What a client may send, and what it costs the others: nothing.


def swapped(reply: bytes, **fields: bytes) -> bytes:
    return encode(replace(decode(reply, Sealed), **{name: Blob(value) for name, value in fields.items()}))


def test_bad_replies_are_rejected_and_the_round_goes_on(parties: Consortium) -> None:
    parties.a.start_round()
    honest = parties.reply("bank")
    other = decode(parties.reply("lab"), Sealed)
    sealed = decode(honest, Sealed)
    submit = parties.a.submit
    assert submit(b"") == submit(b"garbage" * 1000) == submit(bytes(10**7)) == Rejected(Reason.MALFORMED)
    assert submit(swapped(honest, part_b=bytes(5))) == Rejected(Reason.MALFORMED)
    assert submit(swapped(honest, signature=b"")) == Rejected(Reason.MALFORMED)
    assert submit(swapped(honest, header=b"")) == Rejected(Reason.MALFORMED)
    assert submit(swapped(honest, signature=bytes(64))) == Rejected(Reason.SIGNATURE)
    assert submit(swapped(honest, signature=other.signature)) == Rejected(Reason.SIGNATURE)
    assert submit(swapped(honest, part_a=other.part_a)) == Rejected(Reason.SEAL)
    stranger = encode(replace(decode(sealed.header, Header), client="stranger"))
    assert submit(swapped(honest, header=stranger)) == Rejected(Reason.NOT_SELECTED)
    header_of = decode(sealed.header, Header)
    elsewhere = Digest(bytes(32))
    for foreign in (
        replace(header_of, round=7),
        replace(header_of, model=elsewhere),
        replace(header_of, task=elsewhere),
    ):
        header = encode(foreign)
        signature = sealing.sign_header(WORLD.clients["bank"].signing, header)
        assert submit(swapped(honest, header=header, signature=signature)) == Rejected(Reason.FOREIGN)
    assert submit(honest) is None
    assert submit(honest) is None
    assert submit(encode(other)) is None
    assert submit(parties.reply("clinic")) is None
    parties.a.finish_round()
    parties.check()


def test_a_second_submission_and_a_late_one(parties: Consortium, tmp_path: Path) -> None:
    parties.collect()
    twin = Consortium(tmp_path / "twin", WORLD)  # a client whose state was lost, or who cheats
    joined = twin.client("bank").join(parties.a.invitation(), parties.a.model())
    second = twin.client("bank").answer(joined, np.ones(world.DIM))
    assert parties.a.submit(second) == Rejected(Reason.REPEATED)
    first = parties.reply("bank")
    parties.a.finish_round()
    assert parties.a.submit(first) == Rejected(Reason.LATE)
    parties.a.start_round()
    assert parties.a.submit(first) == Rejected(Reason.FOREIGN)
    twin.close()


CHEATS = [cheat for cheat in cheating.against(Validation.PROOF) if cheat.name != "garbage"]


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_costs_nobody_else_anything(parties: Consortium, cheat: Cheat) -> None:
    """Every known way to cheat, signed and sealed as it should be: the cheat is out, the others count."""
    parties.a.start_round()
    for name in ("clinic", "lab"):
        parties.a.submit(parties.reply(name))
    joined = parties.client("bank").join(parties.a.invitation(), parties.a.model())
    sent = cheat.submit(joined.round, "bank")
    message = Sealed(
        Blob(sent.header),
        sealing.sign_header(WORLD.clients["bank"].signing, sent.header),
        sealing.seal(joined.sealing_a, sent.part_a, sent.header, WORLD.task.server_a),
        sealing.seal(joined.sealing_b, sent.part_b, sent.header, WORLD.task.server_b),
    )
    parties.a.submit(encode(message))
    parties.a.finish_round()
    assert set(parties.a.ledger.participations()) == set(parties.b.ledger.participations()) == {"clinic", "lab"}


# A relays B's parts. It can drop them; it cannot read, alter, swap or replay them.


def relay(change: Callable[[list[Relayed]], list[Relayed]]) -> Callable[[int, Exchange, str, bytes], bytes]:
    def tamper(_round: int, what: Exchange, sender: str, message: bytes) -> bytes:
        if what is not Exchange.SUBMISSIONS or sender != "alpha":
            return message
        items = change([decode(item, Relayed) for item in decode(message, Batch).items])
        return encode(Batch(tuple(Blob(encode(item)) for item in items)))

    return tamper


def flip(raw: bytes) -> Blob:
    return Blob(raw[:-1] + bytes([raw[-1] ^ 1]))


RELAYS: list[tuple[str, Callable[[list[Relayed]], list[Relayed]], set[str]]] = [
    ("dropped", lambda items: items[1:], {"clinic", "lab"}),
    ("altered", lambda items: [replace(items[0], part=flip(items[0].part)), *items[1:]], {"clinic", "lab"}),
    (
        "swapped",
        lambda items: [replace(items[0], part=items[1].part), replace(items[1], part=items[0].part), items[2]],
        {"lab"},
    ),
    ("unsigned", lambda items: [replace(items[0], signature=flip(items[0].signature)), *items[1:]], {"clinic", "lab"}),
    (
        "renamed",
        lambda items: [
            replace(items[0], header=Blob(encode(replace(decode(items[0].header, Header), client="lab")))),
            *items[1:],
        ],
        {"clinic", "lab"},
    ),
    ("repeated", lambda items: [*items, *items], {"bank", "clinic", "lab"}),
]


@pytest.mark.parametrize(("change", "left"), [pytest.param(c, left, id=name) for name, c, left in RELAYS])
def test_a_relay_that_tampers(
    parties: Consortium, change: Callable[[list[Relayed]], list[Relayed]], left: set[str]
) -> None:
    parties.tamper = relay(change)
    parties.round()
    assert set(parties.a.ledger.participations()) == set(parties.b.ledger.participations()) == left


def test_a_relay_cannot_replay_or_read(parties: Consortium) -> None:
    parties.round()
    (old,) = parties.wire[0, "submissions", "alpha"]
    parties.a.start_round()
    parties.b.exchange(1, Exchange.SUBMISSIONS, old)
    assert [rejected.reason for rejected in parties.b.rejections] == [Reason.FOREIGN] * 3
    relayed = decode(decode(old, Batch).items[0], Relayed)
    own = parties.a.epoch_key(0).private
    assert sealing.unseal(own, relayed.part, relayed.header, WORLD.task.server_b) is None


# What B refuses, whatever A says.


def resigned(begin: Begin) -> bytes:
    statement = sealing.start_statement(begin.task, begin.round, begin.model, begin.nonce)
    return encode(replace(begin, signature=sign(WORLD.servers[Role.A].signing, statement)))


def test_b_refuses_another_beginning(parties: Consortium) -> None:
    parties.a.start_round()
    (raw,) = parties.wire[0, "begin", "alpha"]
    begin = decode(raw, Begin)
    answer = parties.b.exchange(0, Exchange.BEGIN, raw)
    assert answer == next(iter(parties.wire[0, "begin", "beta"]))
    with pytest.raises(ProtocolError, match="begin was another before"):
        parties.b.exchange(0, Exchange.BEGIN, resigned(replace(begin, selected=("bank",))))
    with pytest.raises(ProtocolError, match="runs another task"):
        parties.b.exchange(0, Exchange.BEGIN, encode(replace(begin, task=Digest(bytes(32)))))
    with pytest.raises(ProtocolError, match=says("sign", "model")):
        parties.b.exchange(0, Exchange.BEGIN, encode(replace(begin, signature=Blob(bytes(64)))))
    with pytest.raises(ProtocolError, match=says("round 0", "round 1")):
        parties.b.exchange(1, Exchange.BEGIN, raw)
    other = resigned(replace(begin, round=5, model=Digest(bytes(32))))
    with pytest.raises(ProtocolError, match=says("round 5", "model")):
        parties.b.exchange(5, Exchange.BEGIN, other)


SECOND: list[tuple[Exchange, Callable[[bytes], bytes]]] = [
    (Exchange.CLOSE, lambda raw: encode(replace(decode(raw, Close), headers=()))),
    (Exchange.NONCE, lambda raw: encode(replace(decode(raw, Nonce), nonce=Secret.fresh()))),
    (Exchange.CHECKS, lambda raw: encode(Batch(decode(raw, Batch).items[::-1]))),
    (Exchange.TALLY, lambda raw: encode(replace(decode(raw, Tally), share=Digest(bytes(32))))),
    (Exchange.SHARE, lambda raw: raw[:-8] + bytes(8)),
    (Exchange.RECEIPT, lambda raw: encode(replace(decode(raw, Receipt), events=Digest(bytes(32))))),
]


@pytest.mark.parametrize(("what", "change"), SECOND, ids=lambda value: getattr(value, "value", ""))
@pytest.mark.parametrize("restart", [False, True])
def test_a_second_message_is_refused_for_ever(
    parties: Consortium, what: Exchange, change: Callable[[bytes], bytes], restart: bool
) -> None:
    parties.round()
    (raw,) = parties.wire[0, what.value, "alpha"]
    (answer,) = parties.wire[0, what.value, "beta"]
    if restart:
        parties.kill("beta")
    with pytest.raises(ProtocolError, match=says("no second")):
        parties.b.exchange(0, what, change(raw))
    if what in (Exchange.SHARE, Exchange.RECEIPT):
        assert parties.b.exchange(0, what, raw) == answer
    else:
        with pytest.raises(ProtocolError, match=says("opened", "erased")):
            parties.b.exchange(0, what, raw)
    parties.round()
    with pytest.raises(ProtocolError, match="not the current round"):
        parties.b.exchange(0, what, raw)


@pytest.mark.parametrize("liar", Role)
def test_a_sum_that_is_too_long_is_opened_by_neither_and_the_task_ends_there(
    parties: Consortium, liar: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server moves a coordinate of its noisy share, which it tallied so; the other does not take the sum."""
    honest = aggregation.noisy_sum

    def moved(round_: Round, server: str, *rest: Any) -> FieldVector:
        share = honest(round_, server, *rest)
        if server == liar.value:
            share[0] = (int(share[0]) + (1 << 44)) % field.P
        return share

    monkeypatch.setattr(aggregation, "noisy_sum", moved)
    parties.collect()
    words = says("opened sum", "3 valid updates", "did not follow the protocol")
    with pytest.raises(ProtocolError, match=words):
        parties.a.finish_round()
    for _ in range(2):
        with pytest.raises(ProtocolError, match=words):
            parties.a.start_round()
        with pytest.raises(ProtocolError, match=says("revealed", "cannot be abandoned")):
            parties.a.abandon_round()
        parties.kill("alpha")
        parties.kill("beta")
    assert np.array_equal(parties.a.model(), world.MODEL)
    assert parties.a.ledger.participations() == dict.fromkeys(world.CLIENTS, 1), "what was revealed is charged"


def test_a_repeated_message_gets_the_same_bytes(parties: Consortium) -> None:
    """Each message of A twice, with B killed in between."""

    def repeat(round_: int, what: Exchange, sender: str, message: bytes) -> bytes:
        if sender == "beta":
            (sent,) = parties.wire[round_, what.value, "alpha"]
            parties.kill("beta")
            assert parties.b.exchange(round_, what, sent) == message
        return message

    parties.tamper = repeat
    parties.round()
    parties.round()
    parties.check()


@pytest.mark.parametrize("what", list(Exchange)[3:], ids=lambda value: value.value)
def test_nothing_before_its_time(parties: Consortium, what: Exchange) -> None:
    parties.round()
    parties.collect()
    (raw,) = parties.wire[0, what.value, "alpha"]
    with pytest.raises(ProtocolError, match=r"before its time|another"):
        parties.b.exchange(1, what, raw)
    assert parties.b.last().status in (Status.OPEN, Status.CLOSED)  # type: ignore[union-attr]
    parties.a.finish_round()
    parties.check()


@pytest.mark.parametrize("what", list(Exchange), ids=lambda value: value.value)
def test_garbage_from_a_changes_nothing(parties: Consortium, what: Exchange) -> None:
    parties.collect()
    for body in (b"", b"garbage", bytes(1000)):
        with pytest.raises(ProtocolError):
            parties.b.exchange(0, what, body)
    parties.a.finish_round()
    parties.check()


def test_a_number_that_no_file_holds_gives_up_no_round(parties: Consortium) -> None:
    parties.collect()
    with pytest.raises(ProtocolError, match=r"below 2\^63, got 9223372036854775808"):
        parties.b.begin(1 << 63, frozenset())
    parties.a.finish_round()
    parties.check()


def test_abandoning(parties: Consortium) -> None:
    parties.collect()
    with pytest.raises(ProtocolError, match="not after"):
        parties.a.begin(0, frozenset())
    parties.a.abandon_round()
    with pytest.raises(ProtocolError, match="cannot be abandoned"):
        parties.a.abandon_round()
    with pytest.raises(ProtocolError, match="no round"):
        parties.a.finish_round()
    assert parties.a.start_round() == 1
    assert parties.b.last().number == 1  # type: ignore[union-attr]
    with pytest.raises(ProtocolError, match="not the current round"):
        parties.b.exchange(0, Exchange.CLOSE, b"")
    assert parties.a.ledger.participations() == {}
    assert parties.a.store.headers(0) == parties.b.store.headers(0) == {}


def test_two_threads_write_the_audit_log_once(parties: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when an operator gives up a round at B while A begins the next."""
    parties.collect()
    parties.b.abandon_round()
    lines, path = parties.b.store.log(), parties.folder / "log"

    def slow(after: int = -1) -> list[str]:
        time.sleep(0.2)
        return [line for line in lines if receipts.parse(line).events.round > after]

    monkeypatch.setattr(parties.b.store, "log", slow)
    threads = [threading.Thread(target=parties.b.write_log, args=(path,)) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert path.read_text().splitlines() == lines


BEFORE_THE_SHARE = list(Exchange)[:-2]


@pytest.mark.parametrize("what", BEFORE_THE_SHARE, ids=lambda value: value.value)
@pytest.mark.parametrize("sender", ["alpha", "beta"])
def test_abandoning_at_every_exchange(parties: Consortium, what: Exchange, sender: str) -> None:
    """The message, or its answer, is lost and A gives up. Nothing was opened; the next round counts once."""
    parties.tamper = losing(what, sender)
    with pytest.raises(TransportError):
        parties.round()
    parties.tamper = lambda _round, _what, _sender, message: message
    parties.a.abandon_round()
    assert parties.a.ledger.participations() == parties.b.ledger.participations() == {}
    parties.round()
    assert (0, "share", "alpha") not in parties.wire
    assert parties.a.ledger.participations() == parties.b.ledger.participations() == dict.fromkeys(world.CLIENTS, 1)
    assert receipts.audit(WORLD.task, parties.a.store.log(), parties.b.store.log(), {}).startswith("both servers agree")


@pytest.mark.parametrize("what", list(Exchange), ids=lambda value: value.value)
@pytest.mark.parametrize("sender", ["alpha", "beta"])
def test_a_lost_message_is_sent_again(parties: Consortium, what: Exchange, sender: str) -> None:
    parties.tamper = losing(what, sender)
    with pytest.raises(TransportError):
        parties.round()
    parties.tamper = lambda _round, _what, _sender, message: message
    parties.rounds_until(1)
    parties.check()


def losing(what: Exchange, sender: str) -> Callable[[int, Exchange, str, bytes], bytes]:
    def lose(_round: int, sent: Exchange, by: str, message: bytes) -> bytes:
        if (sent, by) == (what, sender):
            raise TransportError("lost")
        return message

    return lose


def test_what_was_charged_is_not_abandoned(parties: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dies while it charges the budget: the round can only go forward, so that both ledgers stay the same."""
    parties.collect()

    def die(*_: object) -> None:
        raise Crash("alpha")

    monkeypatch.setattr(parties.a.ledger, "record", die)
    with pytest.raises(Crash):
        parties.a.finish_round()
    parties.kill("alpha")
    with pytest.raises(ProtocolError, match=says("revealed", "abandoned")):
        parties.a.abandon_round()
    parties.rounds_until(1)
    parties.check()


def test_no_way_back_after_the_noisy_share_left(parties: Consortium) -> None:
    parties.collect()

    def lose_the_share(_round: int, what: Exchange, sender: str, message: bytes) -> bytes:
        if what is Exchange.SHARE and sender == "beta":
            raise ConnectionError("lost")
        return message

    parties.tamper = lose_the_share
    with pytest.raises(ConnectionError):
        parties.a.finish_round()
    with pytest.raises(ProtocolError, match=says("revealed", "abandoned")):
        parties.a.abandon_round()
    with pytest.raises(ProtocolError, match="is not settled"):
        parties.a.begin(1, frozenset())
    parties.tamper = lambda _round, _what, _sender, message: message
    assert parties.a.start_round() == 1
    parties.check()


# The disk.


def test_nothing_of_an_update_stays_on_the_disk(parties: Consortium) -> None:
    """After a round, no share, seed, nonce or sealed part is in any file; before, they are: the search works."""
    parties.collect()
    parties.b.exchange(0, Exchange.SUBMISSIONS, _batch(parties))
    secrets = []
    for server in (parties.a, parties.b):
        for kept in server.store.kept(0, ["bank"]):
            secrets += [kept.part[16:48], kept.part[48:80], kept.part[-64:]]
            secrets += [kept.relayed[-64:]] if kept.relayed else []
    key = parties.b.epoch_key(0).private
    assert all(any(secret in file for file in _files(parties)) for secret in (*secrets, key))
    parties.a.finish_round()
    assert not any(secret in file for secret in secrets for file in _files(parties))
    for _ in range(2):
        parties.round()
    assert not any(key in file for file in _files(parties))


def _batch(parties: Consortium) -> bytes:
    kept = parties.a.store.kept(0, parties.a.store.headers(0))
    return encode(Batch(tuple(Blob(each.relayed) for each in kept)))


def _files(parties: Consortium) -> list[bytes]:
    return [path.read_bytes() for name in ("alpha", "beta") for path in parties.folder.glob(f"{name}.db*")]


def test_files_of_another_task_or_party(parties: Consortium, tmp_path: Path) -> None:
    parties.round()
    other = Consortium(tmp_path, world.make())
    with pytest.raises(StoreError, match=says("store of alpha")):
        _ = other.a
    key = WORLD.servers[Role.B].signing
    with pytest.raises(StoreError, match="not of beta"):
        HelperServer(WORLD.task, key, tmp_path / "alpha.db", world.MODEL)
    with pytest.raises(ValueError, match=says("key", "alpha")):
        Leader(WORLD.task, key, tmp_path / "x.db", world.MODEL, parties)
    with pytest.raises(ValueError, match="initial model"):
        HelperServer(WORLD.task, key, tmp_path / "x.db", world.MODEL + 1)


def test_a_full_disk_loses_nothing(parties: Consortium) -> None:
    parties.collect()
    for server in (parties.b, parties.a):
        connection = server.store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="disk is full"):
            server.store.pin(0, {"filler": bytes(100_000)})
        connection.execute("PRAGMA max_page_count = 1000000")
    parties.a.finish_round()
    parties.check()


def test_the_ledger_is_in_the_servers_file(parties: Consortium) -> None:
    parties.round()
    for name in ("alpha", "beta"):
        ledger = read_ledger(parties.folder / f"{name}.db")
        assert ledger.verify()
        assert ledger.counts == dict.fromkeys(world.CLIENTS, 1)


def test_the_sizes_of_what_a_client_sends(parties: Consortium) -> None:
    parties.a.start_round()
    message = parties.reply("bank")
    sealed = decode(message, Sealed)
    part = PartB(Secret.fresh(), Secret.fresh(), Digest(bytes(32)))
    assert len(encode(part)) == sealing.PART_B_BYTES
    assert len(sealed.part_b) == sealing.PART_B_BYTES + sealing.OVERHEAD
    assert len(sealed.signature) == keys.SIGNATURE_BYTES
    assert 0 < submission_limit(parties.task) - len(message) < 2048


def test_a_file_is_its_owners(parties: Consortium) -> None:
    parties.round()
    for path in parties.folder.glob("*.db*"):
        assert path.stat().st_mode & 0o077 == 0, path
