"""How a server finds out that its store was set back: from its clients, its anchor, and its audit log's file."""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from precad.deployment import config, kit, receipts
from precad.deployment.client import RefusedError
from precad.deployment.config import ServerConfig
from precad.deployment.disk import SetBackError, StoreError
from precad.deployment.helper import HelperServer
from precad.deployment.keys import sign
from precad.deployment.rewind import Anchor
from precad.deployment.server import Server
from precad.deployment.store import Status, Store
from precad.deployment.transport import Exchange, submission_limit
from precad.errors import ProtocolError, Reason, Rejected
from precad.mpc.prg import Digest
from precad.protocol.codec import Blob
from precad.protocol.messages import Batch, Head, Header, Sealed, Told, decode, encode
from precad.protocol.states import Role
from precad.protocol.update import Model
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.deployment.test_rewind import Disk
from tests.messages import says

WORLD = world.make()
STOPPED = says("set back", "must not be used")


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Consortium]:
    consortium = Consortium(tmp_path / "disks", WORLD)
    consortium.folder.mkdir()
    yield consortium
    consortium.close()


def set_back_after_two_rounds(parties: Consortium, tmp_path: Path) -> None:
    """Both servers forget the second round, which all clients have heard of; then A begins a third."""
    parties.round()
    disks = [Disk(parties, party, tmp_path / party) for party in ("alpha", "beta")]
    parties.round()
    for name in world.CLIENTS:
        told = parties.a.told(name)
        assert told is not None
        parties.client(name).hear(told)
    for disk in disks:
        disk.set_back()
    parties.a.start_round()
    parties.a.abandon_round()
    parties.a.start_round()


def reply(parties: Consortium, name: str) -> bytes:
    joined = parties.client(name).join(parties.a.invitation(), parties.a.model())
    return parties.client(name).answer(joined, world.MODEL)


def test_b_stops_for_good_when_a_client_shows_what_it_forgot(
    parties: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is malicious, and does not look."""
    set_back_after_two_rounds(parties, tmp_path)
    look = Server._remembers
    monkeypatch.setattr(Server, "_remembers", lambda server, shown: server.role is Role.A or look(server, shown))
    for name in sorted(parties.a.selected()):
        assert parties.a.submit(reply(parties, name)) is None
    with pytest.raises(SetBackError, match=STOPPED):
        parties.a.finish_round()
    assert not parties.b.store.headers(2)
    parties.kill("beta")
    with pytest.raises(SetBackError, match=STOPPED):
        _ = parties.b


def test_a_stops_for_good_too(parties: Consortium, tmp_path: Path) -> None:
    set_back_after_two_rounds(parties, tmp_path)
    with pytest.raises(SetBackError, match=says("set back", "round 1")):
        parties.a.submit(reply(parties, "bank"))
    with pytest.raises(SetBackError, match=STOPPED):
        parties.a.invitation()
    with pytest.raises(SetBackError, match=STOPPED):
        parties.a.finish_round()


def test_every_header_shows_the_last_round_that_its_client_heard_of(parties: Consortium) -> None:
    shown = []
    for number in range(3):
        parties.round()
        (sent,) = parties.wire[number, "reply", "bank"]
        shown.append(decode(decode(sent, Sealed).header, Header).head)
    assert shown[0] == b""
    assert [decode(head, Head).round for head in shown[1:]] == [0, 1]


def heads(parties: Consortium) -> dict[str, bytes]:
    """Heads that this A has not signed: of nothing, of another key, of another round."""
    told = parties.a.task.model
    fake = sign(WORLD.clients["bank"].signing, receipts.head_statement(parties.task.digest, 0, told))
    own = sign(WORLD.servers[Role.A].signing, receipts.head_statement(parties.task.digest, 1, told))
    return {
        "garbage": b"garbage",
        "cut off": encode(Head(0, told, fake, fake))[:-1],
        "signed by another": encode(Head(0, told, fake, fake)),
        "signed for another round": encode(Head(0, told, own, own)),
        "too short a signature": encode(Head(0, told, Blob(b""), Blob(b""))),
    }


@pytest.mark.parametrize(
    "kind", ["garbage", "cut off", "signed by another", "signed for another round", "too short a signature"]
)
def test_a_head_that_no_server_signed_costs_its_client_its_submission_alone(
    parties: Consortium, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    parties.a.start_round()
    monkeypatch.setattr(parties.client("bank"), "_head", lambda: Blob(heads(parties)[kind]))
    assert parties.a.submit(reply(parties, "bank")) == Rejected(Reason.FOREIGN)
    assert parties.a.submit(reply(parties, "lab")) is None
    parties.a.finish_round()
    assert parties.a.ledger.participations() == {"lab": 1}


def test_no_client_takes_the_room_of_others_in_what_a_sends_to_b(
    parties: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A looks at its own signature in a head; in the place of B's there could be as much as A takes in a reply."""
    parties.round()
    parties.a.start_round()
    bank = parties.client("bank")
    bank.hear(parties.a.told("bank") or b"")
    long = replace(decode(bank._head(), Head), signature_b=Blob(bytes(1000)))
    monkeypatch.setattr(bank, "_head", lambda: Blob(encode(long)))
    sent = reply(parties, "bank")
    assert len(sent) < submission_limit(parties.task)
    assert parties.a.submit(sent) == Rejected(Reason.FOREIGN)


def test_a_head_with_another_model_than_the_logs_stops_the_server(
    parties: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has signed two ends of one round: one of them before it was set back."""
    parties.round()
    other = Digest(bytes(32))
    both = [sign(WORLD.servers[role].signing, receipts.head_statement(parties.task.digest, 0, other)) for role in Role]
    parties.a.start_round()
    monkeypatch.setattr(parties.client("bank"), "_head", lambda: Blob(encode(Head(0, other, *both))))
    with pytest.raises(SetBackError, match=STOPPED):
        parties.a.submit(reply(parties, "bank"))


def test_a_client_takes_no_head_that_both_servers_did_not_sign(parties: Consortium) -> None:
    parties.round()
    told = parties.a.told("bank")
    assert told is not None
    message = decode(told, Told)
    for swapped in (replace(message, head_b=message.head_a), replace(message, head_a=Blob(bytes(64)))):
        with pytest.raises(RefusedError, match=says("did not sign", "round 0")):
            parties.client("bank").hear(encode(swapped))
    parties.client("bank").hear(told)


@pytest.fixture
def anchored(parties: Consortium, tmp_path: Path) -> Path:
    """B has an anchor."""
    folder = tmp_path / "second"
    folder.mkdir()
    Anchor(folder, parties.task, parties.task.server_b).begin()
    parties.b_process = open_b(parties, folder)
    return folder


def open_b(parties: Consortium, anchor: Path) -> HelperServer:
    key = WORLD.servers[Role.B].signing
    return HelperServer(parties.task, key, parties.folder / "beta.db", world.MODEL, anchor=anchor)


def test_b_reveals_one_outcome_of_a_round_whatever_its_store_says(
    parties: Consortium, anchored: Path, tmp_path: Path
) -> None:
    """Set back to before its checks, B is asked for another sum by a malicious A."""
    parties.collect()
    kept = list(parties.a.store.kept(0, parties.a.store.headers(0)))
    parties.b.exchange(0, Exchange.SUBMISSIONS, encode(Batch(tuple(Blob(each.relayed) for each in kept))))
    disk = Disk(parties, "beta", tmp_path / "copy")
    parties.b_process = open_b(parties, anchored)
    disk_a = Disk(parties, "alpha", tmp_path / "copy-a")
    parties.a.finish_round()
    for each in (disk, disk_a):
        each.set_back()
    with pytest.raises(SetBackError, match=says("set back", "mark of round 0")):
        open_b(parties, anchored)


def test_a_second_outcome_of_a_round_is_refused(parties: Consortium, anchored: Path) -> None:
    """The store was set back while the server ran, as a snapshot of a machine does: no start compares them."""
    parties.collect()
    Anchor(anchored, parties.task, parties.task.server_b).mark(0, Digest(bytes(32)))
    with pytest.raises(SetBackError, match=says("another outcome of round 0")):
        parties.a.finish_round()
    with pytest.raises(SetBackError, match=STOPPED):
        parties.b.exchange(0, Exchange.SHARE, b"")


def test_a_round_with_a_mark_is_not_abandoned(parties: Consortium, anchored: Path) -> None:
    """Set back to before it revealed, B would forget that it did."""
    parties.collect()
    parties.b.own(0, Exchange.CLOSE)
    Anchor(anchored, parties.task, parties.task.server_b).mark(0, Digest(bytes(32)))
    row = parties.b.last()
    assert row is not None
    with pytest.raises(ProtocolError, match=says("round 0", "finished")):
        parties.b.abandon(row)


def test_the_same_outcome_may_be_marked_again(parties: Consortium, anchored: Path) -> None:
    anchor = Anchor(anchored, parties.task, parties.task.server_b)
    anchor.mark(3, Digest(bytes(32)))
    anchor.mark(3, Digest(bytes(32)))


def test_every_round_leaves_a_mark_and_goes_on(parties: Consortium, anchored: Path) -> None:
    for _ in range(3):
        parties.round()
    parties.kill("beta")
    parties.b_process = open_b(parties, anchored)
    parties.round()
    assert len(list(anchored.iterdir())) == 1 + 4


def test_an_anchor_that_is_not_mounted_is_refused(parties: Consortium, tmp_path: Path) -> None:
    for folder in (tmp_path / "empty", tmp_path / "none"):
        if folder.name == "empty":
            folder.mkdir()
        with pytest.raises(StoreError, match=says("not this server's anchor", "mounted")):
            open_b(parties, folder)


def test_an_anchor_is_named_before_the_store_is_made(settings: ServerConfig, tmp_path: Path) -> None:
    """Whoever makes the folder too late, or not at all, is told what to do."""
    with pytest.raises(StoreError, match=says("no folder", "second", "make the folder")):
        replace(settings, anchor=tmp_path / "second").begin()
    assert not settings.store.exists()
    settings.begin()
    (tmp_path / "second").mkdir()
    with pytest.raises(StoreError, match=says("not this server's anchor", "before `precad server --init`")):
        replace(settings, anchor=tmp_path / "second").open_helper()


def test_a_mark_that_the_store_does_not_hold_stops_a_server_that_runs(parties: Consortium, anchored: Path) -> None:
    """A machine that is set back while it runs, memory and all, does not start."""
    parties.round()
    Anchor(anchored, parties.task, parties.task.server_b).mark(1, Digest(bytes(32)))
    with pytest.raises(SetBackError, match=says("set back", "mark of round 1")):
        parties.a.start_round()
    parties.kill("beta")
    with pytest.raises(SetBackError, match=STOPPED):
        open_b(parties, anchored)


def test_nothing_leaves_a_store_that_has_forgotten_a_later_round(parties: Consortium, anchored: Path) -> None:
    """Set back to within a round that it had abandoned, the server that runs is asked to finish it."""
    parties.collect()
    Anchor(anchored, parties.task, parties.task.server_b).mark(4, Digest(bytes(32)))
    with pytest.raises(SetBackError, match=says("set back", "mark of round 4")):
        parties.a.finish_round()
    assert not parties.b.ledger.participations()


def test_a_mark_of_a_round_that_was_left_out_stops_the_server(parties: Consortium, anchored: Path) -> None:
    """Set back to before it, the server has gone on with later rounds."""
    parties.a.start_round()
    parties.a.abandon_round()
    parties.round()
    parties.kill("beta")
    Anchor(anchored, parties.task, parties.task.server_b).mark(0, Digest(bytes(32)))
    with pytest.raises(SetBackError, match=says("set back", "mark of round 0")):
        open_b(parties, anchored)


def test_nothing_is_opened_or_abandoned_while_the_anchor_is_away(parties: Consortium, anchored: Path) -> None:
    """The folder of a volume that is not mounted is there, and empty: a mark in it would be on the store's device."""
    parties.collect()
    away = anchored.rename(anchored.with_name("away"))
    anchored.mkdir()
    with pytest.raises(StoreError, match=says("not this server's anchor", "mounted")):
        parties.a.finish_round()
    assert list(anchored.iterdir()) == []
    row = parties.b.last()
    assert row is not None
    with pytest.raises(StoreError, match=says("mounted")):
        HelperServer.abandon(parties.b, replace(row, status=Status.CLOSED))
    anchored.rmdir()
    away.rename(anchored)
    parties.a.finish_round()
    parties.round()


def test_an_anchor_that_cannot_be_read_is_one_sentence(parties: Consortium, anchored: Path, tmp_path: Path) -> None:
    parties.collect()
    mark = anchored / f"beta-{parties.task.digest.hex()[:16]}-0"
    mark.mkdir()
    with pytest.raises(StoreError, match=says("anchor", mark.name, "folder")):
        parties.a.finish_round()
    parties.kill("beta")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match=says("anchor", "file", "Not a directory")):
        open_b(parties, file)


def test_a_volume_that_cannot_hold_marks_is_found_at_the_start(
    parties: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(StoreError, match=says("cannot write the anchor", "not permitted")):
        Anchor(tmp_path, parties.task, parties.task.server_b).begin()


def test_an_anchor_on_the_same_device_is_warned_of(
    parties: Consortium, anchored: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parties.kill("beta")
    with caplog.at_level(logging.WARNING, "precad.server"):  # the log of JSON lines
        open_b(parties, anchored).close()
    assert "same device" in caplog.text


def test_it_is_warned_of_when_the_store_is_made(
    settings: ServerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Afterwards it is too late to choose another."""
    with caplog.at_level(logging.WARNING):
        replace(settings, anchor=tmp_path).begin()
    assert [(each.name, "same device" in each.message) for each in caplog.records] == [("precad.server", True)]


def test_two_servers_and_two_tasks_may_share_an_anchor(parties: Consortium, anchored: Path) -> None:
    other = world.make(clients=("bank",))
    Anchor(anchored, other.task, other.task.server_b).begin()
    Anchor(anchored, parties.task, parties.task.server_a).begin()
    parties.round()
    assert len(list(anchored.iterdir())) == 3 + 1


@pytest.fixture
def settings(tmp_path: Path) -> ServerConfig:
    """Of server B, as its kit lays them out."""
    folder = tmp_path / "beta"
    WORLD.servers[Role.B].save(folder)
    kit.server(WORLD.task, world.MODEL, Role.B, folder)
    return config.load(folder / "b.toml")


def test_a_server_without_a_store_does_not_begin_by_itself(settings: ServerConfig) -> None:
    with pytest.raises(StoreError, match=says("no store", "beta.db", "--init")):
        settings.open_helper()
    assert not settings.store.exists()
    settings.begin()
    settings.open_helper().close()
    with pytest.raises(StoreError, match=says("beta.db", "exists", "before", "without --init")):
        settings.begin()


def test_an_empty_file_is_no_store(settings: ServerConfig) -> None:
    """SQLite takes one for a new database."""
    settings.begin()
    settings.store.write_bytes(b"")
    with pytest.raises(StoreError, match=says("no store", "beta.db", "--init")):
        settings.open_helper()
    assert settings.store.stat().st_size == 0
    settings.begin()
    settings.open_helper().close()


@pytest.mark.parametrize("content", ["garbage\n", "\udcff\n", "{}\n", None])
def test_an_audit_log_that_is_none_is_one_sentence(settings: ServerConfig, content: str | None) -> None:
    settings.begin()
    if content is None:
        settings.audit_log.symlink_to(settings.store)
    else:
        settings.audit_log.write_text(content, errors="surrogateescape")
    with pytest.raises(StoreError, match=says("cannot read the audit log", "beta.audit.log")):
        settings.open_helper()


def test_a_lost_store_is_not_begun_anew(settings: ServerConfig, tmp_path: Path) -> None:
    """Neither where the log is still there, nor where the anchor has a mark."""
    settings.audit_log.write_text("")
    with pytest.raises(StoreError, match=says("beta.audit.log", "exists")):
        settings.begin()
    settings.audit_log.unlink()
    second = tmp_path / "second"
    second.mkdir()
    anchored = replace(settings, anchor=second)
    anchored.begin()
    Anchor(second, WORLD.task, WORLD.task.server_b).mark(0, Digest(bytes(32)))
    settings.store.unlink()
    with pytest.raises(StoreError, match=says("mark of round 0", "before")):
        anchored.begin()


def test_an_init_that_was_cut_off_may_be_repeated(settings: ServerConfig, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    Anchor(second, WORLD.task, WORLD.task.server_b).begin()
    replace(settings, anchor=second).begin()


def test_an_audit_log_that_is_ahead_of_its_store_stops_the_server(parties: Consortium, settings: ServerConfig) -> None:
    parties.round()
    lines = parties.b.store.log()
    store = Store(settings.store, WORLD.task, "beta")
    store.start_from(Model.initial(world.MODEL, WORLD.task.training.schedule.optimiser))
    store.close()
    settings.audit_log.write_text("\n".join(lines) + "\n")
    for _ in range(2):
        with pytest.raises(SetBackError, match=says("set back", "audit log", "round 0")):
            settings.open_helper()
        assert re.search(says("set back", "round 0"), settings.status()["state"])
    settings.audit_log.unlink()
    with pytest.raises(SetBackError, match=says("set back", "audit log", "round 0")):
        settings.open_helper()


def test_a_log_that_is_ahead_stops_a_server_that_runs(parties: Consortium, tmp_path: Path) -> None:
    """The log is compared whenever it is written, so that it does not go on after the lines that were forgotten."""
    parties.round()
    parties.b.write_log(tmp_path / "log")
    disk = Disk(parties, "beta", tmp_path / "copy")
    parties.round()
    parties.b.write_log(tmp_path / "log")
    disk.set_back()
    with pytest.raises(SetBackError, match=says("set back", "audit log", "round 1")):
        parties.b.write_log(tmp_path / "log")
    with pytest.raises(SetBackError, match=STOPPED):
        parties.b.last()


def test_an_audit_log_that_is_behind_is_brought_up_to_date(parties: Consortium, settings: ServerConfig) -> None:
    """A crash between the store and the file leaves the file behind, and half a line at most."""
    parties.round()
    receipts.write(settings.audit_log, parties.b.store.log())
    parties.round()
    parties.kill("beta")
    with settings.audit_log.open("a") as file:
        file.write('{"half')
    (parties.folder / "beta.db").replace(settings.store)
    settings.open_helper().close()
