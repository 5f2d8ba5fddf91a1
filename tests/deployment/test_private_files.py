"""Files that name participants, and keys, are their owner's alone, whatever the umask."""

import os
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.deployment import config, disk, keys, receipts, tls
from precad.deployment.client import Client
from precad.deployment.gateway import GatewayConfig
from precad.deployment.kit import settings_name
from precad.files import open_to_append
from precad.protocol.states import Role
from tests.deployment import world
from tests.messages import says

PUBLIC = (".pub", ".tls.pem")
"""What a party shows to all."""


@pytest.fixture(params=[0o000, 0o022], ids=["umask 0", "umask 022"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def is_private(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.mark.usefixtures("_umask")
def test_all_files_of_a_run_are_their_owners_alone(tmp_path: Path) -> None:
    """Keys, kits, stores and their neighbours, audit logs, clients' states, ledgers, pages and statements."""
    parties, folder = world.make(), tmp_path / "parties"
    folder.mkdir(0o755)
    parties.save_apart(folder, 8443)
    task, names = parties.task, [server.name for server in (parties.task.server_a, parties.task.server_b)]
    own = {role: config.load(folder / name / settings_name(role)) for role, name in zip(Role, names, strict=True)}
    b = own[Role.B].open_helper()
    a = own[Role.A].open_leader(b)
    a.start_round()
    clients = {}
    for name, each in parties.clients.items():
        place = folder / name
        clients[name] = Client(task, name, each.signing, place / f"{name}.db", data=place / "data")
        assert a.submit(clients[name].answer(clients[name].join(a.invitation(), a.model()), np.ones(world.DIM))) is None
        receipts.write(place / f"{name}.audit.log", clients[name].log())
    a.finish_round()
    for role, server in ((Role.A, a), (Role.B, b)):
        server.write_log(own[role].audit_log)
    with own[Role.B].alone():
        pass
    logs = [str(own[role].audit_log) for role in Role]
    statement = ["audit", *logs, "--task", str(folder / "task.json"), "--statement", str(folder / "statement.md")]
    for command in (["report", str(folder / names[1])], statement):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    files = [path for path in folder.rglob("*") if path.is_file()]
    kinds = {"".join(path.suffixes[-2:]) for path in files}
    assert {".db", ".db-wal", ".db-shm", ".db.lock", ".audit.log", ".html", ".json", ".md", ".tls.key"} <= kinds
    assert [path for path in files if not is_private(path) and not path.name.endswith(PUBLIC)] == []
    assert [path for path in folder.rglob("*") if path.is_dir() and not is_private(path)] == []
    b.close()
    a.close()
    for client in clients.values():
        client.close()


def test_a_file_that_was_made_for_all_is_made_private(tmp_path: Path) -> None:
    log = tmp_path / "bank.audit.log"
    log.touch()
    log.chmod(0o644)
    receipts.write(log, [])
    assert is_private(log)
    open_to_append(tmp_path / "open").close()
    (tmp_path / "open").chmod(0o644)
    open_to_append(tmp_path / "open").close()
    assert not is_private(tmp_path / "open")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o610, 0o666])
@pytest.mark.parametrize("ending", ["key", "tls.key"])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, ending: str, mode: int) -> None:
    own = keys.OwnKeys.new("alpha", world.NOW)
    own.save(tmp_path)
    path, pair = tmp_path / f"alpha.{ending}", tls.Pair(tmp_path / "alpha.tls.pem", tmp_path / "alpha.tls.key")
    path.chmod(mode)
    with pytest.raises(ValueError, match=says(path, "others", "chmod 600")):
        keys.load_private(path) if ending == "key" else pair.check(own.identity)
    if ending == "tls.key":
        with pytest.raises(ValueError, match=says(path, "others")):
            tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, pair, own.identity, own.identity)
        with pytest.raises(ValueError, match=says(path, "others")):
            GatewayConfig(pair.certificate, pair.key, pair.certificate, tmp_path).shown()
    path.chmod(0o400)
    pair.check(own.identity)
    keys.load_private(tmp_path / "alpha.key")


def test_a_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.OwnKeys.new("alpha", world.NOW).save(tmp_path)
    owner = (tmp_path / "alpha.key").stat().st_uid
    if owner == 0:
        os.chown(tmp_path / "alpha.key", 4711, 4711)
        owner = 4711
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ValueError, match=says(tmp_path / "alpha.key", "another user")):
        keys.load_private(tmp_path / "alpha.key")


def test_a_lock_in_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "beta.db.lock").mkdir()
    with (
        pytest.raises(disk.StoreError, match=says(tmp_path / "beta.db.lock", "folder")),
        disk.exclusive(tmp_path / "beta.db"),
    ):
        pass
