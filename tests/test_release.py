"""What is released: a wheel and an sdist, built here, and the wheel installed into an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import precad
from precad.deployment import kit

ROOT = Path(__file__).parent.parent
CODE = ("precad/", f"precad-{precad.__version__}.dist-info/")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both. The tools are this environment's; nothing is fetched."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, as a kit installs it; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    (folder / "requirements.txt").write_text(kit.requirements(built))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    pinned = ["--find-links", str(built), "--require-hashes", "-r", str(folder / "requirements.txt")]
    subprocess.run([*pip, *pinned], check=True, capture_output=True, env=clean())
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def clean() -> dict[str, str]:
    """The environment without anything that would lead to this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.mark.long
def test_the_wheel_holds_the_code_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"precad-{precad.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert all(name.startswith(CODE) for name in names)
    inside = [name for name in names if name.startswith("precad/")]
    templates = {".md", ".toml", ".service", ".sh"}
    assert {Path(name).suffix for name in inside} <= {
        ".py",
        ".typed",
        ".html",
        ".css",
        ".js",
        ".txt",
        ".json",
        *templates,
    }
    assert not [name for name in inside if "test" in Path(name).name]
    source = {path for path in (ROOT / "src/precad").rglob("*.*") if "__pycache__" not in path.parts}
    assert set(inside) == {str(path.relative_to(ROOT / "src")) for path in source if path.is_file()}
    assert wheel.stat().st_size < 2_000_000


@pytest.mark.long
def test_whoever_builds_the_wheel_has_the_same(built: Path, tmp_path: Path) -> None:
    """So that parties can compare its hash with what they build themselves."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert kit.requirements(tmp_path) == kit.requirements(built)


@pytest.mark.long
def test_the_sdist_holds_what_a_reader_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "Makefile", "mkdocs.yml"} <= names
    assert {"tests/test_release.py", "docs/index.md", "examples/first_steps.ipynb"} <= names
    assert not [name for name in names if name.endswith((".npz", ".pt", ".sqlite", ".key", ".pyc"))]
    assert sdist.stat().st_size < 5_000_000


@pytest.mark.long
def test_the_wheel_works_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean(), capture_output=True, text=True, check=True)
        return done.stdout

    assert run(str(installed / "bin/precad"), "--version") == f"precad {precad.__version__}\n"
    where = run(str(installed / "bin/python"), "-c", "import precad; print(precad.__file__)").strip()
    assert Path(where).is_relative_to(installed)
    assert "soundness" in run(str(installed / "bin/python"), "-m", "precad", "protocol", "--json")


def test_the_changelog_has_a_place_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    heading = "Unreleased" if ".dev" in precad.__version__ else f"{precad.__version__}"
    assert f"\n## {heading}" in text
