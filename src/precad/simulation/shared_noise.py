"""What ``ddp`` costs: its rounds have as much noise as their honest clients brought, which is not always τ shares."""

import numpy as np
from numpy.typing import NDArray

from precad.privacy.epsilon import total
from precad.privacy.terms import Adversary, Spent
from precad.settings import Hyperparameters


class SharedNoise:
    """Of every honest client: how many of its rounds had one honest noise in their sum, two, and so on up to τ.

    Each honest client adds 1/√τ of the noise; malicious ones add none. The paper supposes that τ clients do not
    collude with whoever looks, so more than τ noises count as τ (paper, Table 1).
    """

    def __init__(self, hyperparameters: Hyperparameters, dim: int, honest: NDArray[np.bool_]) -> None:
        """``honest`` says of each client of the run whether it is."""
        self._honest, tau = honest, hyperparameters.tau(len(honest))
        self._terms = [hyperparameters.shared_terms(dim, len(honest), noises) for noises in range(tau + 1)]
        self._rounds = np.zeros((len(honest), tau + 1), np.int64)

    def count(self, selected: NDArray[np.int64]) -> None:
        """A round with these clients."""
        honest = selected[self._honest[selected]]
        self._rounds[honest, min(len(honest), len(self._terms) - 1)] += 1

    def epsilon(self) -> float:
        """What the run has cost any honest client at most; the same against a server and against clients.

        For every k, no client had more rounds of at most k noises than are counted here.
        """
        most = np.diff(self._rounds.cumsum(axis=1).max(axis=0), prepend=0).tolist()
        spent = [Spent(terms, rounds) for terms, rounds in zip(self._terms, most, strict=True)]
        return total(spent, Adversary.SERVER, self._terms[0].delta)
