"""Orthonormal directions, one for each canary: noise of the claimed law is independent along them, whatever they are.

So the canaries of one round are independent trials. A canary that was drawn has the direction in which it moves its
client's update; one that was not, any.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from precad.lab.canaries.records import Key

Floats = NDArray[np.float64]

_JITTER, _LEAST_ANGLE = 1e-12, 1e-3


class Axes:
    """The directions of one round."""

    def __init__(self, keys: Sequence[Key], basis: Floats, moves: Mapping[Key, Floats]) -> None:
        """Turn a basis towards the moves.

        Args:
            keys: All canaries.
            basis: (canaries, dim), orthonormal: the directions, were nothing drawn.
            moves: How each canary that was drawn moves its client's update. One whose move lies along those of others
                keeps about the direction that it had.
        """
        self.keys, self.clients = tuple(keys), dict.fromkeys(client for client, _ in keys)
        self._drawn, self._rows = _apart(moves, basis.shape[1])
        self._rest = [i for i, key in enumerate(keys) if key not in self._drawn]
        self._basis, self._overlap = basis, basis[self._rest] @ self._rows.T
        self._corner = np.linalg.cholesky(np.eye(len(self._rest)) - self._overlap @ self._overlap.T)

    def along(self, vector: Floats) -> dict[Key, float]:
        """How far a vector goes in each direction."""
        drawn = self._rows @ vector
        rest = (self._basis @ vector)[self._rest] - self._overlap @ drawn
        found = dict(zip(self._drawn, drawn.tolist(), strict=True))
        turned = linalg.solve_triangular(self._corner, rest, lower=True) if self._rest else rest
        found |= zip((self.keys[i] for i in self._rest), turned.tolist(), strict=True)
        return {key: found[key] for key in self.keys}

    def length(self, key: Key, vector: Floats) -> float:
        """The same in the direction of one canary."""
        if key in self._drawn:
            return float(self._rows[self._drawn.index(key)] @ vector)
        return self.along(vector)[key]


def orthonormal(rows: Floats) -> Floats:
    """Rows of the same spans, each with those before it."""
    for _ in range(2):  # the second time for the last digits
        rows = linalg.solve_triangular(np.linalg.cholesky(rows @ rows.T), rows, lower=True)
    return rows


def _apart(moves: Mapping[Key, Floats], dim: int) -> tuple[list[Key], Floats]:
    """Those moves that do not lie along others, orthonormal."""
    kept = list(moves)
    if not kept:
        return kept, np.zeros((0, dim))
    rows = np.stack(list(moves.values()))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    left = np.diag(np.linalg.cholesky(rows @ rows.T + _JITTER * np.eye(len(rows))))
    apart = left > _LEAST_ANGLE
    return [key for key, keeps in zip(kept, apart, strict=True) if keeps], orthonormal(rows[apart])
