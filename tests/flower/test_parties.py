"""Where each party's files are, and who may say so."""

from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from precad.deployment import task as tasks
from precad.deployment.client import ASK_BYTES, Client, RefusedError, introduction
from precad.deployment.client_config import ClientConfig
from precad.deployment.kept_client import KeptClient
from precad.deployment.keys import is_signed
from precad.flower import wire
from precad.flower.mod import PARTITION, SOCKET, PrecadMod, client_of, simulated_client
from tests.flower import grids
from tests.messages import says

FRESH = bytes(range(ASK_BYTES))


def context(**settings: str | int) -> Context:
    return Context(
        1,
        7,
        {key.replace("_", "-"): value for key, value in settings.items()},
        RecordDict(),
        {SOCKET: "/evil"},
    )


def test_the_operator_s_setting_comes_first(tmp_path: Path) -> None:
    grids.server(tmp_path / "s")
    assert (SOCKET, PARTITION) == ("precad-socket", "partition-id")
    place = tmp_path / "s" / "client-0002.sock"
    named = context(precad_socket=str(place), partition_id=1)
    with grids.keeper(tmp_path / "s", "client-0002"), client_of(named, tmp_path / "s") as client:
        assert isinstance(client, KeptClient)
        assert (client.name, client.task) == ("client-0002", tasks.load(tmp_path / "s" / "task.json"))
    with client_of(context(partition_id=1), tmp_path / "s") as client:
        assert isinstance(client, Client)
        assert client.name == "client-0001"


def test_nothing_that_a_sends_names_a_client(tmp_path: Path) -> None:
    """Neither the run's configuration, which is A's, nor a folder that no simulation made."""
    words = says("--node-config", "precad-socket", "precad client --flower")
    for where in (None, tmp_path):
        with pytest.raises(RefusedError, match=words), client_of(context(partition_id=1), where):
            pass
    grids.server(tmp_path / "s")
    with pytest.raises(RefusedError, match=words), client_of(context(), tmp_path / "s"):
        pass
    words = says("node 3", "3 clients")
    with pytest.raises(RefusedError, match=words), client_of(context(partition_id=3), tmp_path / "s"):
        pass


def test_only_a_simulation_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    server = grids.server(tmp_path / "s")
    task = tasks.load(tmp_path / "s" / "task.json")
    task_file, key, store, log = (tmp_path / "s" / each for each in ("task.json", "client-0001.key", "1.db", "1.log"))
    opened = (
        ClientConfig(task_file, "client-0001", key, store, log).open_client(task),
        simulated_client(tmp_path / "s", task, "client-0002"),
        grids.leader(server).store,
    )
    assert [each._connection.execute("PRAGMA synchronous").fetchone() for each in opened] == [(2,), (0,), (0,)]
    for each in (*opened, grids.leader(server)):
        each.close()


def test_a_folder_with_other_things_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=says(tmp_path, "not removed")):
        grids.server(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_simulation_is_made_anew(tmp_path: Path) -> None:
    first = grids.server(tmp_path / "s")
    second = grids.server(tmp_path / "s", clients=2)
    assert grids.leader(first).task.digest != grids.leader(second).task.digest
    assert list(tasks.load(tmp_path / "s" / "task.json").members) == ["client-0000", "client-0001"]
    assert not (tmp_path / "s" / "client-0002.key").exists()


def test_a_node_says_which_client_it_is(tmp_path: Path) -> None:
    server = grids.server(tmp_path / "s")
    ask = RecordDict({wire.RECORD: ConfigRecord({wire.ASK: FRESH})})
    message = Message(ask, dst_node_id=7, message_type=MessageType.TRAIN)
    reply = PrecadMod(tmp_path / "s")(message, context(partition_id=2), no_app)
    assert wire.read(reply, wire.NAME) == b"client-0002"
    member, task = grids.leader(server).task.members["client-0002"], grids.leader(server).task.digest
    proof = wire.read(reply, wire.PROOF) or b""
    assert is_signed(member.identity.key, introduction(task, FRESH, 7), proof)
    assert not is_signed(member.identity.key, introduction(task, FRESH, 8), proof)


def no_app(_message: Message, _context: Context) -> Message:
    raise AssertionError("the app is not called")
