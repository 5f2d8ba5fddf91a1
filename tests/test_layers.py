"""The architecture: who may import whom, and that the core works without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "precad"

MAY_IMPORT = {
    "errors": set(),
    "mpc": {"errors"},
    "codec": {"errors", "mpc"},
    "messages": {"errors", "codec", "mpc"},
    "privacy": {"errors", "mpc"},
    "params": {"errors", "mpc", "privacy"},
    "protocol": {"errors", "mpc", "messages", "privacy", "params"},
    "services": {"errors", "mpc", "codec", "messages", "privacy", "params", "protocol", "report"},
    "flower": {"errors", "mpc", "privacy", "params", "protocol", "services", "learning"},
    "bench": {"errors", "mpc", "messages", "privacy", "params", "protocol", "services", "learning"},
    "attacks": {"errors", "mpc", "messages", "privacy", "params", "protocol"},
    "baselines": {"errors"},
    "learning": {"errors", "mpc", "messages", "privacy", "params", "protocol", "attacks", "baselines", "report"},
    "experiments": {"errors", "mpc", "privacy", "params", "protocol", "attacks", "baselines", "learning"},
    "privacy_report": {"errors", "mpc", "privacy"},
    "privacy_curve": {"errors", "mpc", "privacy", "privacy_report"},
    "plots": {"errors", "mpc", "privacy", "privacy_report", "privacy_curve"},
    "explain": {"errors", "mpc", "messages", "privacy", "params", "protocol"},
    "report": {"errors", "privacy", "params", "explain"},
    "demo": {"errors", "mpc", "messages", "privacy", "params", "protocol", "attacks"},
}
"""Layer → layers below it. The commands may import all; ``precad`` itself loads lazily."""
COMMANDS = {
    "cli",
    "cli_common",
    "cli_privacy",
    "cli_certify",
    "cli_ledger",
    "cli_train",
    "cli_report",
    "services_cli",
    "cli_reproduce",
}

MAY_IMPORT_TORCH = {"learning", "bench/gradients", "bench/training", "flower", "experiments", "attacks/data_poisoning"}
MAY_IMPORT_MATPLOTLIB = MAY_IMPORT_TORCH | {"plots"}
"""``plots`` draws for the core's commands, which do without it where the extra ``train`` is not installed."""
MAY_USE_NETWORK_OR_STORAGE = {"services", "flower", "privacy/ledger", "learning/download", "report/live"}
"""The services, the ledger's file, the download of public data sets, and the live page on loopback."""
NETWORK_AND_STORAGE = {"socket", "ssl", "sqlite3", "http", "httpx", "starlette", "uvicorn", "urllib"}

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
    code = f"""
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "matplotlib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoTorch())
for name in {names!r}:
    __import__(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_guard_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "field.py"
    bad.write_text("from precad.protocol.round import x\nimport torch.nn\n")
    assert "precad.protocol.round" in imports(bad)
    assert "torch.nn" in imports(bad)
