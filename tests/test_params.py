"""Parameters: the derived numbers, and every refusal."""

import math

import pytest

from precad.params import Params

GOOD = {"dim": 26_010, "clients": 100, "record_bound": 2.0, "client_bound": 30.0, "noise_multiplier": 1.0}


def test_the_derived_numbers() -> None:
    params = Params(**GOOD)  # type: ignore[arg-type]
    assert params.fractional_bits == 16
    assert params.noise_std == pytest.approx(131_072 * 1.00124, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 0}, r"dim must be in \[1, 2\^32\], got 0"),
        ({"dim": 1 << 33}, "dim"),
        ({"clients": 0}, "clients must be at least 1, got 0"),
        ({"record_bound": -1.0}, "record_bound must be a finite number above 0, got -1.0"),
        ({"client_bound": math.nan}, "client_bound must be a finite number above 0, got nan"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be a finite number above 0, got 0.0"),
        ({"noise_multiplier": 1e9}, r"outside \[0.5, 2\^40\]"),
        ({"noise_multiplier": 1e-9}, r"outside \[0.5, 2\^40\]"),
        ({"client_bound": 1e8}, "does not fit the field"),
        ({"clients": 1 << 40}, "could overflow the field"),
    ],
)
def test_impossible_parameters_are_named(change: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Params(**(GOOD | change))  # type: ignore[arg-type]
