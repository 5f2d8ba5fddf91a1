"""The public names of the three packages, one by one; documentation and examples import nothing else."""

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

EXPORTED = {
    "precad": [
        "Adversary",
        "AttackContext",
        "Figures",
        "Hyperparameters",
        "Params",
        "PrecadError",
        "Problem",
        "ProtocolError",
        "Schedule",
        "Trained",
        "Unit",
        "__version__",
        "fix",
        "train",
    ],
    "precad.deployment": [
        "Client",
        "HttpTransport",
        "RefusedError",
        "Task",
        "Training",
        "TransportError",
        "load_key",
        "load_settings",
        "load_task",
        "reply_to",
        "write_log",
    ],
    "precad.flower": ["PrecadMod", "PrecadStrategy", "ServerA", "record_update", "vector_of"],
}
REHEARSAL = {("examples/flower-mnist/deploy.py", "precad.lab.processes.Deployment")}
"""It starts all parties as processes on one machine, which is the lab's business and nobody's deployment."""

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
NOTEBOOK = ROOT / "examples/first_steps.ipynb"


@pytest.mark.parametrize("package", EXPORTED)
def test_exactly_these_names(package: str) -> None:
    if package == "precad.flower":
        pytest.importorskip("flwr")
    pytest.importorskip("torch")
    module = import_module(package)
    assert sorted(module.__all__) == EXPORTED[package] == dir(module)
    assert len(module.__all__) <= 15
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"{package}.*no_such_name"):
        module.no_such_name  # noqa: B018


def programs(file: Path) -> Iterator[str]:
    """The Python of a page, of a notebook, or of a program."""
    if file.suffix == ".py":
        yield file.read_text()
    elif file.suffix == ".ipynb":
        cells = json.loads(file.read_text())["cells"]
        yield from ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    else:
        for block in re.findall(r"^ *```python[^\n]*\n(.*?)^ *```", file.read_text(), re.DOTALL | re.MULTILINE):
            yield textwrap.dedent(block)


def used(program: str) -> Iterator[str]:
    """What a program takes from precad: ``package.name``, or an imported package."""
    for node in ast.walk(ast.parse(program)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "precad":
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] == "precad")
            case ast.Attribute(value=ast.Name(id="precad"), attr=name):
                yield f"precad.{name}"
            case _:
                pass


@pytest.mark.parametrize("file", [*PAGES, NOTEBOOK, *EXAMPLES], ids=lambda file: str(file.relative_to(ROOT)))
def test_documentation_uses_public_names_alone(file: Path) -> None:
    public = {*EXPORTED, *(f"{package}.{name}" for package, names in EXPORTED.items() for name in names)}
    for program in programs(file):
        for name in used(program):
            assert name in public or (str(file.relative_to(ROOT)), name) in REHEARSAL, name


def test_a_private_name_is_noticed() -> None:
    program = "import precad.mpc\nfrom precad.privacy.terms import Terms\nprecad.train"
    assert set(used(program)) == {"precad.mpc", "precad.privacy.terms.Terms", "precad.train"}


def test_the_api_page_documents_exactly_these_names() -> None:
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    wanted = [f"{package}.{name}" for package, names in EXPORTED.items() for name in names if name != "__version__"]
    assert sorted(shown) == sorted(wanted)
