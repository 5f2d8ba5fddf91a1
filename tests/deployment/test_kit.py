"""Kits: the commands on their pages are those that the programs take, and systemd reads the units."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import precad
from precad.deployment import config, kit
from precad.protocol.states import Role
from tests.deployment import world

TASK = world.make().task
ROLES = {Role.A: "alpha", Role.B: "beta"}


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
    (command,) = [line for line in commands(folder / "bank" / "README.md") if "flower-supernode" in line]
    words = shlex.split(command.replace("$PWD", "/srv/bank"))
    node_config = words[words.index("--node-config") + 1]
    assert node_config == 'precad-kit="/srv/bank" precad-name="bank"'
    source = (Path(precad.__file__).parent / "flower" / "mod.py").read_text()  # Flower may not be installed
    read = re.search(r'^KIT, NAME = "(.*)", "(.*)"$', source, re.MULTILINE)
    assert read is not None
    assert [item.split("=")[0] for item in node_config.split()] == list(read.groups())
    assert words[words.index("--superlink") + 1] == "a.example:8000"
    key = words[words.index("--auth-supernode-private-key") + 1]
    assert any(f"mv bank.node {key}" in line for line in commands(folder / "bank" / "README.md"))


def test_a_clients_page_has_a_place_for_the_superlink(tmp_path: Path) -> None:
    kit.client(TASK, "bank", tmp_path)
    assert "--superlink SUPERLINK:8000" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("role", Role)
def test_a_servers_page_and_unit_run_the_same_program(folder: Path, role: Role) -> None:
    own = folder / ROLES[role]
    lines, text = commands(own / "README.md"), (own / f"precad-{ROLES[role]}.service").read_text()
    program = {Role.A: "flower-superlink", Role.B: "precad server --config b.toml"}[role]
    assert any(line.startswith(program) for line in lines)
    assert f"ExecStart={kit.PROGRAMS}/{program}" in text
    assert f"sudo systemctl enable --now precad-{ROLES[role]}" in lines
    assert "extra" not in "".join(lines)
    settings = config.load(own / f"{role.name.lower()}.toml")
    assert settings.store.parent == own, "the store is in the one folder that the unit may write"


@pytest.mark.parametrize("role", Role)
def test_the_units_are_hardened(folder: Path, role: Role) -> None:
    text = (folder / ROLES[role] / f"precad-{ROLES[role]}.service").read_text()
    for line in (
        "User=precad",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "CapabilityBoundingSet=",
        "Restart=on-failure",
        "LimitCORE=0",
        "UMask=0077",
        f"StateDirectory=precad-{ROLES[role]}",
        f"Environment=NUMBA_CACHE_DIR=/var/cache/precad-{ROLES[role]}",
    ):
        assert line in text.splitlines()
    assert "MemoryDenyWriteExecute" not in text, "the kernels are compiled when they are used"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("role", Role)
def test_systemd_reads_the_units(folder: Path, tmp_path: Path, role: Role) -> None:
    path = tmp_path / f"precad-{ROLES[role]}.service"
    text = (folder / ROLES[role] / path.name).read_text()
    path.write_text(re.sub(rf"^ExecStart={kit.PROGRAMS}/\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    command = ["systemd-analyze", "verify", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
