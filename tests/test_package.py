"""The front of the package: public names, start-up time, the command line."""

import ast
import json
import math
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import precad
from precad.cli.app import app
from precad.lab.bench import arithmetic
from precad.mpc import fixed_point
from precad.mpc.prg import digest
from precad.privacy.ledger import Ledger
from precad.privacy.terms import Adversary, Terms
from precad.protocol.params import Params, Round, Unit, Validation
from precad.protocol.round import ServerSecrets, client_submits, nonces_of, run_round
from tests.messages import says

run = CliRunner().invoke
ROOT = Path(__file__).parent.parent
PARTS = {"llvmlite", "markupsafe"}


def test_the_version_comes_from_one_place() -> None:
    assert metadata.version("precad") == precad.__version__
    assert run(app, ["--version"]).output == f"precad {precad.__version__}\n"


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, precad; assert not {'numpy', 'numba', 'scipy', 'torch', 'typer'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_takes_under_half_a_second() -> None:
    """Of a processor, the best of three whole processes, the interpreter's own start included."""
    times = []
    for _ in range(3):
        start = os.times()
        subprocess.run([sys.executable, "-c", "import precad"], check=True)
        end = os.times()
        times.append(end.children_user + end.children_system - start.children_user - start.children_system)
    assert min(times) < 0.5


def test_compiled_code_is_cached() -> None:
    """A second process loads every kernel it uses and compiles none."""
    code = (
        "import numpy as np; from precad.mpc import field; x = np.ones(3, np.uint64); field.add(x, x)\n"
        "stats = field._add.stats; assert stats.cache_hits and not stats.cache_misses, stats"
    )
    subprocess.run([sys.executable, "-c", code.split("\n")[0]], check=True)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_is_in_plain_words() -> None:
    result = run(app, ["--help"])
    assert result.exit_code == 0
    assert "organisations that do not trust each other" in " ".join(result.output.split())
    assert run(app, ["bench", "--help"]).exit_code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(shell: str) -> None:
    result = run(app, [], env={"_PRECAD_COMPLETE": f"source_{shell}"}, prog_name="precad")
    assert result.exit_code == 0
    assert "_PRECAD_COMPLETE" in result.output


def test_an_unknown_command_is_an_error() -> None:
    assert run(app, ["no-such-command"]).exit_code == 2


def test_the_demo_shows_a_round() -> None:
    result = run(app, ["demo"])
    assert result.exit_code == 0
    for words in ("hospital-8", "its share for A", "noisy sum", "nobody"):
        assert words in result.output


def test_protocol_explains_its_numbers() -> None:
    result = run(app, ["protocol", "--explain"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for words in ("3,242", "2^-55.4", "2^-128.0", "Lemma 1", "262,016"):
        assert words in result.output


@pytest.mark.parametrize("mode", ["proof", "triples", "none"])
def test_the_explained_bytes_are_the_real_ones(mode: str) -> None:
    explained = json.loads(run(app, ["protocol", "--mode", mode, "--dim", "1000", "--clients", "4", "--json"]).output)
    measured = json.loads(
        run(app, ["bench", "protocol", "--mode", mode, "--dim", "1000", "--clients", "4", "--json"]).output
    )
    assert measured["mode"] == mode
    assert measured["bytes_client_a"] - explained["bytes_part_a"] in range(264, 281)
    assert measured["bytes_client_b"] - explained["bytes_part_b"] in range(264, 281)
    between = {"proof": "bytes_check", "triples": "bytes_gates"}.get(mode)
    if between is not None:
        assert measured["bytes_a_to_b"] == measured["bytes_b_to_a"]
        assert abs(measured["bytes_a_to_b"] - explained[between]) <= 8
    assert "figure" in run(app, ["bench", "protocol", "--mode", mode, "--dim", "1000", "--clients", "4"]).output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--client-bound", "1e9"], ("C", 9942053)),
        (["--dim", "0"], ("dim", "[1, 2^32]", 0)),
        (["--noise-multiplier", "-1"], ("noise_multiplier", 0, -1.0)),
        (["--mode", "magic"], ("--mode", "magic")),
    ],
)
def test_a_wrong_number_is_one_message_and_exit_code_2(options: list[str], words: tuple[object, ...]) -> None:
    result = run(app, ["protocol", *options])
    assert result.exit_code == 2
    assert re.search(says(*words), result.output)
    assert "Traceback" not in result.output


def test_privacy_answers_for_both_adversaries() -> None:
    answer = json.loads(run(app, ["privacy", "--sigma", "2", "--json"]).output)
    assert set(answer["server"]) >= {"gdp", "pld", "rdp", "delta"}
    assert answer["server"]["pld"] == pytest.approx(2.532, abs=5e-4)
    assert answer["clients"]["pld"] == pytest.approx(1.636, abs=5e-4)
    assert answer["clients"]["paper_invalid"] == pytest.approx(0.450, abs=5e-4)
    shown = " ".join(run(app, ["privacy", "--target-epsilon", "2.532"]).output.split())
    assert "σ = 2" in shown
    assert "asymptotic and too small" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ("--sigma", "--target-epsilon")),
        (["--sigma", "1", "--record-rate", "1.2"], ("--record-rate", "(0, 1]", 1.2)),
        (["--sigma", "1", "--delta", "0"], ("--delta", "(0, 1)")),
        (["--sigma", "1", "--rounds", "-3"], ("--rounds", 1, -3)),
        (["--sigma", "1", "--participations", "6000"], ("--participations", "[0, 5000]", 6000)),
        (["--sigma", "0"], ("sigma", 0.05, 0.0)),
        (["--sigma", "0.001"], ("sigma", 0.05, 0.001)),
        (["--target-epsilon", "1e9"], ("epsilon", "(0, 20]", 1e9)),
    ],
)
def test_privacy_says_what_is_allowed(options: list[str], words: tuple[object, ...]) -> None:
    result = run(app, ["privacy", *options])
    assert result.exit_code == 2
    assert re.search(says(*words), result.output)


def test_certify_says_when_it_says_nothing() -> None:
    result = run(app, ["certify"])
    assert result.exit_code == 0
    assert "The certificate is vacuous here" in result.output
    assert "--malicious: 1 is too many" in result.output
    for option in ("--sigma", "--client-bound", "--rounds", "--client-rate"):
        (value,) = re.findall(rf"{option} (\S+) or", result.output)
        certified = json.loads(run(app, ["certify", option, value, "--json"]).output)
        assert certified["rigorous"]["upper"] < (0.05 + 1) / 2, option
    answer = json.loads(
        run(app, ["certify", "--rounds", "5", "--client-rate", "1", "--client-bound", "2", "--json"]).output
    )
    assert not answer["rigorous"]["vacuous"]
    assert answer["rigorous"]["upper"] < 0.9
    wrong = run(app, ["certify", "--clean-loss", "2"])
    assert wrong.exit_code == 2
    assert re.search(says("clean loss", "[0, 1.0]", 2.0), wrong.output)


@pytest.mark.parametrize("noise", Adversary)
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("validation", [Validation.PROOF, Validation.TRIPLES])
def test_certify_takes_the_noise_that_is_in_the_sum(noise: Adversary, unit: Unit, validation: Validation) -> None:
    """Measured in one opened round of the protocol, and certified by the trade-off of two Gaussians (q = 1)."""
    sigma, dim, rounds = 3.0, 4096, 9
    params = Params(
        dim=dim,
        clients=2,
        record_bound=2.0,
        client_bound=5.0,
        noise_multiplier=sigma,
        noise=noise,
        unit=unit,
        validation=validation,
    )
    secrets = ServerSecrets.fresh(), ServerSecrets.fresh()
    round_ = Round(params, digest(b"precad params"), 0, digest(b"precad params"), nonces_of(*secrets))
    sent = {"bank": client_submits(round_, "bank", np.zeros(dim))}
    opened = run_round(round_, sent, *secrets).noisy_sum
    std = float(fixed_point.decode(opened, params.fractional_bits).std()) / params.client_bound
    options = ["--sigma", "3", "--client-bound", "5", "--dim", str(dim), "--rounds", str(rounds), "--client-rate", "1"]
    options += ["--noise", noise.value, "--unit", unit.value, "--validation", validation.value, "--json"]
    answer = json.loads(run(app, ["certify", *options]).output)
    assert answer["noise"] == pytest.approx(std, rel=5 / math.sqrt(2 * dim))  # a false alarm has less than 1e-6
    exact = stats.norm.cdf(stats.norm.ppf(0.05) + math.sqrt(rounds) / std)
    assert answer["rigorous"]["upper"] == pytest.approx(exact, rel=0.1)
    without_dim = json.loads(run(app, ["certify", *(w for w in options if w not in ("--dim", str(dim)))]).output)
    assert without_dim["noise"] <= answer["noise"]
    assert without_dim["rigorous"]["upper"] >= answer["rigorous"]["upper"]


def test_certify_knows_that_the_noise_of_unit_client_grows_with_the_bound() -> None:
    answer = json.loads(run(app, ["certify", "--unit", "client", "--client-rate", "1", "--json"]).output)
    assert answer["rigorous"]["vacuous"]
    assert answer["nearest"]["client_bound"] is None
    assert answer["nearest"]["noise"] > answer["noise"]


def test_protocol_shows_the_noise_of_mode_and_unit() -> None:
    shown = {
        (noise, unit): json.loads(run(app, ["protocol", "--noise", noise, "--unit", unit, "--json"]).output)
        for noise in ("server", "clients")
        for unit in ("record", "client")
    }
    for unit in ("record", "client"):
        whole, shared = (shown[noise, unit]["noise_std"] for noise in ("server", "clients"))
        assert shared == pytest.approx(whole / math.sqrt(2))
    assert shown["server", "client"]["sensitivity"] == 30.0


def test_certify_names_the_nearest_settings() -> None:
    answer = json.loads(run(app, ["certify", "--json"]).output)
    assert answer["noise_needed"] == answer["nearest"]["noise"] == pytest.approx(4.2, rel=5e-3)
    assert set(answer["nearest"]) == {"noise", "client_bound", "rounds", "client_rate", "malicious"}
    assert answer["nearest"]["malicious"] is None
    assert "--malicious: 1 is too many" in run(app, ["certify"]).output


def test_certify_from_clean_runs(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    errors.write_text("0.1\n" * 300)
    options = ["--malicious", "2", "--rounds", "10", "--client-rate", "1", "--sigma", "20", "--client-bound", "2"]
    options += ["--clean-errors", str(errors)]
    accuracy = json.loads(run(app, ["certify", *options, "--json"]).output)["certified_accuracy"]
    assert accuracy["runs"] == 300
    assert 0.8 < accuracy["expected_accuracy"] < 0.9
    assert re.search(says("300 clean runs", 0.99), run(app, ["certify", *options]).output)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--validation", "none"], ("validation", "none", "proof", "triples")),
        (["--normalise", "realised"], ("normalise", "realised", "constant")),
        (["--malicious", "101"], ("--malicious", "[1, 100]", 101)),
        (["--malicious", "0"], ("--malicious", "[1, 100]", 0)),
        (["--clients", "0"], ("--clients must be at least 1", 0)),
        (["--rounds", "-3"], ("--rounds", 1, -3)),
        (["--client-rate", "1.2"], ("--client-rate", "(0, 1]", 1.2)),
        (["--client-bound", "0"], ("--client-bound", 0, 0.0)),
        (["--clean-errors", "no-such-file"], ("no-such-file", "No such file")),
        (["--confidence", "1", "--clean-errors", "pyproject.toml"], ("pyproject.toml", "[0, 1]")),
    ],
)
def test_certify_says_what_is_allowed(options: list[str], words: tuple[object, ...]) -> None:
    result = run(app, ["certify", *options])
    assert result.exit_code == 2
    assert re.search(says(*words), result.output)


def test_ledger_commands(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    book = Ledger(path, "00" * 32, Terms(sigma=1.0, record_rate=0.05, delta=1e-5, dim=1000))
    for round_ in range(3):
        book.record(round_, ["bank", "lab"])
    assert book.verify() in run(app, ["ledger", "verify", str(path)]).output
    assert "lab" in run(app, ["ledger", "show", str(path)]).output
    assert json.loads(run(app, ["ledger", "export", str(path)]).output)["digest"] == book.verify()
    assert run(app, ["ledger", "export", "--csv", str(path)]).output.startswith("client,participations")
    missing = run(app, ["ledger", "verify", str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert re.search(says("no ledger", tmp_path / "none"), " ".join(missing.output.split()))


def test_bench_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "SIZES", (1000,))
    (row,) = json.loads(run(app, ["bench", "arithmetic", "--json"]).output)
    assert row["size"] == 1000
    assert set(row["ratios"]) == {"dot", "axpy", "prg", "share", "noise"}
    assert "operation" in run(app, ["bench", "arithmetic"]).output


def test_every_library_that_is_imported_is_declared() -> None:
    """A library that only another one brings along may be gone in its next version, as typer's click is.

    llvmlite and markupsafe are parts of numba and jinja2, whose documentation says how to use them.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for group in groups for line in group}
    brought = metadata.packages_distributions()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"precad", *PARTS}:
                libraries = {name.lower().replace("_", "-") for name in brought.get(top, [top])}
                assert libraries & declared, f"{path.relative_to(ROOT)} imports {top}"
