"""The preset ``certified`` on MNIST or scikit-learn's digits: how well it learns, and what it certifies.

    python scripts/certified.py mnist.npz --runs 200
    python scripts/certified.py digits --runs 20

Runs the learning in floats, without the protocol, whose sum it equals up to rounding. Prints the accuracy of clean runs
and, for each number K of attackers on top of the honest clients, what ``certified_accuracy`` certifies.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from precad.privacy.certificate import Threat, certified_accuracy
from precad.settings import RunConfig, from_table
from precad.simulation.presets import preset

Floats = NDArray[np.float32]
RECORDS = {"mnist": 60_000, "digits": 1437}
"""Those that the clients hold, all together."""
ATTACKERS = {"mnist": (1, 2, 5, 10, 20, 40, 60, 80), "digits": (1, 2, 5, 10)}
"""The K for which the table is made."""


@dataclass(frozen=True)
class Task:
    """Records of all clients, in order, and a test set."""

    records: Floats
    labels: NDArray[np.int64]
    test_records: Floats
    test_labels: NDArray[np.int64]


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help='"digits", or the path of mnist.npz')
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--errors", help="a file for the errors, one a line, for precad certify --clean-errors")
    options = parser.parse_args()
    name = "digits" if options.data == "digits" else "mnist"
    setting = from_table(preset(name, "certified"))
    task = digits(setting) if name == "digits" else mnist(options.data, setting)
    errors = [train(task, setting, np.random.default_rng([options.seed, run])) for run in range(options.runs)]
    if options.errors:
        np.savetxt(options.errors, errors)
    print(f"clean accuracy: {1 - np.mean(errors):.4f} on average, {1 - max(errors):.4f} at worst, {len(errors)} runs")
    print("K, accuracy kept with probability at least, expected accuracy at least")
    for malicious in ATTACKERS[name]:
        found = certified_accuracy(threat(setting, malicious), errors, 0.99)
        print(f"{malicious:4d} {found.probability:.4f} {found.expected_accuracy:.4f}")


def noise(setting: RunConfig) -> float:
    """σ̃, the noise of both servers over C."""
    return setting.training.params(1, setting.task.clients).noise_over_bound  # the unit is the client: of any d


def threat(setting: RunConfig, malicious: int) -> Threat:
    """K attackers on top of the honest clients of this setting."""
    return Threat(malicious=malicious, rounds=setting.training.rounds, client_rate=1.0, noise=noise(setting))


def mnist(path: str, setting: RunConfig) -> Task:
    """MNIST from an archive of numpy, dealt to the clients by one fixed permutation."""
    with np.load(path) as data:
        arrays = [data[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    return _task(arrays[0] / 255, arrays[1], arrays[2] / 255, arrays[3], setting)


def digits(setting: RunConfig) -> Task:
    """The 1,797 digits that come with scikit-learn: a fifth is the test set."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    order = np.random.default_rng(1).permutation(len(images))
    images, labels = images[order], labels[order]
    cut = RECORDS["digits"]
    return _task(images[:cut], labels[:cut], images[cut:], labels[cut:], setting)


def features(images: NDArray[np.float64], size: int) -> Floats:
    """The lowest frequencies of an image but the constant one, high ones raised a little, of norm 1: all public."""
    waves = fft.dctn(images, axes=(1, 2), norm="ortho")[:, :size, :size]
    steps = np.arange(size)
    weights = (1 + steps[:, None] ** 2 + steps[None] ** 2) ** 0.25
    rows = (waves * weights).reshape(len(images), -1)[:, 1:]
    scaled: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def train(task: Task, setting: RunConfig, generator: np.random.Generator) -> float:
    """The test error of one clean run: softmax regression, every client in every round, updates clipped to C."""
    n, bound, width = setting.task.clients, setting.training.client_bound, task.records.shape[1]
    m = len(task.records) // n
    model = np.zeros((10, width), np.float32)
    truth = np.eye(10, dtype=np.float32)[task.labels]
    for _ in range(setting.training.rounds):
        residuals = (truth - _softmax(task.records @ model.T)).reshape(n, m, 10)
        updates = (residuals.transpose(0, 2, 1) @ task.records.reshape(n, m, width)).reshape(n, -1)
        norms = np.linalg.norm(updates, axis=1)
        total = np.minimum(1, bound / np.maximum(norms, 1e-12)).astype(np.float32) @ updates
        added = generator.standard_normal(total.shape) * noise(setting) * bound
        step = setting.training.learning_rate / n * (total + added)
        model += step.reshape(model.shape).astype(np.float32)
    return float(np.mean((task.test_records @ model.T).argmax(axis=1) != task.test_labels))


def _task(
    images: NDArray[np.float64],
    labels: NDArray[np.int64],
    test_images: NDArray[np.float64],
    test_labels: NDArray[np.int64],
    setting: RunConfig,
) -> Task:
    order = np.random.default_rng(0).permutation(len(images))[: RECORDS[setting.task.dataset]]
    size = setting.task.frequencies
    return Task(features(images, size)[order], labels[order], features(test_images, size), test_labels)


def _softmax(scores: Floats) -> Floats:
    powers: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    total: Floats = powers.sum(axis=1, keepdims=True)
    return powers / total


if __name__ == "__main__":
    main()
