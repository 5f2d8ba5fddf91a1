"""The benchmark of training: its figures exist and fit together; how fast they are is not tested."""

import pytest

from precad.lab.bench import gradients, training


@pytest.mark.long
def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "MODELS", {"mnist": gradients.MODELS["mnist"]})
    row = training.run(repeats=3)["mnist"]
    assert row["ratio_none"] == pytest.approx(row["none_ms"] / row["ldp_ms"])
    assert row["ratio_proof"] == pytest.approx(row["proof_ms"] / row["ldp_ms"])
    assert set(row["stages_ms"]) == {"gradients", "sharing", "proof", "server_a", "server_b", "noise"}
    assert all(value > 0 for key, value in row.items() if key.endswith("_ms") and key != "stages_ms")
    assert row["opacus_ratio"] > 0
