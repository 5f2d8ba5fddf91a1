"""The architecture: who may import whom, and that the core works without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "precad"

FILES = {"tables", "files"}
"""Settings, and whole files, for the layers that read and write them."""
MAY_IMPORT = {
    "errors": set(),
    "lazy": set(),
    "tables": set(),
    "files": set(),
    "mpc": {"errors"},
    "privacy": {"errors", *FILES, "mpc"},
    "protocol": {"errors", "mpc", "privacy"},
    "settings": {*FILES, "mpc", "privacy", "protocol"},
    "report": {"errors", *FILES, "privacy", "protocol", "settings"},
    "data": {"errors", *FILES, "mpc"},
    "gradients": {"errors", "mpc", "privacy"},
    "simulation": {"errors", *FILES, "mpc", "privacy", "protocol", "settings", "gradients", "data", "report"},
    "deployment": {"errors", "lazy", *FILES, "mpc", "privacy", "protocol", "settings", "report"},
    "flower": {"errors", "lazy", "mpc", "privacy", "protocol", "gradients", "data", "deployment"},
    "lab": {
        "errors",
        *FILES,
        "mpc",
        "privacy",
        "protocol",
        "settings",
        "gradients",
        "data",
        "simulation",
        "deployment",
        "flower",
    },
}
"""Layer → layers below it. The commands, in ``cli``, may import all; ``precad`` itself loads lazily."""
COMMANDS = {"cli"}

MAY_IMPORT_TORCH = {
    "gradients",
    "data",
    "simulation",
    "flower",
    "lab/paper",
    "lab/malicious",
    "lab/defences",
    "lab/attacks/data_poisoning",
    "lab/attacks/backdoor",
    "lab/attacks/model_poisoning",
    "lab/bench/gradients",
    "lab/bench/training",
    "lab/bench/flower",
}
MAY_IMPORT_MATPLOTLIB = MAY_IMPORT_TORCH | {"report/pictures"}
"""It draws for the core's commands, which do without it where the extra ``train`` is not installed."""
MAY_USE_NETWORK_OR_STORAGE = {"deployment", "flower", "privacy/ledger", "data/download", "report/live", "lab/processes"}
"""The services, the ledger's file, the download of public data sets, and pages and processes on loopback."""
NETWORK_AND_STORAGE = {"socket", "ssl", "sqlite3", "http", "httpx", "pooch", "starlette", "uvicorn", "urllib"}

WITHOUT_TORCH = """
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "matplotlib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoTorch())
"""
"""The beginning of a program in a process in which torch does not exist."""

MODULES = sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    own = layer(path)
    if own in COMMANDS or own in ("__main__", "__init__"):
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("precad.")} - {"__version__"}
    assert used <= MAY_IMPORT[own] | {own}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_torch_sockets_and_storage_stay_in_their_layers(path: Path) -> None:
    place = str(path.relative_to(SOURCE).with_suffix(""))
    outside = {name.split(".")[0] for name in imports(path)}
    if not any(place.startswith(allowed) for allowed in MAY_IMPORT_TORCH):
        assert not outside & {"torch", "sklearn"}
    if not any(place.startswith(allowed) for allowed in MAY_IMPORT_MATPLOTLIB):
        assert "matplotlib" not in outside
    if not any(place.startswith(allowed) for allowed in MAY_USE_NETWORK_OR_STORAGE):
        assert not outside & NETWORK_AND_STORAGE


def test_the_core_runs_without_torch() -> None:
    """Everything outside the training parts is imported in a process in which torch does not exist."""
    names = [
        ".".join(("precad", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in MODULES
        if path.name != "__main__.py"
        and not any(str(path.relative_to(SOURCE)).startswith(allowed) for allowed in MAY_IMPORT_MATPLOTLIB)
    ]
    code = f"{WITHOUT_TORCH}\nfor name in {names!r}: __import__(name)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_guard_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "field.py"
    bad.write_text("from precad.protocol.round import x\nimport torch.nn\n")
    assert "precad.protocol.round" in imports(bad)
    assert "torch.nn" in imports(bad)
