"""What every defence checks of its arguments."""

import numpy as np
from numpy.typing import NDArray


def check_updates(updates: NDArray[np.float64]) -> None:
    """One row a client, at least one."""
    if updates.ndim != 2 or len(updates) == 0:
        raise ValueError(f"updates must be a matrix with a row for each client, got shape {updates.shape}")


def check_malicious(malicious: int, clients: int, most: int) -> None:
    """As many malicious clients as the rule withstands."""
    if not 0 <= malicious <= most:
        raise ValueError(f"malicious must be in [0, {most}], for {clients} clients, got {malicious}")


def check_positive(name: str, value: float) -> None:
    """A number that makes sense only above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value}")
