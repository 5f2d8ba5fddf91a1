"""Whether precad works with the oldest and the newest release of everything that its pyproject.toml allows.

For each of the two it makes fresh environments, one for all but Flower, which holds other packages back, and one for
Flower; installs precad there; and runs the tests that touch each package. It prints a table, and ends with 1 if a
test failed. Oldest means the lower bound of every direct dependency. Takes some minutes and gigabytes of disk:

    python scripts/check_versions.py --constraint constraints.txt --any torch

``--any torch`` leaves torch out of "oldest", where its oldest release has no CPU build for this machine.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("hypothesis", "pytest", "pytest-xdist")
GROUPS = {"without Flower": ("", "train", "server"), "with Flower": ("flower",)}
"""What is installed together: the names of the extras, "" for the core."""
TESTS = {
    "numpy": ("mpc", "privacy", "protocol"),
    "scipy": ("privacy",),
    "numba": ("mpc", "protocol"),
    "cryptography": ("mpc", "deployment"),
    "blake3": ("mpc", "deployment"),
    "dp-accounting": ("privacy",),
    "typer": ("cli",),
    "rich": ("cli", "data"),
    "jinja2": ("report",),
    "torch": ("gradients", "simulation"),
    "matplotlib": ("privacy", "cli"),
    "pillow": ("data",),
    "pooch": ("data",),
    "scikit-learn": ("data", "simulation"),
    "starlette": ("deployment",),
    "uvicorn": ("deployment",),
    "httpx": ("deployment",),
    "flwr": ("flower",),
}
"""Package → folders of the tests that touch it."""


@dataclass(frozen=True)
class Outcome:
    """What happened in one environment."""

    versions: dict[str, str]
    failed: dict[str, list[str]]
    """Folder of tests → names of those that failed."""


def main() -> int:
    """Check, print the table and the failures; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--constraint", type=Path, help="a file of pip constraints for all environments")
    parser.add_argument("--any", action="append", default=[], metavar="PACKAGE", help="not tested at its lower bound")
    parser.add_argument("--only", choices=("oldest", "newest"), action="append", help="one of the two")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ends = options.only or ["oldest", "newest"]
    lines, failures = [], []
    for group, extras in GROUPS.items():
        bounds = lower_bounds(project, extras)
        if unknown := set(bounds) - set(TESTS):
            parser.error(f"{', '.join(sorted(unknown))}: no folder of tests in TESTS")
        folders = sorted({folder for package in bounds for folder in TESTS[package]})
        outcomes = {}
        for end in ends:
            pins = [f"{p}=={v}" for p, v in bounds.items() if p not in options.any] if end == "oldest" else []
            print(f"{end}, {group} ...", flush=True)
            outcomes[end] = check(extras, pins, folders, options.constraint)
            failures += [f"{end}, {group}: {test}" for tests in outcomes[end].failed.values() for test in tests]
        lines += [row(package, outcomes) for package in bounds]
    print("\n| package | " + " | ".join(f"{end} | tests" for end in ends) + " |")
    print("|---|" + "---|---|" * len(ends))
    print("\n".join(lines))
    print("\n".join(["", *failures]) if failures else "\nall passed")
    return 1 if failures else 0


def lower_bounds(project: dict[str, object], extras: tuple[str, ...]) -> dict[str, str]:
    """The direct dependencies of these extras of a project, without those on precad itself."""
    bounds = {}
    for extra in extras:
        wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]  # type: ignore[index]
        for requirement in wanted:  # type: ignore[attr-defined]
            found = re.match(r"([A-Za-z0-9-]+)(?:\[[^]]*\])?>=([0-9.]+)", requirement)
            if found:
                bounds[found[1].lower()] = found[2]
    return bounds


def check(extras: tuple[str, ...], pins: list[str], folders: list[str], constraint: Path | None) -> Outcome:
    """Install into a new environment and run the tests of these folders there; the environment is removed."""
    with tempfile.TemporaryDirectory(prefix="precad-versions-") as name:
        place = Path(name)
        venv.create(place / "venv", with_pip=True)
        python = str(place / "venv/bin/python")
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        limits = ["--constraint", str(constraint)] if constraint else []
        itself = f"{ROOT}[{','.join(extra for extra in extras if extra)}]"
        installed = subprocess.run(
            [*pip, "install", "--quiet", *limits, *pins, *TOOLS, itself], capture_output=True, text=True, check=False
        )
        if installed.returncode:
            return Outcome({}, {folder: [installed.stderr.strip().splitlines()[-1]] for folder in folders})
        listed = subprocess.run([*pip, "list", "--format", "json"], capture_output=True, text=True, check=True)
        versions = {package["name"].lower(): package["version"] for package in json.loads(listed.stdout)}
        tests = [str(ROOT / "tests" / folder) for folder in folders]
        report = place / "report.xml"
        command = [python, "-m", "pytest", "-q", "-n", "2", "-m", "not long", "-p", "no:cacheprovider"]
        ran = subprocess.run([*command, f"--junitxml={report}", *tests], cwd=ROOT, capture_output=True, check=False)
        sys.stdout.write(ran.stdout.decode(errors="replace")[-3000:] if ran.returncode else "")
        return Outcome(versions, failed_tests(report, folders))


def failed_tests(report: Path, folders: list[str]) -> dict[str, list[str]]:
    """Folder → its failed tests, by pytest's report in XML."""
    if not report.is_file():
        return {folder: ["pytest did not start"] for folder in folders}
    failed: dict[str, list[str]] = {folder: [] for folder in folders}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None:
            place = f"{case.get('classname', '')}.{case.get('name')}"
            folder = place.split(".")[1] if place.count(".") > 1 else ""
            failed.setdefault(folder if folder in failed else folders[0], []).append(place)
    return failed


def row(package: str, outcomes: dict[str, Outcome]) -> str:
    """A line of the table: each version, and how many tests that touch it failed."""
    cells = [package]
    for outcome in outcomes.values():
        failed = sum(len(outcome.failed[folder]) for folder in TESTS[package])
        cells += [outcome.versions.get(package, "not installed"), f"{failed} failed" if failed else "passed"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
