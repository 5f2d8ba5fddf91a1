"""What follows from a run's figures."""

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.report.figures import Figures
from precad.report.run import read_run
from tests.report.fake_runs import FakeRun


def test_noise_is_that_of_the_protocol(tmp_path: Path) -> None:
    norms = {}
    for protocol in ("precad", "cdp", "ldp", "ddp", "plain"):
        run = read_run(FakeRun(protocol=protocol).write(tmp_path / protocol))
        found = Figures(run).noise_norms
        assert found is not None
        norms[protocol] = found[0]
    once = norms["cdp"]
    assert once == pytest.approx(math.sqrt(100) * 2.0 * 1.0, rel=1e-3)  # √d·σ·R', R' a little above R
    assert norms["precad"] == pytest.approx(math.sqrt(2) * once)
    assert norms["ldp"] == pytest.approx(math.sqrt(3) * once)
    run = read_run(tmp_path / "ldp")
    of_two = replace(run, rounds=tuple(replace(line, noises=2) for line in run.rounds))  # the third is malicious
    assert Figures(of_two).noise_norms == pytest.approx([math.sqrt(2) * once] * run.done)
    assert norms["ddp"] == pytest.approx(once)  # τ = q·n = 3 of 3
    assert norms["plain"] == 0


def test_signal_is_what_exceeds_the_noise(tmp_path: Path) -> None:
    found = Figures(read_run(FakeRun().write(tmp_path / "a"))).signal
    assert found is not None
    assert found.signal is not None
    assert found.signal == pytest.approx(math.sqrt(found.norm**2 - found.noise**2))
    other = Figures(read_run(FakeRun(norm=found.noise).write(tmp_path / "b"))).signal
    assert other is not None
    assert other.signal is None


def test_the_certificate_says_why_it_says_nothing(tmp_path: Path) -> None:
    vacuous = Figures(read_run(FakeRun(rounds=200).write(tmp_path / "a"))).certificate
    assert not vacuous.applies
    assert "says nothing" in vacuous.headline
    assert vacuous.command is not None
    assert "--client-bound 10" in vacuous.command
    for name, changes, words in (
        ("b", {"protocol": "cdp"}, "protocol = cdp"),
        ("c", {"more": 'validation = "none"'}, "one malicious client can set the sum to anything"),
        ("d", {"more": 'normalise = "realised"'}, "attackers change"),
    ):
        none = Figures(read_run(FakeRun(**changes).write(tmp_path / name))).certificate  # type: ignore[arg-type]
        assert "no robustness certificate" in none.headline
        assert words in none.reasons[0]


def test_the_certificate_where_it_means_something(tmp_path: Path) -> None:
    path = FakeRun(rounds=2).write(tmp_path / "a")
    text = (path / "config.toml").read_text().replace("noise_multiplier = 2.0", "noise_multiplier = 150.0")
    (path / "config.toml").write_text(text)
    found = Figures(read_run(path)).certificate
    assert found.applies
    assert "expected error" in found.headline
    assert "33.33" in found.headline  # the error of the last round, 1/3


@pytest.mark.parametrize("more", ['noise = "clients"', 'unit = "client"', 'noise = "clients"\nunit = "client"', ""])
def test_the_certificate_and_its_command_say_the_same(more: str, tmp_path: Path) -> None:
    path = FakeRun(rounds=2, more=more).write(tmp_path / "a")
    text = (path / "config.toml").read_text().replace("noise_multiplier = 2.0", "noise_multiplier = 150.0")
    (path / "config.toml").write_text(text)
    found = Figures(read_run(path)).certificate
    assert found.command is not None
    result = CliRunner().invoke(app, [*shlex.split(found.command)[1:], "--json"])
    assert f"at most {100 * json.loads(result.stdout)['rigorous']['upper']:.2f}" in found.headline


def test_time_and_bytes(tmp_path: Path) -> None:
    run = read_run(FakeRun().write(tmp_path / "a"))
    assert {stage.name: stage.usual for stage in Figures(run).stages} == {
        "protocol": 0.25,
        "gradients": 0.125,
        "ledger": 0.001,
    }
    assert Figures(run).usual_round == pytest.approx(0.376)
    kinds = Figures(run).traffic
    assert kinds[0].whole == 18 * kinds[0].each
    assert kinds[3].whole == 6 * kinds[3].each
    assert kinds[-1].each == 400  # plain: four bytes an entry
    assert Figures(read_run(FakeRun(protocol="cdp").write(tmp_path / "b"))).traffic == ()


def test_many_rounds_share_a_column(tmp_path: Path) -> None:
    taken = Figures(read_run(FakeRun(rounds=251).write(tmp_path / "a"))).participation
    assert taken is not None
    assert (taken.width, taken.took_part.shape) == (2, (3, 126))
    assert taken.span(125) == (251, 251)
    assert taken.took_part.sum(axis=1).tolist() == [251, 251, 251]
    assert taken.rejected.sum(axis=1).tolist() == [0, 0, 251]
    assert np.all(taken.took_part[:, :125] == 2)


def test_hidden_participants_are_nowhere(tmp_path: Path) -> None:
    run = replace(read_run(FakeRun().write(tmp_path / "a")), hidden=True)
    assert Figures(run).participation is None
    assert not Figures(run).rejections
