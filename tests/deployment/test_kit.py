"""Kits: the commands on their pages are those that the programs take, and systemd reads the units."""

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import precad
from precad.deployment import client_config, config, data_file, gateway, kit
from precad.deployment.data_file import DataBudget
from precad.deployment.data_ledger import DataLedger
from precad.deployment.parties import Parties
from precad.protocol.states import Role
from tests.deployment import world
from tests.messages import says

TASK = world.make().task
ROLES = {Role.A: "alpha", Role.B: "beta"}
UNITS = [
    (name, path)
    for name in ROLES.values()
    for path in (name, *(f"{name}-{part}" for part in (kit._PARTS if name == "alpha" else ())))
]
UNITS += [("bank", f"bank{part}") for part in ("", "-keeper", "-supernode", "-superexec")]
each_unit = pytest.mark.parametrize(("name", "unit"), UNITS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kits")
    for role, name in ROLES.items():
        kit.server(TASK, world.MODEL, role, place / name)
    kit.client(TASK, "bank", place / "bank", "a.example:8000")
    return place


def commands(page: Path) -> list[str]:
    """What is indented as a command, one line each."""
    joined = page.read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.startswith("       ")]


def test_a_clients_page_names_the_settings_that_the_mod_reads(folder: Path) -> None:
    (command,) = [line for line in commands(folder / "bank" / "FLOWER.md") if "flower-supernode" in line]
    words = shlex.split(command.replace("$PWD", "/srv/bank"))
    node_config = words[words.index("--node-config") + 1]
    assert node_config == 'precad-socket="/srv/bank/bank.sock"'
    source = (Path(precad.__file__).parent / "flower" / "mod.py").read_text()  # Flower may not be installed
    assert re.findall(r'^SOCKET = "(.*)"$', source, re.MULTILINE) == [node_config.split("=")[0]]
    assert client_config.load(folder / "bank" / "bank.toml").app_socket == folder / "bank" / "bank.sock"
    assert words[words.index("--superlink") + 1] == "a.example:8000"
    key = words[words.index("--auth-supernode-private-key") + 1]
    assert any(f"mv bank.node {key}" in line for line in commands(folder / "bank" / "FLOWER.md"))


def test_a_kit_has_a_ledger_of_the_data_unless_they_have_one(folder: Path, tmp_path: Path) -> None:
    """Its budget pays for the task, and for no other; two tasks share one if the operator says so."""
    made = data_file.view(folder / "bank" / kit.DATA).budget
    assert (made.epsilon, made.delta, made.unit) == (TASK.training.budget, TASK.training.delta, TASK.bounds.unit)
    kit.client(TASK, "bank", tmp_path / "other", data=folder / "bank" / kit.DATA)
    assert not (tmp_path / "other" / kit.DATA).exists()
    assert client_config.load(tmp_path / "other" / "bank.toml").data == folder / "bank" / kit.DATA


def test_a_clients_page_has_a_place_for_the_superlink(tmp_path: Path) -> None:
    kit.client(TASK, "bank", tmp_path)
    assert "--superlink GATEWAY:9092" in (tmp_path / "FLOWER.md").read_text()


def test_a_clients_page_says_in_capitals_what_flower_cannot_check(folder: Path) -> None:
    text = (folder / "bank" / "FLOWER.md").read_text()
    assert "FLOWER'S OPEN VERSION CANNOT CHECK WHO" in text
    assert "`precad client`" in text


@pytest.mark.parametrize("role", Role)
def test_a_servers_page_and_units_run_the_same_programs(folder: Path, role: Role) -> None:
    own = folder / ROLES[role]
    lines = commands(own / "README.md")
    for path in own.glob("*.service"):
        (started,) = re.findall(rf"^ExecStart={kit.PROGRAMS}/(.*)$", path.read_text(), re.MULTILINE)
        assert started in lines
    assert f"precad server --config {role.name.lower()}.toml" in lines
    assert "sudo sh install.sh" in lines
    settings = config.load(own / f"{role.name.lower()}.toml")
    assert settings.store.parent == own, "the store is in the one folder that the unit may write"


def test_the_superlink_is_reached_from_this_machine_alone(folder: Path) -> None:
    text = (folder / "alpha" / "precad-alpha-superlink.service").read_text()
    (started,) = [shlex.split(line) for line in text.splitlines() if line.startswith("ExecStart=")]
    assert started[started.index("--host") + 1] == "127.0.0.1"
    assert started[started.index("--isolation") + 1] == "process"
    assert "--enable-supernode-auth" in started
    assert "IPAddressDeny=any\nIPAddressAllow=localhost\n" in text
    door = gateway.load(folder / "alpha" / "gateway.toml")
    assert (door.port, door.superlink_port) == (kit.GATEWAY_PORT, int(started[started.index("--port") + 1]))
    assert door.most_bytes > 2 * 8 * TASK.bounds.dim


def test_every_service_has_a_user_and_a_folder_of_its_own(folder: Path) -> None:
    texts = [path.read_text() for path in (folder / "alpha").glob("*.service")]
    for setting in ("User", "StateDirectory", "WorkingDirectory"):
        found = [value for text in texts for value in re.findall(f"^{setting}=(.*)$", text, re.MULTILINE)]
        assert len(set(found)) == len(found) == 4
    groups = {value for text in texts for value in re.findall("^Group=(.*)$", text, re.MULTILINE)}
    assert groups == {"precad-superexec"}, "the app's user passes to the socket"


def test_an_app_at_a_client_has_a_user_who_reads_no_key(folder: Path) -> None:
    """It may reach the keeper's socket, and the node on this machine; the node alone calls the internet."""
    texts = {
        part: (folder / "bank" / f"precad-bank-{part}.service").read_text()
        for part in ("keeper", "supernode", "superexec")
    }
    users = {part: re.findall("^User=(.*)$", text, re.MULTILINE) for part, text in texts.items()}
    assert users == {
        "keeper": ["precad-client"],
        "supernode": ["precad-supernode"],
        "superexec": ["precad-superexec"],
    }
    assert "Group=precad-superexec\n" in texts["keeper"]
    assert "StateDirectoryMode=0710\n" in texts["keeper"]
    closed = "IPAddressDeny=any\nIPAddressAllow=localhost\n"
    assert [closed in texts[part] for part in ("superexec", "supernode")] == [True, False]
    lines = commands(folder / "bank" / "FLOWER.md")
    for part in ("keeper", "superexec"):
        (started,) = re.findall(rf"^ExecStart={kit.PROGRAMS}/(.*)$", texts[part], re.MULTILINE)
        assert started in lines
    assert "--isolation process" in texts["supernode"]


@each_unit
def test_the_units_are_hardened(folder: Path, name: str, unit: str) -> None:
    text = (folder / name / f"precad-{unit}.service").read_text()
    for line in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "CapabilityBoundingSet=",
        "Restart=on-failure",
        "LimitCORE=0",
        "UMask=0077",
        f"StateDirectory=precad-{unit.removesuffix('-keeper')}",
    ):
        assert line in text.splitlines()
    if unit == name:
        assert f"User=precad{'-client' if name == 'bank' else ''}" in text.splitlines()
    if unit == name or unit.endswith("-keeper"):
        assert f"Environment=NUMBA_CACHE_DIR=/var/cache/precad-{name}" in text
    assert ("RestartPreventExitStatus=1" in text.splitlines()) is (unit == "bank"), "whom A refuses for good stays away"
    assert "MemoryDenyWriteExecute" not in text, "the kernels are compiled when they are used"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@each_unit
def test_systemd_reads_the_units(folder: Path, tmp_path: Path, name: str, unit: str) -> None:
    path = tmp_path / f"precad-{unit}.service"
    text = (folder / name / path.name).read_text()
    path.write_text(re.sub(rf"^ExecStart={kit.PROGRAMS}/\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    command = ["systemd-analyze", "verify", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", [*ROLES.values(), "bank"])
def test_the_shell_reads_the_script(folder: Path, name: str) -> None:
    subprocess.run(["/bin/sh", "-n", str(folder / name / "install.sh")], check=True)


def make_wheels(folder: Path, *more: str) -> Path:
    folder.mkdir()
    for name in (f"precad-{precad.__version__}-py3-none-any.whl", "typing_extensions-4.1-py3-none-any.whl", *more):
        (folder / name).write_bytes(name.encode())
    return folder


def test_what_is_installed_is_pinned_by_its_hash(tmp_path: Path) -> None:
    wheels = make_wheels(tmp_path / "wheels", "numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    kit.server(TASK, world.MODEL, Role.B, tmp_path / "beta", wheels=wheels)
    lines = (tmp_path / "beta" / "requirements.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        "numpy==2.1.0",
        f"precad=={precad.__version__}",
        "typing-extensions==4.1",
    ]
    own = wheels / f"precad-{precad.__version__}-py3-none-any.whl"
    assert lines[1].endswith(f" --hash=sha256:{hashlib.sha256(own.read_bytes()).hexdigest()}")
    (install,) = [line for line in commands(tmp_path / "beta" / "README.md") if "pip install" in line]
    assert {"--no-index", "--no-deps", "--require-hashes"} < set(install.split())


def test_pip_installs_nothing_else(tmp_path: Path) -> None:
    """A wheel that was changed after the kit was made is refused."""
    wheels = make_wheels(tmp_path / "wheels")
    (tmp_path / "requirements.txt").write_text(kit.requirements(wheels))
    for path in wheels.iterdir():
        path.write_bytes(b"another")
    command = f"-m pip install --dry-run --no-index --find-links {wheels} --no-deps --require-hashes -r"
    done = subprocess.run(
        [sys.executable, *command.split(), str(tmp_path / "requirements.txt")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.parametrize("name", [*ROLES.values(), "bank"])
def test_no_page_installs_by_name(folder: Path, name: str) -> None:
    for page in (folder / name).glob("*.md"):
        assert not any("pip install" in line for line in commands(page))
        assert "--wheels FOLDER" in page.read_text() or page.name == "README.md"


def test_bad_wheels(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=says("must hold the wheel of precad", precad.__version__)):
        kit.server(TASK, world.MODEL, Role.B, tmp_path / "beta", wheels=empty)
    assert not (tmp_path / "beta").exists()
    (empty / "precad-0.0.1-py3-none-any.whl").touch()
    with pytest.raises(ValueError, match=says("must hold the wheel of precad", precad.__version__)):
        kit.requirements(empty)
    twice = make_wheels(tmp_path / "twice", "typing.extensions-4.2-py3-none-any.whl")
    with pytest.raises(ValueError, match=says("two wheels of typing-extensions")):
        kit.requirements(twice)
    (empty / "x;y-1.whl").touch()
    with pytest.raises(ValueError, match=says("not the name of a wheel")):
        kit.requirements(empty)


def test_a_kit_is_the_same_whoever_makes_it_and_a_change_is_seen(tmp_path: Path) -> None:
    for name in ("one", "two"):
        kit.server(TASK, world.MODEL, Role.A, tmp_path / name)
    digest = kit.check(tmp_path / "one")
    assert digest == kit.check(tmp_path / "two")
    kit.server(TASK, world.MODEL, Role.A, tmp_path / "three", host="b.example")
    assert kit.check(tmp_path / "three") != digest
    for path in (tmp_path / "one").iterdir():
        if path.name != kit.SUMS:
            kept = path.read_bytes()
            path.write_bytes(kept + b"#")
            with pytest.raises(ValueError, match=says("changed", path.name)):
                kit.check(tmp_path / "one")
            path.write_bytes(kept)
    (tmp_path / "one" / "install.sh").unlink()
    with pytest.raises(ValueError, match=r"gone: install\.sh"):
        kit.check(tmp_path / "one")
    with pytest.raises(ValueError, match=says("not a kit")):
        kit.check(tmp_path)
    (tmp_path / kit.SUMS).write_text(f"{'0' * 64}  ../../etc/passwd\n")
    with pytest.raises(ValueError, match=says("not a list of digests")):
        kit.check(tmp_path)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_root_can_check_a_kit_before_anything_is_installed(folder: Path) -> None:
    subprocess.run([str(shutil.which("sha256sum")), "--check", "--quiet", kit.SUMS], cwd=folder / "alpha", check=True)


def test_what_a_maker_names_stays_in_its_place(tmp_path: Path) -> None:
    """No host, port or path adds a line to settings, or a word to a unit or a script."""
    for host in ('0.0.0.0"\nanchor = "/tmp', "a b", "-x", "%n"):
        with pytest.raises(ValueError, match="host must be"):
            kit.server(TASK, world.MODEL, Role.B, tmp_path / "b", host=host)
    for ports in ({"port": 99999}, {"port": 0}, {"clients_port": -5}):
        with pytest.raises(ValueError, match="port must be"):
            kit.server(TASK, world.MODEL, Role.A, tmp_path / "a", **ports)  # type: ignore[arg-type]
    for place in ("%n:9092", "--insecure:1", "[a:9092", "a;b:1", "a:0"):
        with pytest.raises(ValueError, match="where the gateway listens"):
            kit.client(TASK, "bank", tmp_path / "bank", place)
    for path in ("x\x7f", "x\ny", "x\u202e", 'x"y', "x%n"):
        with pytest.raises(ValueError, match="ledger's path"):
            kit.client(TASK, "bank", tmp_path / "bank", data=tmp_path / path)
    assert not list(tmp_path.iterdir())
    DataLedger.new(tmp_path / "my data", DataBudget(epsilon=9, delta=1e-5, unit=TASK.bounds.unit)).close()
    kit.client(TASK, "bank", tmp_path / "bank", data=tmp_path / "my data")
    for unit in ("precad-bank", "precad-bank-keeper"):
        assert f'ReadWritePaths="{tmp_path / "my data"}"\n' in (tmp_path / "bank" / f"{unit}.service").read_text()


@pytest.mark.parametrize("name", ["gateway", "superlink"])
def test_no_key_of_a_has_the_name_of_one_of_flowers(tmp_path: Path, name: str) -> None:
    parties = Parties.new(world.MODEL, TASK.bounds, TASK.training, {"bank": 1}, servers=(name, "beta"))
    with pytest.raises(ValueError, match=f"cannot be named {name}"):
        kit.server(parties.task, world.MODEL, Role.A, tmp_path)


@pytest.mark.parametrize("name", [*ROLES.values(), "bank"])
def test_a_second_installation_overwrites_nothing(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder / name, tmp_path / "kit")
    script = tmp_path / "kit" / "install.sh"
    script.write_text(script.read_text().replace("/var/lib", str(tmp_path)))
    (tmp_path / f"precad-{name}").mkdir()
    before = sorted(path.name for path in (tmp_path / "kit").iterdir())
    done = subprocess.run(
        ["/bin/sh", "install.sh"], cwd=tmp_path / "kit", env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, f"precad-{name} exists" in done.stderr) == (1, True)
    assert sorted(path.name for path in (tmp_path / "kit").iterdir()) == before


def test_a_clients_first_way_is_the_native_one(tmp_path: Path) -> None:
    kit.client(TASK, "bank", tmp_path, door="a.example:8555")
    page = (tmp_path / "README.md").read_text()
    assert "precad client --config bank.toml --train mymodule:train" in page
    assert page.index("precad client") < page.index("FLOWER.md")
    settings = client_config.load(tmp_path / "bank.toml")
    assert (settings.host, settings.port, settings.data) == ("a.example", 8555, tmp_path / kit.DATA)
    assert settings.load_task() == TASK
    with pytest.raises(ValueError, match="HOST:PORT"):
        kit.client(TASK, "lab", tmp_path / "lab", door="a.example")


def test_a_client_without_a_certificate_has_the_way_through_flower_alone(tmp_path: Path) -> None:
    bare = TASK.without_member("bank").with_member(replace(TASK.members["bank"].identity, certificate=b""), 100)
    kit.client(bare, "bank", tmp_path)
    assert not (tmp_path / "precad-bank.service").exists()
    with pytest.raises(ValueError, match="no certificate and tls_key"):
        client_config.load(tmp_path / "bank.toml").pair()
    assert "has no certificate of yours" in (tmp_path / "README.md").read_text()
