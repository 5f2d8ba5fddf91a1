"""Directions are orthonormal, and along the moves."""

import numpy as np
import pytest

from precad.lab.canaries.axes import Axes, orthonormal
from precad.lab.canaries.records import Key


def keys(number: int) -> list[Key]:
    return [("client", place) for place in range(number)]


def rows(axes: Axes, dim: int) -> np.ndarray:
    """The directions themselves: how far each unit vector goes along them."""
    return np.array([list(axes.along(unit).values()) for unit in np.eye(dim)]).T


@pytest.mark.parametrize("drawn", [0, 1, 3, 5])
def test_they_are_orthonormal_and_along_the_moves(drawn: int) -> None:
    rng = np.random.default_rng(1)
    moves = {key: 3 * rng.standard_normal(20) for key in keys(5)[::-1][:drawn]}
    axes = Axes(keys(5), orthonormal(rng.standard_normal((5, 20))), moves)
    found = rows(axes, 20)
    assert found @ found.T == pytest.approx(np.eye(5), abs=1e-12)
    for first, move in list(moves.items())[:1]:
        assert axes.length(first, move) == pytest.approx(np.linalg.norm(move))
    assert all(axes.along(move)[key] > 0 for key, move in moves.items())


def test_a_move_along_another_one_keeps_another_direction() -> None:
    rng = np.random.default_rng(2)
    move = rng.standard_normal(20)
    a, _, c, *_ = keys(5)
    axes = Axes(keys(5), orthonormal(rng.standard_normal((5, 20))), {a: move, c: -2 * move})
    found = rows(axes, 20)
    assert found @ found.T == pytest.approx(np.eye(5), abs=1e-12)
    assert axes.along(move)[a] == pytest.approx(np.linalg.norm(move))
    assert axes.length(c, move) == axes.along(move)[c]
    assert axes.along(move)[c] == pytest.approx(0.0, abs=1e-9)
