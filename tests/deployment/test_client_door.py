"""The clients' door: who gets in, what each can see and send, and what everything else gets: a sentence."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from precad.deployment import client_door, keys, tls
from precad.deployment.client import ForGoodError
from precad.deployment.client_door import MOST_AT_ONCE
from precad.deployment.https import VERSION_HEADER
from precad.deployment.parties import Parties
from precad.deployment.transport import submission_limit
from precad.deployment.way_to_a import POLL, TASK_HEADER, WayToA
from precad.errors import ProtocolError, Reason
from precad.protocol.messages import VERSION, Invitation, decode
from tests.deployment import world
from tests.deployment.native_site import NOW, NativeSite
from tests.messages import says


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeSite]:
    """A round is open, and stays so: nobody joins it."""
    made = NativeSite(tmp_path_factory.mktemp("site"))
    with made.conducting():
        made.conductor.seen("bank")
        assert made.conductor.open_round(-1, 30) is not None
        yield made
    made.close()


def context_of(site: NativeSite, name: str) -> ssl.SSLContext:
    pair = tls.Pair(site.folder / f"{name}.tls.pem", site.folder / f"{name}.tls.key")
    return tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, pair, site.task.members[name].identity, site.task.server_a)


def asked(site: NativeSite, path: str, name: str = "bank", **options: Any) -> httpx.Response:
    """What a program other than ours gets."""
    usual = {VERSION_HEADER: str(VERSION), TASK_HEADER: site.task.digest.hex()}
    given: dict[str, Any] = {"method": "GET", "headers": usual, **options}
    with httpx.Client(verify=context_of(site, name), timeout=60) as client:
        return client.request(url=f"https://127.0.0.1:{site.port}{path}", **given)


def reply_of(site: NativeSite, name: str) -> bytes:
    return site.reply(name)


def test_a_selected_client_gets_the_round_and_its_model(site: NativeSite) -> None:
    with closing(site.way("bank")) as way:
        news = way.next_round(-1, -1)
        assert news is not None
        assert not news.told
        invitation = decode(news.invitation, Invitation)
        assert (way.model(invitation.model) == world.MODEL).all()
        with pytest.raises(ProtocolError, match="404"):
            way.model(invitation.task)


def stranger(tmp_path: Path, name: str) -> tls.Pair:
    keys.OwnKeys.new(name, NOW).save(tmp_path)
    return tls.Pair(tmp_path / f"{name}.tls.pem", tmp_path / f"{name}.tls.key")


@pytest.mark.parametrize("name", ["bank", "stranger"])
def test_a_client_of_another_task_does_not_get_in(site: NativeSite, tmp_path: Path, name: str) -> None:
    """Not even with the name, and so the subject, of one of this task."""
    pair = stranger(tmp_path, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=site.task.server_a.certificate)
    context.load_cert_chain(pair.certificate, pair.key)
    with httpx.Client(verify=context) as client, pytest.raises(httpx.TransportError):
        client.get(f"https://127.0.0.1:{site.port}/v2/rounds/next")


def test_nobody_without_a_certificate_gets_in(site: NativeSite) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=site.task.server_a.certificate)
    with httpx.Client(verify=context) as client, pytest.raises(httpx.TransportError):
        client.get(f"https://127.0.0.1:{site.port}/v2/rounds/next")


def test_a_stranger_learns_no_name_of_the_roster(site: NativeSite) -> None:
    """TLS would let the one who listens say whose certificates it takes."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here")
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{site.port}", "-tls1_3"]
    shown = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=30).stdout.decode()
    assert "alpha" in shown
    assert not any(name in shown for name in world.CLIENTS)


def test_a_server_of_the_task_is_no_client(site: NativeSite) -> None:
    pair = tls.Pair(site.folder / "beta.tls.pem", site.folder / "beta.tls.key")
    context = tls.pinned_context(ssl.PROTOCOL_TLS_CLIENT, pair, site.task.server_b, site.task.server_a)
    with httpx.Client(verify=context) as client, pytest.raises(httpx.TransportError):
        client.get(f"https://127.0.0.1:{site.port}/v2/rounds/next")


def test_a_member_that_takes_the_name_of_another_does_not_keep_it_out(tmp_path: Path) -> None:
    """Whichever of two certificates with one subject comes first, both get in."""
    setting = world.make(now=NOW)
    evil = keys.OwnKeys.new("bank", NOW)  # its certificate says bank; in the roster it is aaa
    identity = keys.Identity("aaa", evil.identity.key, evil.identity.certificate)
    task = setting.task.with_member(identity, 10)
    made = NativeSite(tmp_path, Parties(task, world.MODEL, setting.servers, setting.clients))
    with made.conducting(), closing(made.way("bank")) as way:
        assert way.next_round(-1, -1) is not None
    made.close()


def test_nobody_submits_for_another(site: NativeSite) -> None:
    reply = reply_of(site, "clinic")
    answer = asked(site, "/v2/rounds/0/submission", "bank", method="POST", content=reply)
    assert answer.status_code == 403
    assert "another client" in answer.text
    answer = asked(site, "/v2/rounds/1/submission", "clinic", method="POST", content=reply)
    assert answer.status_code == 403
    assert "round" in answer.text
    assert not site.a.store.headers(0)


@pytest.mark.parametrize(
    ("path", "options", "status", "words"),
    [
        ("/v2/rounds/next", {"headers": {}}, 400, "version"),
        ("/v2/rounds/next", {"headers": {VERSION_HEADER: str(VERSION)}}, 409, "task"),
        ("/v2/rounds/next?after=-2", {}, 400, "-2"),
        ("/v2/rounds/next?after=" + "9" * 5000, {}, 400, "5,000"),
        ("/v2/rounds/next?heard=1e3", {}, 400, "1e3"),
        ("/v2/models/00", {}, 404, "model"),
        ("/v2/models/" + "0" * 5000, {}, 404, "model"),
        ("/v2/rounds/x/submission", {"method": "POST"}, 400, "x"),
        ("/v2/rounds/0/submission", {"method": "POST", "content": b"garbage" * 9}, 400, "not a precad message"),
        ("/v2/rounds/0/submission", {"method": "POST", "content": b""}, 400, "message"),
        ("/v2/rounds/0/submission", {}, 405, ""),
        ("/", {}, 404, ""),
        ("/v1/rounds/0/begin", {"method": "POST"}, 404, ""),
    ],
)
def test_bad_input_is_a_sentence(site: NativeSite, path: str, options: dict[str, Any], status: int, words: str) -> None:
    answer = asked(site, path, **options)
    assert answer.status_code == status
    assert words in answer.text
    assert len(answer.text) < 300


def test_a_task_of_another_digest_ends_a_client(site: NativeSite, tmp_path: Path) -> None:
    """Both trust the same certificates; A says which task it runs."""
    other = site.task.without_member("lab")
    other.save(tmp_path / "task.json")
    with closing(WayToA(other, site.config("bank"))) as way, pytest.raises(ForGoodError, match=says("task")):
        way.next_round(-1, -1)


def test_a_body_that_is_too_long(site: NativeSite) -> None:
    most = submission_limit(site.task)
    answer = asked(site, "/v2/rounds/0/submission", method="POST", content=bytes(most + 1))
    assert (answer.status_code, str(most) in answer.text) == (413, True)


def test_a_body_that_is_too_slow(site: NativeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_door, "POLL", 0.3)
    monkeypatch.setattr(client_door, "SLOWEST", 1 << 20)

    def drops() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x"
            time.sleep(0.1)

    with suppress(httpx.TransportError):  # it may not have been listening to the end
        answer = asked(site, "/v2/rounds/0/submission", method="POST", content=drops())
        assert (answer.status_code, "seconds" in answer.text) == (408, True)


def test_nothing_new_is_said_so_after_a_while(site: NativeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_door, "POLL", 0.3)
    assert asked(site, "/v2/rounds/next?after=0").status_code == 204


def test_what_a_client_claims_to_know_keeps_no_round_from_others(tmp_path: Path) -> None:
    made = NativeSite(tmp_path)
    with made.conducting():
        made.conductor.seen("bank")
        liar = threading.Thread(
            target=asked, args=(made, "/v2/rounds/next?after=999999999999&heard=999", "lab"), daemon=True
        )
        liar.start()
        begun = time.monotonic()
        with closing(made.way("bank")) as way:
            assert way.next_round(-1, -1) is not None
            for name in world.CLIENTS:
                with closing(made.way(name)) as each:
                    assert each.submit(0, reply_of(made, name)) == ""
            news = way.next_round(0, 0)
            assert news is not None
            assert decode(news.invitation, Invitation).round == 1
            assert time.monotonic() - begun < POLL / 2
    liar.join(30)
    made.close()


def test_one_client_asks_few_things_at_once(site: NativeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_door, "POLL", 2.0)
    found = list[int]()

    def ask() -> None:
        found.append(asked(site, "/v2/rounds/next?after=0").status_code)

    threads = [threading.Thread(target=ask) for _ in range(MOST_AT_ONCE + 2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [204] * MOST_AT_ONCE + [429] * 2


def test_one_client_asks_few_things_a_second(site: NativeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_door, "IN_A_ROW", 5.0)
    monkeypatch.setattr(client_door, "A_SECOND", 0.01)
    found = [asked(site, "/v2/nothing-new/", "clinic").status_code for _ in range(3)]
    assert found == [404] * 3, "what leads nowhere costs nothing"
    path = "/v2/rounds/next?after=x"
    assert [asked(site, path, "clinic").status_code for _ in range(7)] == [400] * 5 + [429] * 2
    assert asked(site, path, "lab").status_code == 400, "others have their own"


def test_an_answer_that_is_not_taken_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client cannot let A hold the model for it in each of its connections."""
    made = NativeSite(tmp_path)
    with made.conducting(), ExitStack() as stack:
        made.conductor.seen("bank")
        opened = made.conductor.open_round(-1, 30)
        assert opened is not None
        long = replace(opened, model=np.zeros(1 << 22))
        monkeypatch.setattr(made.conductor, "open_round", lambda *_: long)
        context, digest = context_of(made, "bank"), decode(opened.invitation, Invitation).model
        usual = f"{VERSION_HEADER}: {VERSION}\r\n{TASK_HEADER}: {made.task.digest.hex()}\r\n"
        for _ in range(MOST_AT_ONCE):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", made.port), 30))
            sock = stack.enter_context(context.wrap_socket(plain))
            sock.sendall(f"GET /v2/models/{digest.hex()} HTTP/1.1\r\nHost: a\r\n{usual}\r\n".encode())
            assert b"200 OK" in sock.recv(100)
        assert asked(made, "/v2/rounds/next").status_code == 429
        assert asked(made, "/v2/rounds/next", "lab").status_code == 200
    made.close()


def test_again_late_and_another_one(tmp_path: Path) -> None:
    """The same submission again is kept; another one, and one that is late, are not."""
    made = NativeSite(tmp_path)
    with made.conducting():
        made.conductor.seen("bank")
        assert made.conductor.open_round(-1, 30) is not None
        first = reply_of(made, "bank")
        made.kill("bank")
        (tmp_path / "bank.db").unlink()
        second = reply_of(made, "bank")
        with closing(made.way("bank")) as way:
            assert [way.submit(0, each) for each in (first, first, second, first)] == [
                "",
                "",
                Reason.REPEATED.value,
                "",
            ]
            for name in ("clinic", "lab"):
                with closing(made.way(name)) as other:
                    assert other.submit(0, reply_of(made, name)) == ""
                    assert made.conductor.outcome(0, 0.0) is None or name == "lab"
            assert made.conductor.outcome(0, 30) is not None
            assert way.submit(0, first) == Reason.LATE.value
            news = way.next_round(0, -1)
            assert news is not None
            assert news.told
        with closing(made.way("lab")) as other:
            mine = other.next_round(0, -1)
            assert mine is not None
            assert mine.told != news.told
    made.close()
