"""The benchmark's apps; they are run in test_simulation."""

from pathlib import Path

import pytest

from precad.lab.bench import flower as bench
from tests.messages import says

APPS = {
    "plain": bench.plain,
    "simulated": bench.simulated,
    "deployed": lambda folder, clients: bench.deployed(folder, clients, Path("a.toml")),
    "secagg": bench.secagg,
}


@pytest.mark.parametrize("name", APPS)
def test_the_app_is_python_and_knows_precad_only_if_it_shall(tmp_path: Path, name: str) -> None:
    app = APPS[name](tmp_path / "app", 3)
    text = (app.folder / "bench_app.py").read_text()
    compile(text, "bench_app.py", "exec")
    assert ("precad" in text) == (name in ("simulated", "deployed"))
    assert "3" in app.complete


@pytest.mark.parametrize(("clients", "rounds"), [(1, 5), (3, 0)])
def test_too_few_are_refused(clients: int, rounds: int) -> None:
    with pytest.raises(ValueError, match=says("round", "clients", f"{rounds} of {clients}")):
        bench.run(10, clients, rounds)
