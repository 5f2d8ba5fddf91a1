"""Server B under a small load: the figures exist and fit together, and a loss is an error."""

import json

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.errors import PrecadError
from precad.lab.bench import server
from tests.messages import says


@pytest.mark.long
def test_a_short_form() -> None:
    sizes = ("--submissions", "4", "--dim", "500", "--soak-rounds", "4", "--soak-submissions", "2", "--soak-dim", "40")
    result = CliRunner().invoke(app, ["bench", "server", *sizes, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert (rows["load"]["submissions"], rows["load"]["verdicts"]) == (4, 4)
    soak = rows["soak"]
    assert (soak["rounds"], soak["clients"], soak["dim"], soak["submissions"], soak["verdicts"]) == (4, 2, 40, 8, 8)
    assert soak["audit"] == "both servers agree on all 4 opened rounds"
    assert 0 < soak["server_b_s"] < soak["round_s"]
    assert 0 < soak["mib_start"] <= soak["mib_peak"]
    assert soak["mib_end"] <= soak["mib_peak"]


def test_a_verdict_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server._Driven, "_hear", lambda _self, _client: None)
    with pytest.raises(PrecadError, match=says("verdict", "1 rounds")):
        server.measure(1, 2, 20)


@pytest.mark.parametrize(("name", "sizes"), [("rounds", (0, 1, 1)), ("clients", (1, 0, 1)), ("dim", (1, 1, 0))])
def test_sizes_are_checked(name: str, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=says(name, "at least 1", 0)):
        server.measure(*sizes)
