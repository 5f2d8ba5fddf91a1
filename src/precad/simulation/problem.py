"""What is learnt, and by whom: a model, a loss, the clients' records, and what malicious clients send."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from precad.data.records import Records, as_records
from precad.errors import UnusableError
from precad.mpc.prg import check_name
from precad.protocol.params import Round

Floats = NDArray[np.float64]
Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) → the mean loss of the batch."""


@dataclass(frozen=True, eq=False)
class AttackContext:
    """What a malicious client knows of its round: everything, as the strongest attacks need."""

    round: Round
    """Its number and the task's parameters, with the bound C."""
    client: str
    train: Callable[[], Floats]
    """Computes :attr:`update`, for those attacks that look at it."""
    theta: Floats
    """θ_t."""
    learning_rate: float
    """η."""
    normaliser: float
    """N: the model moves by η/N times the sum."""
    selected: int
    """How many clients are in the round, with the attackers."""
    attackers: int
    """How many of them are malicious."""
    honest_mean: Floats
    """Of the honest clients' updates in the round, before any noise of theirs (LDP, DDP); 0 if there are none."""
    honest_std: Floats
    rng: np.random.Generator
    """The client's own, new in each round."""

    @cached_property
    def update(self) -> Floats:
        """What the client would send if it were honest, before it clips to C."""
        return self.train()


Attack = Callable[[AttackContext], Floats]
"""What the malicious client sends."""


@dataclass(frozen=True)
class Problem:
    """What is learnt, and by whom."""

    model: nn.Module
    loss: Loss
    clients: Mapping[str, Records]
    test: Records | None
    attacks: Mapping[str, Attack]
    """What each malicious client sends."""
    backdoor: Records | None = None
    """Test records with the attackers' feature and label: the fewer the model takes for it, the better."""

    def __post_init__(self) -> None:
        if not self.clients:
            raise UnusableError("there are no clients: give at least one data set")
        for name in self.clients:
            check_name(name)
        if self.test is not None and len(self.test) == 0:
            raise UnusableError("the test set has no records")
        unknown = set(self.attacks) - set(self.clients)
        if unknown:
            raise UnusableError(f"{min(unknown)} is malicious but not among the clients")

    @classmethod
    def of_datasets(
        cls,
        model: nn.Module,
        loss: Loss,
        clients: Mapping[str, Any],
        test: Any = None,
        attacks: Mapping[str, Attack] = {},
    ) -> "Problem":
        """Make a problem of torch data sets.

        Args:
            model: Any module whose records do not mix.
            loss: ``loss(outputs, targets)`` is the mean loss of a batch.
            clients: A data set of (input, target) pairs for each client.
            test: What the model is evaluated on.
            attacks: What each malicious client sends.
        """
        records = {name: as_records(name, data) for name, data in clients.items()}
        return cls(model, loss, records, None if test is None else as_records("the test set", test), attacks)


def client_names(clients: int) -> list[str]:
    """client-01, client-02, …: as many digits as the last one needs."""
    width = max(2, len(str(clients)))
    return [f"client-{i + 1:0{width}}" for i in range(clients)]
