"""Parameters: the derived numbers, and every refusal."""

import math

import numpy as np
import pytest

from precad.protocol.params import Params

GOOD = {"dim": 26_010, "clients": 100, "record_bound": 2.0, "client_bound": 30.0, "noise_multiplier": 1.0}


def test_the_derived_numbers() -> None:
    params = Params(**GOOD)  # type: ignore[arg-type]
    assert params.fractional_bits == 16
    assert params.noise_std == pytest.approx(131_072 * 1.00124, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 0}, r"dim must be a whole number in \[1, 2\^32\], got 0"),
        ({"dim": 1 << 33}, "dim"),
        ({"clients": 0}, "clients must be a whole number of at least 1, got 0"),
        ({"record_bound": -1.0}, "record_bound must be a finite number above 0, got -1.0"),
        ({"client_bound": math.nan}, "client_bound C must be a finite number above 0, got nan"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be a finite number above 0, got 0.0"),
        ({"noise_multiplier": 1e9}, r"outside \[8, 2\^40\]"),
        ({"noise_multiplier": 1e-9}, r"outside \[8, 2\^40\]"),
        ({"record_bound": 1e-9}, "record_bound must be in"),
        ({"client_bound": 1e-9}, "client_bound must be in"),
        ({"record_bound": 1e308}, "record_bound must be in"),
        ({"dim": 10.5}, "dim must be a whole number"),
        ({"dim": True}, "dim must be a whole number"),
        ({"clients": np.int64(1 << 43)}, "clients must be a whole number"),
        ({"record_bound": np.float32(2)}, "record_bound must be a finite number"),
        ({"client_bound": 1e8}, "does not fit the field"),
        ({"clients": 1 << 40}, "could overflow the field"),
    ],
)
def test_impossible_parameters_are_named(change: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Params(**(GOOD | change))  # type: ignore[arg-type]
