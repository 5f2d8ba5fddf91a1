"""The benchmark's app, and a short run of it."""

from pathlib import Path

import pytest

from precad.flower import bench


@pytest.mark.parametrize("kind", ["simulation", "deployment"])
@pytest.mark.parametrize("mode", ["plain", "precad"])
def test_the_app_is_python_and_knows_precad_only_if_it_shall(tmp_path: Path, kind: str, mode: str) -> None:
    app = bench._write_app(tmp_path / "app", mode, kind, "ServerA.deployed(Path('a.toml'))", 3)
    text = (app / "bench_app.py").read_text()
    compile(text, "bench_app.py", "exec")
    assert ("precad" in text.replace("PRECAD", "")) == (mode == "precad")


@pytest.mark.heavy
def test_a_round_is_timed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert bench._seconds(tmp_path / "run", "simulation", "precad", ("one", "two"), 100, 1) > 0
