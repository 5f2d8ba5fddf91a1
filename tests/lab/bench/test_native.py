"""The benchmark of native clients, in its shortest form."""

import pytest

from precad.lab.bench import native


@pytest.mark.long
def test_the_median_of_a_round() -> None:
    found = native.run(dim=100, rounds=2)
    assert found["clients"] == native.CLIENTS
    assert 0 < found["round_s"] < 60
