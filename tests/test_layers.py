"""The architecture: who may import whom, and that the core works without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "precad"

FILES = {"tables", "files", "databases", "arrays"}
"""Settings, whole files, files of SQLite and of arrays, for the layers that read and write them."""
MAY_IMPORT = {
    "errors": set(),
    "lazy": set(),
    "text": set(),
    "elsewhere": set(),
    "plotting": {"elsewhere", "files"},
    "tables": {"files"},
    "files": set(),
    "databases": {"files"},
    "arrays": {"files"},
    "mpc": {"errors", "elsewhere"},
    "privacy": {"errors", *FILES, "mpc"},
    "protocol": {"errors", "mpc", "privacy"},
    "settings": {*FILES, "mpc", "privacy", "protocol"},
    "report": {"errors", "plotting", "text", *FILES, "privacy", "protocol", "settings"},
    "data": {"errors", *FILES, "mpc"},
    "gradients": {"errors", "mpc", "privacy", "data"},
    "simulation": {"errors", *FILES, "mpc", "privacy", "protocol", "settings", "gradients", "data", "report"},
    "deployment": {"errors", "lazy", *FILES, "mpc", "privacy", "protocol", "settings", "report"},
    "flower": {"errors", "lazy", "text", *FILES, "mpc", "privacy", "protocol", "gradients", "data", "deployment"},
    "lab": {
        "errors",
        "plotting",
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
    "lab/canaries",
    "lab/defences",
    "lab/attacks/data_poisoning",
    "lab/attacks/backdoor",
    "lab/attacks/model_poisoning",
    "lab/bench/gradients",
    "lab/bench/training",
    "lab/bench/flower",
}
MAY_IMPORT_MATPLOTLIB = MAY_IMPORT_TORCH | {"plotting", "report/pictures"}
"""They draw for the core's commands, which do without it where the extra ``train`` is not installed."""
MAY_USE_NETWORK_OR_STORAGE = {
    "databases",
    "deployment",
    "flower",
    "privacy/ledger",
    "data/download",
    "report/live",
    "lab/processes",
}
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


THE_WAY = {"files.py", "databases.py", "arrays.py", "tables.py"}
"""How files are read and written: the rest of the program goes through these."""
OWN_WAY = {
    ("report/page.py", "read_text"),  # of the package itself
    ("mpc/kernels.py", "read_bytes"),  # the package's own sources
    ("elsewhere.py", "os.open"),  # the working folder itself
    ("mpc/kernels.py", "mkdir"),  # beside them: no layer below may be imported there
    ("data/image_files.py", "np.load"),  # memory-mapped, from the user's own cache
}
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "touch", "symlink_to", "hardlink_to"}
"""Of a path."""
FUNCTIONS = {
    *("open", "eval", "exec", "os.open", "os.mkdir", "os.makedirs", "os.symlink", "os.link", "sqlite3.connect"),
    *("np.load", "np.memmap", "np.fromfile", "np.loadtxt", "np.genfromtxt", "torch.load", "zipfile.ZipFile"),
    *("json.load", "json.loads", "tomllib.load", "tomllib.loads", "pickle.load", "pickle.loads", "yaml.load"),
    *("shutil.copy", "shutil.copyfile", "shutil.move", "tempfile.mkstemp", "tempfile.NamedTemporaryFile"),
}
WITH_STREAMS = {"open", "savefig", "np.save", "np.savez", "np.savez_compressed", "torch.save"}
"""Of libraries, which get a stream: one of ``whole_file``, or memory; never a path."""
STREAMS = {"out", "stored", "file", "packed"}


def file_calls(source: str) -> set[str]:
    """The calls in a module by which a file could be read or written."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, given = ast.unparse(node.func), [*node.args, *(keyword.value for keyword in node.keywords)]
        last = name.rpartition(".")[2]
        streamed = not given or any(ast.unparse(value) in STREAMS for value in given)
        by_library = {name, last} & WITH_STREAMS and name != last and not streamed
        if name in FUNCTIONS or by_library or (name != last and last in METHODS):
            found.add(name if name in FUNCTIONS else last)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_are_read_and_written_in_one_way(path: Path) -> None:
    """Through the four, which follow no link to write, and refuse to read a pipe or what is too long."""
    place = str(path.relative_to(SOURCE))
    if place not in THE_WAY:
        allowed = {call for where, call in OWN_WAY if where == place}
        assert file_calls(path.read_text()) <= allowed, "use precad.files, databases, arrays or tables"


@pytest.mark.parametrize(
    "call",
    [
        "open('x', 'w')",
        "path.open('a')",
        "path.write_text('')",
        "(a / b).read_bytes()",
        "np.load(path)",
        "torch.load(path)",
        "sqlite3.connect(path)",
        "json.loads(text)",
        "figure.savefig(path)",
        "np.save(path, x)",
        "torch.save(x, path)",
        "folder.mkdir()",
        "eval(text)",
    ],
)
def test_the_guard_sees_a_file_that_goes_another_way(call: str) -> None:
    assert file_calls(call)
    assert not file_calls("collected.open(); model.eval(); write_file(path, x); np.save(out, x)")


MAY_SPEAK = {"cli/output.py", "data/download.py"}
"""Where lines go to a terminal, and the bar of a download, which shows public addresses alone."""


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_one_module_writes_to_the_terminal(path: Path) -> None:
    """It makes what comes from a file printable, and reads no markup in it."""
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    if str(path.relative_to(SOURCE)) not in MAY_SPEAK:
        speaks = {"typer.echo", "typer.secho", "click.echo", "Console", "rich.print", "sys.stdout.write"}
        assert not called & speaks, "use precad.cli.output"
