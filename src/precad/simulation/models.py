"""The models of the examples and benchmarks. None keeps state across records, as §9 of the protocol demands."""

from typing import Literal

from torch import nn

Activation = Literal["relu", "tanh"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def mnist_cnn(activation: Activation = "relu") -> nn.Sequential:
    """The CNN of Opacus' MNIST example, on 1×28×28: 26,010 parameters, as in the paper."""
    act = _activation(activation)
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        act(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        act(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        act(),
        nn.Linear(32, 10),
    )


def cifar_cnn(activation: Activation = "relu") -> nn.Sequential:
    """The CNN of TensorFlow's CIFAR-10 tutorial, on 3×32×32: 122,570 parameters, as in the paper."""
    act = _activation(activation)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3),
        act(),
        nn.Flatten(),
        nn.Linear(1024, 64),
        act(),
        nn.Linear(64, 10),
    )


def digits_model() -> nn.Sequential:
    """For the 8×8 digits of scikit-learn: 2,410 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def _activation(name: str) -> type[nn.Module]:
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]
