"""Parameters: the derived numbers, and every refusal."""

import math

import numpy as np
import pytest

from precad.protocol.params import Params
from tests.messages import says

GOOD = {"dim": 26_010, "clients": 100, "record_bound": 2.0, "client_bound": 30.0, "noise_multiplier": 1.0}


def test_the_derived_numbers() -> None:
    params = Params(**GOOD)  # type: ignore[arg-type]
    assert params.fractional_bits == 16
    assert params.noise_std == pytest.approx(131_072 * 1.00124, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 0}, ("dim", "[1, 2^32]", 0)),
        ({"dim": 1 << 33}, ("dim", "[1, 2^32]", 1 << 33)),
        ({"clients": 0}, ("clients", 1, 0)),
        ({"record_bound": -1.0}, ("record_bound", 0, -1.0)),
        ({"client_bound": math.nan}, ("client_bound", 0, "nan")),
        ({"noise_multiplier": 0.0}, ("noise_multiplier", 0, 0.0)),
        ({"noise_multiplier": 1e9}, ("[8, 2^40]",)),
        ({"noise_multiplier": 1e-9}, ("[8, 2^40]",)),
        ({"record_bound": 1e-9}, ("record_bound",)),
        ({"client_bound": 1e-9}, ("client_bound",)),
        ({"record_bound": 1e308}, ("record_bound",)),
        ({"dim": 10.5}, ("dim", 10.5)),
        ({"dim": True}, ("dim", True)),
        ({"clients": np.int64(1 << 43)}, ("clients",)),
        ({"record_bound": np.float32(2)}, ("record_bound",)),
        ({"client_bound": 1e8}, ("C", "field")),
        ({"clients": 1 << 40}, ("clients", "overflow")),
    ],
)
def test_impossible_parameters_are_named(change: dict[str, float], words: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        Params(**(GOOD | change))  # type: ignore[arg-type]
