"""The keeper of a client's key: an app that somebody else wrote gets a sealed submission a round, and nothing more."""

import http.client
import json
import logging
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from precad.deployment import doors, keeper, kept_client
from precad.deployment.client import ASK_BYTES, RefusedError, SpentOutError, introduction
from precad.deployment.client_config import ClientConfig
from precad.deployment.data_file import DataBudget, view
from precad.deployment.data_ledger import DataLedger
from precad.deployment.disk import BusyError, exclusive
from precad.deployment.kept_client import INVITATION_HEADER, KeptClient
from precad.deployment.keys import is_signed
from precad.deployment.log import MOST_LINES
from precad.deployment.replies import reply_to
from precad.deployment.task import Training
from precad.deployment.transport import TransportError
from precad.errors import PrecadError, Reason, Rejected
from precad.protocol.digests import model_digest
from precad.protocol.params import Unit
from tests.deployment import world
from tests.deployment.consortium import Consortium
from tests.messages import says

UPDATE = np.full(world.DIM, 0.5)


class Site:
    """A consortium in which the bank's app is another process's; its keeper can be stopped and started."""

    def __init__(self, folder: Path, training: Training = world.TRAINING) -> None:
        self.consortium = Consortium(folder, world.make(training))
        self.consortium.world.save(folder)
        DataLedger.new(folder / "data", DataBudget(epsilon=1e3, delta=1e-5, unit=Unit.CLIENT)).close()
        names = ("task.json", "bank.key", "bank.db", "bank.audit.log", "data")
        task, key, store, log, data = (folder / name for name in names)
        self.config = ClientConfig(task, "bank", key, store, log, data)
        self.start()

    def start(self) -> None:
        self.client = self.config.open_client(self.config.load_task())
        listening = [doors.listen_at(self.config.app_socket)]
        self._door = doors.serve_aside(
            keeper.keeper_app(self.client, self.config.audit_log), listening, bounds=keeper.LOCAL
        )

    def stop(self) -> None:
        self._door.leave()
        self.client.close()

    def app(self, **given: Any) -> KeptClient:
        return KeptClient(self.config.app_socket, **given)

    def invited(self) -> tuple[bytes, np.ndarray[Any, np.dtype[np.float64]]]:
        self.consortium.a.start_round()
        return self.consortium.a.invitation(), self.consortium.a.model()

    def finish(self, reply: bytes) -> Rejected | None:
        """The others answer, and the round ends; what A says of the bank's reply."""
        rejected = self.consortium.a.submit(reply)
        for name in ("clinic", "lab"):
            assert self.consortium.a.submit(self.consortium.reply(name)) is None
        self.consortium.a.finish_round()
        return rejected

    def ask(
        self, path: str, body: bytes = b"", invitation: bytes | None = None, method: str = "POST"
    ) -> tuple[int, bytes]:
        """A request of an app that does not use precad's own code."""
        with closing(kept_client._Connection(self.config.app_socket)) as connection:
            headers = {} if invitation is None else {INVITATION_HEADER: b64encode(invitation).decode()}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.stop()
        made.consortium.close()


def test_rounds_through_the_socket(site: Site) -> None:
    """As with the client in one's own process: joined, answered once, counted once, and told."""
    for number in range(3):
        invitation, model = site.invited()
        with closing(site.app()) as app:
            assert (app.name, app.task) == ("bank", site.consortium.task)
            told = site.consortium.a.told("bank")
            if told is not None:
                assert app.hear(told) == "valid"
            reply = reply_to(app, invitation, model, lambda: UPDATE)
            assert reply_to(app, invitation, model, lambda: 2 * UPDATE) == reply, "what was answered stays so"
        assert site.finish(reply) is None
        assert site.client.participations() == view(site.config.data or Path()).mark.number == number + 1
        assert site.config.audit_log.read_text().splitlines() == site.client.log()


def test_the_socket_is_for_its_owner_and_group(site: Site) -> None:
    assert site.config.app_socket.stat().st_mode & 0o777 == 0o660


def test_a_node_is_shown_to_be_this_client_s(site: Site) -> None:
    ask, own = bytes(range(ASK_BYTES)), site.consortium.task.members["bank"].identity.key
    with closing(site.app()) as app:
        proof = app.introduce(ask, 2**64 - 1)
        assert is_signed(own, introduction(site.consortium.task.digest, ask, 2**64 - 1), proof)
        for other in (b"", ask[:-1], ask + b"x", bytes(2000)):
            with pytest.raises((RefusedError, TransportError)):
                app.introduce(other, 7)


def test_nothing_that_an_app_can_ask_for_holds_the_key(site: Site) -> None:
    invitation, model = site.invited()
    key = site.consortium.world.clients["bank"].signing
    forms = (
        key.private_bytes_raw(),
        key.private_bytes_raw().hex().encode(),
        b64encode(key.private_bytes_raw()),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).splitlines()[1],
    )
    digest = model_digest(model).hex()
    asked = [
        ("GET", "/v2/client", b""),
        ("POST", "/v2/introduction", bytes(40)),
        *(("POST", f"/v2/{what}?model={digest}", b"") for what in ("join", "zeros", "answer")),
        *(("GET", path, b"") for path in ("/", "/v2", "/bank.key", "/v2/../bank.key", "/v2/key", "/metrics", "/docs")),
    ]
    for method, path, body in asked:
        _, answer = site.ask(path, body, invitation, method)
        assert not any(form in answer for form in forms), path
    assert json.loads(site.ask("/v2/client", method="GET")[1]).keys() == {
        "name",
        "task",
        "participations",
        "rehearsed",
    }


@pytest.mark.parametrize("what", ["join", "zeros", "answer"])
def test_what_is_not_in_order_is_refused_and_counts_nothing(site: Site, what: str) -> None:
    invitation, model = site.invited()
    digest, other = model_digest(model).hex(), model_digest(model + 1).hex()
    damaged = bytearray(invitation)
    damaged[len(damaged) // 2] ^= 1
    update = UPDATE.tobytes()
    wrong = {
        "no invitation": (f"model={digest}", None, b""),
        "garbage": (f"model={digest}", b"garbage", b""),
        "a damaged one": (f"model={digest}", bytes(damaged), b""),
        "another model": (f"model={other}", invitation, b""),
        "no model": ("", invitation, b""),
        "no digest": ("model=xyz", invitation, b""),
        "half an update": (f"model={digest}", invitation, update[:-8]),
        "more than an update": (f"model={digest}", invitation, update + bytes(8)),
    }
    for name, (query, sent, body) in wrong.items():
        status, words = site.ask(f"/v2/{what}?{query}", body, sent)
        assert 400 <= status < 500, (name, status, words)
        assert words.decode().strip()
    assert site.client.participations() == 0
    assert site.ask(f"/v2/answer?model={digest}", update, invitation)[0] == 200


def test_an_app_does_not_pass_the_cap_or_the_bound(site: Site) -> None:
    """It may answer what both servers invited it to, within C, as often as the task says."""
    cap = site.consortium.task.training.participations
    for _ in range(cap):
        invitation, model = site.invited()
        with closing(site.app()) as app:
            reply = app.answer(app.join(invitation, model), 1e6 * UPDATE)
        assert site.finish(reply) is None, "clipped to C, it is valid"
    assert site.client.participations() == cap
    site.consortium.a.start_round()
    with closing(site.app()) as app, pytest.raises(RefusedError, match="its budget"):
        app.join(site.consortium.a.invitation(), site.consortium.a.model())
    with pytest.raises(SpentOutError):
        site.client.join(site.consortium.a.invitation(), site.consortium.a.model())


@pytest.mark.parametrize(
    "update",
    [
        np.full(world.DIM, np.nan),
        np.full(3, 0.5),
        np.array(["a"] * world.DIM),
        None,
        {},
        np.full(world.DIM, np.inf),
    ],
)
def test_an_update_that_is_none_becomes_zeros(site: Site, update: Any) -> None:
    invitation, model = site.invited()
    with closing(site.app()) as app:
        reply = app.answer(app.join(invitation, model), update)
    assert site.finish(reply) is None
    assert site.client.participations() == 1


def test_an_update_that_cannot_be_sealed_becomes_zeros(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an update does to the keeper, the client answers."""
    seal = site.client.seal

    def fails(joined: Any, x: Any) -> Any:
        if x.any():
            raise MemoryError
        return seal(joined, x)

    monkeypatch.setattr(site.client, "seal", fails)
    invitation, model = site.invited()
    with closing(site.app()) as app:
        reply = app.answer(app.join(invitation, model), UPDATE)
    assert site.finish(reply) is None
    assert site.client.participations() == 1


def test_a_keeper_that_is_restarted_is_waited_for(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Between joining and answering, and after the answer was lost: the reply is the one of before."""
    invitation, model = site.invited()
    naps = list[float]()

    def restart(seconds: float) -> None:
        naps.append(seconds)
        site.start()

    with closing(site.app(sleep=restart)) as app:
        joined = app.join(invitation, model)
        site.stop()
        reply = app.answer(joined, UPDATE)
        site.stop()
        assert app.answer(joined, 3 * UPDATE) == reply
    assert len(naps) == 2
    assert "another attempt in 1 s" in caplog.text
    assert site.finish(reply) is None


def test_a_keeper_that_stays_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_client, "PATIENCE", 3.0)
    with pytest.raises(TransportError, match=says("nobody.sock", "precad client --flower")):
        KeptClient(tmp_path / "nobody.sock", sleep=lambda _: None)


def test_training_that_leaves_no_files_does_not_keep_the_client_from_answering(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation, model = site.invited()
    with closing(site.app()) as app:
        joined = app.join(invitation, model)

        def none_left(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(socket, "socket", none_left)
        reply = app.answer(joined, UPDATE)
    monkeypatch.undo()
    assert site.finish(reply) is None


def test_two_apps_at_once_get_the_same_reply(site: Site) -> None:
    invitation, model = site.invited()
    replies = list[bytes]()

    def play(scale: float) -> None:
        with closing(site.app()) as app:
            replies.append(app.answer(app.join(invitation, model), scale * UPDATE))

    threads = [threading.Thread(target=play, args=(scale,)) for scale in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 3
    assert len(set(replies)) == 1
    assert site.finish(replies[0]) is None
    assert site.consortium.a.submit(replies[0]) == Rejected(Reason.LATE)


def test_a_rehearsal_is_kept_if_a_client_could_join_after_it(tmp_path: Path) -> None:
    """An app cannot have the next one's rounds end before they began."""
    made = Site(tmp_path, replace(world.TRAINING, reply_seconds=8.0))
    try:
        for wrong in (0, 2001, 2**63 - 1, -1, "x", ""):
            status, words = made.ask(f"/v2/rehearsal?milliseconds={wrong}")
            assert (status, made.client.rehearsed()) == (400, None), words
        with closing(made.app()) as app:
            assert app.rehearsed() is None
            app.note_rehearsal(0.25)
            assert app.rehearsed() == 0.25
        with closing(made.app()) as app:
            assert app.rehearsed() == pytest.approx(0.25, abs=0.002)
    finally:
        made.stop()
        made.consortium.close()


def test_without_a_reply_time_there_is_no_rehearsal(site: Site) -> None:
    assert site.ask("/v2/rehearsal?milliseconds=1")[0] == 400


def test_refusals_do_not_fill_the_log(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("precad.server"), "propagate", True)
    begun = time.monotonic()
    for _ in range(300):
        assert site.ask("/v2/answer")[0] == 403
    lines = sum(record.getMessage() == "refused" for record in caplog.records)
    assert 1 <= lines <= (MOST_LINES + 1) * (time.monotonic() - begun + 1)


@pytest.mark.parametrize(("key", "is_folder"), [("data", False), ("data", True), ("audit_log", True)])
def test_a_file_that_cannot_be_used_is_said_at_the_start(tmp_path: Path, key: str, is_folder: bool) -> None:
    """Not in the middle of a round."""
    consortium = Consortium(tmp_path)
    consortium.world.save(tmp_path)
    task, log, store, wrong = (tmp_path / name for name in ("task.json", "bank.audit.log", "bank.db", "wrong"))
    if is_folder:
        wrong.mkdir()
    else:
        wrong.write_text("no ledger")
    config = ClientConfig(task, "bank", tmp_path / "bank.key", store, log)
    with pytest.raises((PrecadError, OSError), match="wrong"):
        replace(config, **{key: wrong}).open_client(consortium.task)  # type: ignore[arg-type]


def test_a_full_disk_is_said_and_nothing_is_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    invitation, model = site.invited()
    with closing(site.app()) as app:
        joined = app.join(invitation, model)
        with monkeypatch.context() as patch:
            patch.setattr(site.client, "_count_and_store", _full)
            with pytest.raises(TransportError, match="disk is full"):
                app.answer(joined, UPDATE)
        reply = app.answer(joined, UPDATE)
    assert site.finish(reply) is None


def _full(*_: object) -> None:
    from precad.deployment.disk import FULL, DiskError

    raise DiskError(f"the store cannot be read or written: {FULL}")


def test_one_process_keeps_a_client(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path)
    consortium.world.save(tmp_path)
    names = ("task.json", "bank.key", "bank.db", "bank.audit.log")
    task, key, store, log = (tmp_path / name for name in names)
    with exclusive(store), pytest.raises(BusyError, match="another process"):
        keeper.run(ClientConfig(task, "bank", key, store, log))


def test_the_log_has_no_update_and_no_key(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    invitation, model = site.invited()
    with closing(site.app()) as app:
        app.answer(app.join(invitation, model), np.full(world.DIM, 0.123456789))
    assert "0.12345" not in caplog.text
    assert site.consortium.world.clients["bank"].signing.private_bytes_raw().hex() not in caplog.text


def test_a_request_of_another_method_or_path(site: Site) -> None:
    assert site.ask("/v2/answer", method="GET")[0] == http.client.METHOD_NOT_ALLOWED
    assert site.ask("/v2/else")[0] == http.client.NOT_FOUND
