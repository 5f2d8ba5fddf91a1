"""Where each party's files are, and who may say so."""

from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from precad.deployment import task as tasks
from precad.deployment.client import RefusedError
from precad.deployment.keys import is_signed
from precad.flower import wire
from precad.flower.mod import DATA, KIT, NAME, PARTITION, Kit, PrecadMod
from tests.flower import grids
from tests.messages import says


def context(**settings: str | int) -> Context:
    return Context(
        1,
        7,
        {key.replace("_", "-"): value for key, value in settings.items()},
        RecordDict(),
        {KIT: "/evil", DATA: "/evil"},
    )


def test_the_operator_s_setting_comes_first(tmp_path: Path) -> None:
    grids.server(tmp_path / "s")
    assert (KIT, NAME, DATA, PARTITION) == ("precad-kit", "precad-name", "precad-data", "partition-id")
    named = context(precad_kit="/srv/bank", precad_name="bank", partition_id=1)
    assert Kit.of(named, tmp_path / "s") == Kit(Path("/srv/bank"), "bank")
    with_data = context(precad_kit="/srv/bank", precad_name="bank", precad_data="/srv/data")
    assert Kit.of(with_data, None) == Kit(Path("/srv/bank"), "bank", data=Path("/srv/data"))
    assert Kit.of(context(partition_id=1), tmp_path / "s") == grids.kit(tmp_path / "s", 1)


def test_nothing_that_a_sends_names_a_kit(tmp_path: Path) -> None:
    """Neither the run's configuration, which is A's, nor a folder that no simulation made."""
    words = says("--node-config", "precad-kit", "precad-name")
    for where in (None, tmp_path):
        with pytest.raises(RefusedError, match=words):
            Kit.of(context(partition_id=1), where)
    grids.server(tmp_path / "s")
    for given in (context(), context(precad_kit="/srv/bank", partition_id=1), context(precad_name="b", partition_id=1)):
        with pytest.raises(RefusedError, match=words):
            Kit.of(given, tmp_path / "s")
    with pytest.raises(RefusedError, match=says("node 3", "3 clients")):
        Kit.of(context(partition_id=3), tmp_path / "s")


def test_only_a_simulation_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    server = grids.server(tmp_path / "s")
    named = Kit.of(context(precad_kit=str(tmp_path / "s"), precad_name="client-0001"), tmp_path / "s")
    opened = named.client(named.task()), grids.kit(tmp_path / "s", 2).client(named.task()), grids.leader(server).store
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
    ask = RecordDict({wire.RECORD: ConfigRecord({wire.ASK: b"fresh"})})
    message = Message(ask, dst_node_id=7, message_type=MessageType.TRAIN)
    reply = PrecadMod(tmp_path / "s")(message, context(partition_id=2), no_app)
    assert wire.read(reply, wire.NAME) == b"client-0002"
    member, task = grids.leader(server).task.members["client-0002"], grids.leader(server).task.digest
    proof = wire.read(reply, wire.PROOF) or b""
    assert is_signed(member.identity.key, wire.introduction(task, b"fresh", 7), proof)
    assert not is_signed(member.identity.key, wire.introduction(task, b"fresh", 8), proof)


def no_app(_message: Message, _context: Context) -> Message:
    raise AssertionError("the app is not called")
