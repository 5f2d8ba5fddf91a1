"""Settings in which the robustness certificate means something, and which learn.

They have many clients, a small linear model, few rounds, and all clients in all of them.

With q = 1 the clean and the attacked run are K·√T/σ̃ standard deviations apart, exactly. The noise in the mean update is
σ̃·C/n, so with many clients σ̃ can be large. ``scripts/certified.py`` measures them; docs/privacy.md has the table.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CertifiedSetting:
    """Softmax regression without bias on the lowest frequencies of an image; unit client, q = p = 1, no momentum."""

    clients: int
    """n, all honest; the attackers come on top."""
    records_per_client: int
    frequencies: int
    """The model sees frequencies² − 1 numbers of an image."""
    rounds: int
    """T."""
    client_bound: float
    """C, the bound on a client's update, which is the sum of its records' gradients."""
    sigma: float
    """σ: each server's noise over C."""
    learning_rate: float
    """η: the model moves by η/n times the noisy sum, n the number of honest clients."""
    attackers: tuple[int, ...]
    """The K for which the table is made."""

    @property
    def noise(self) -> float:
        """σ̃, the noise of both servers over C."""
        return math.sqrt(2) * self.sigma

    @property
    def dim(self) -> int:
        """d, for ten classes."""
        return 10 * (self.frequencies**2 - 1)


CERTIFIED = CertifiedSetting(
    clients=10_000,
    records_per_client=6,
    frequencies=8,
    rounds=16,
    client_bound=1.0,
    sigma=150.0,
    learning_rate=12.0,
    attackers=(1, 2, 5, 10, 20, 40, 60, 80),
)
"""For MNIST: all 60,000 records."""

CERTIFIED_SMALL = CertifiedSetting(
    clients=1437,
    records_per_client=1,
    frequencies=6,
    rounds=10,
    client_bound=0.25,
    sigma=12.0,
    learning_rate=120.0,
    attackers=(1, 2, 5, 10),
)
"""For the 1,797 digits of scikit-learn: a client a record, a fifth of the records for the test."""
