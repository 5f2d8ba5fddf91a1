"""Half a minute of random kills, losses, delays and repetitions; ``tests.deployment.chaos`` plays for longer."""

from pathlib import Path

import pytest

from tests.deployment import chaos


@pytest.mark.long
def test_nothing_is_lost_or_counted_twice(tmp_path: Path) -> None:
    counts = chaos.run(tmp_path, 30, seed=3)
    assert counts["opened"] >= 2
    assert counts["submissions opened"] >= 1
    assert sum(count for what, count in counts.items() if what.startswith("kills")) >= 1
