"""Calibration: each unknown is found, and on the safe side."""

from dataclasses import replace

import pytest

from precad.privacy.accounting import Adversary, PldAccountant, record_mechanism
from precad.privacy.calibration import UNKNOWNS, Setting, solve
from tests.messages import says

KNOWN = Setting(
    adversary=Adversary.SERVER, epsilon=None, delta=1e-5, sigma=1.5, rounds=5000, client_rate=0.1, record_rate=0.05
)


@pytest.mark.parametrize("adversary", Adversary)
@pytest.mark.parametrize("unknown", UNKNOWNS)
def test_each_number_is_found_from_the_others(unknown: str, adversary: Adversary) -> None:
    """From a setting and its ε, the number that was left out comes back."""
    setting = replace(KNOWN, adversary=adversary)
    filled = {name: getattr(setting, name) for name in UNKNOWNS} | {"epsilon": solve(setting)}
    found = solve(Setting(adversary=adversary, **(filled | {unknown: None})))
    assert found == pytest.approx(filled[unknown], rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_found_sigma_keeps_the_promise(epsilon: float) -> None:
    sigma = solve(replace(KNOWN, sigma=None, epsilon=epsilon))
    mechanism = record_mechanism(Adversary.SERVER, sigma=sigma, record_rate=0.05, participations=500)
    assert PldAccountant().epsilon(mechanism, 1e-5) <= epsilon


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 1.0}, ("missing: none",)),
        ({"sigma": None}, ("missing: epsilon, sigma",)),
        ({"rounds": None, "epsilon": 0.001}, ("epsilon", 0.001)),
        ({"rounds": None, "epsilon": -1.0}, ("epsilon", "(0, 20]", -1.0)),
        ({"sigma": None, "epsilon": 1e9}, ("epsilon", "(0, 20]", 1e9)),
        ({"sigma": None, "epsilon": 1e-9}, ("sigma", 1e-9)),
        ({"record_rate": None, "epsilon": 1.0, "client_rate": 1.5}, ("client_rate", "(0, 1]", 1.5)),
    ],
)
def test_an_impossible_question_is_answered_in_words(
    changes: dict[str, float | None], words: tuple[object, ...]
) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        solve(replace(KNOWN, **changes))  # type: ignore[arg-type]
