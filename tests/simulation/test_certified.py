"""The shipped settings learn, and their certificates mean something."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from precad.privacy.certificate import certified_accuracy
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary
from precad.settings import RunConfig, from_table
from precad.simulation.presets import preset

CERTIFIED, CERTIFIED_SMALL = (from_table(preset(name, "certified")) for name in ("mnist", "digits"))


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parent.parent.parent / "scripts" / "certified.py"
    spec = importlib.util.spec_from_file_location("certified_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:.*joblib will operate in serial mode")
def test_the_small_setting_learns_and_certifies(example: ModuleType) -> None:
    """Five attackers on top of 1,437 clients of one digit each."""
    pytest.importorskip("sklearn")
    task = example.digits(CERTIFIED_SMALL)
    errors = [example.train(task, CERTIFIED_SMALL, np.random.default_rng(run)) for run in range(60)]
    assert np.mean(errors) < 0.13
    found = certified_accuracy(example.threat(CERTIFIED_SMALL, 5), errors, 0.99)
    apart = 5 * math.sqrt(CERTIFIED_SMALL.training.rounds) / example.noise(CERTIFIED_SMALL)
    exact = stats.norm.cdf(stats.norm.ppf(1 - 0.01 ** (1 / 60)) + apart)
    assert 1 - exact - 5e-3 <= found.probability <= 1 - exact + 1e-9
    assert found.expected_accuracy > 0.58


def dim(setting: RunConfig) -> int:
    """d, for ten classes."""
    return 10 * (setting.task.frequencies**2 - 1)


@pytest.mark.parametrize("setting", [CERTIFIED, CERTIFIED_SMALL], ids=lambda setting: setting.task.dataset)
def test_it_is_private_for_whole_clients_too(setting: RunConfig) -> None:
    terms = setting.training.terms(dim(setting))
    assert (terms.sigma, terms.record_rate) == (setting.training.noise_multiplier, 1.0)
    assert epsilon(terms, Adversary.SERVER, setting.training.rounds) < 1


def test_the_numbers_of_the_documentation(example: ModuleType) -> None:
    assert dim(CERTIFIED) == 630
    assert example.noise(CERTIFIED) == pytest.approx(212.132, abs=1e-3)
    assert example.RECORDS["mnist"] == 6 * CERTIFIED.task.clients
    assert example.RECORDS["digits"] == CERTIFIED_SMALL.task.clients
    assert example.noise(CERTIFIED_SMALL) == pytest.approx(12 * math.sqrt(2))
