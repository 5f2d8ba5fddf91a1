"""The numbers of the documentation that follow from the code are computed anew."""

import json
import math
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.lab.bench import arithmetic
from precad.mpc.field import P
from precad.privacy.epsilon import total
from precad.privacy.terms import Adversary, Spent, Terms
from precad.protocol.explain import explain
from precad.protocol.norm_proof import Shape
from precad.protocol.params import Params, Validation
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"


def rows(page: str, first: str) -> list[list[str]]:
    """The cells of the table whose heading begins with ``first``."""
    lines = (DOCS / page).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first)) + 2
    end = next(i for i in range(start, len(lines) + 1) if i == len(lines) or not lines[i].startswith("|"))
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines[start:end]]


@pytest.mark.parametrize("row", rows("benchmarks.md", "| parameters d |"), ids=lambda row: f"{row[0]} {row[1]}")
def test_the_bytes(row: list[str]) -> None:
    values = _explained(row[1], int(row[0].replace(",", "")))
    between = values.get("bytes_check", values.get("bytes_gates", 0))
    assert row[2:] == [f"{value:,}" for value in (values["bytes_part_a"], values["bytes_part_b"], between)]


def test_the_targets_of_the_benchmarks() -> None:
    training = pytest.importorskip("precad.lab.bench.training")
    cells = {row[1]: row[3] for row in rows("benchmarks.md", "| what |")}
    accepted = ", ".join(f"{name} {target:g}" for name, (_, target) in arithmetic.TARGETS.items())
    assert cells["`precad bench arithmetic`"] == f"{accepted} times"
    limits = training.TARGETS
    found = [row[3] for row in rows("benchmarks.md", "| what |") if row[2] == "the same under `ldp`"]
    assert found == [f"unchecked {limits['ratio_none']:g}, proof {limits['ratio_proof']:g} times"]


@pytest.mark.parametrize("row", rows("privacy.md", "| σ | server"), ids=lambda row: f"sigma {row[0]}")
def test_what_the_paper_says_and_what_is_rigorous(row: list[str]) -> None:
    answer = json.loads(CliRunner().invoke(app, ["privacy", "--sigma", row[0], "--json"]).output)
    server, clients = answer["server"], answer["clients"]
    computed = [
        server["gdp"],
        server["pld"],
        server["pld_replace_one"],
        clients["paper_invalid"],
        clients["gdp"],
        clients["pld"],
    ]
    shown = [float(re.findall(r"[\d.]+", cell)[0]) for cell in row[1:]]
    assert shown == pytest.approx(computed, abs=1.5e-3)  # the grid of the third is coarse
    assert shown[1:2] + shown[3:] == pytest.approx(computed[1:2] + computed[3:], abs=5.01e-4)


def test_two_runs_cost_less_than_twice_one() -> None:
    page = " ".join((DOCS / "privacy.md").read_text().split())
    found = re.search(r"cost ([\d.]+) each and together ([\d.]+), not ([\d.]+)\.", page)
    assert found is not None
    once, both = (Spent(Terms(sigma=1.0, record_rate=0.05, delta=1e-5, dim=26_010), count) for count in (500, 1000))
    each, together = (total([run], Adversary.SERVER, 1e-5) for run in (once, both))
    assert found.groups() == tuple(f"{value:.3f}" for value in (each, together, 2 * each))


def test_the_script_of_the_benchmarks_prints_a_table() -> None:
    command = [sys.executable, str(ROOT / "scripts/benchmark_table.py"), "rounds", "--dim", "500", "--clients", "2"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [line.split(" | ")[1] for line in printed.splitlines() if line.startswith("| 500 ")] == [
        "proof",
        "triples",
        "none",
    ]


def test_the_numbers_of_the_specification() -> None:
    """What the page on the protocol says beyond its formulas: the forged norm, and what a dealer sends."""
    page = (DOCS / "protocol.md").read_text()
    assert f"a vector of norm {math.isqrt(P) / 2**16:,.0f} passes for one of norm 30" in page
    assert f"only corrections of {_explained('triples')['bytes_deal'] / 1000:.1f} KB a client travel to B" in page


def test_the_soundness_of_a_proof_and_of_a_whole_run() -> None:
    """docs/security.md, Lemma 1 and the corollary of Theorem 1: ε_m and 10^6·ε_m for both lengths of a wire.

    The page rounds bounds up.
    """
    page = " ".join((DOCS / "security.md").read_text().split())
    bits = {}
    for dim in (26_010, 1_000_000):
        shape = Shape(dim, int(_explained("proof", dim)["squared_bound"]))
        bits[shape.wire] = math.ceil(100 * math.log2(shape.online_soundness)) / 100
    assert f"2^{bits[16]:.2f} for m = 16, 2^{bits[64]:.2f} for m = 64" in page
    whole = (math.ceil(10 * (value + math.log2(10**6))) / 10 for value in (bits[16], bits[64]))
    assert "With K = T = 1,000 that is 2^{:.1f} for m = 16 and 2^{:.1f} for m = 64".format(*whole) in page


def test_the_demo_of_the_readme() -> None:
    pytest.importorskip("torch")
    from precad.settings import from_table
    from precad.simulation.presets import preset

    table = preset("digits", "recommended")
    assert (
        f"{table['task']['clients']} clients with\ndifferent data, one of them malicious"
        in (ROOT / "README.md").read_text()
    )
    config = from_table(table)
    assert (config.malicious.clients, config.malicious.attack) == (1, "boost")


def _explained(mode: str, dim: int = 26_010) -> dict[str, int | float]:
    params = Params(
        dim=dim,
        clients=100,
        record_bound=2.0,
        client_bound=30.0,
        noise_multiplier=1.0,
        validation=Validation(mode),
    )
    return {line.key: line.value for line in explain(params)}
