"""Shares: they add up, and one alone says nothing."""

import numpy as np
import pytest
from hypothesis import given

from precad.mpc import field, sharing
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Context, Digest
from precad.mpc.secret import Secret
from tests.stat_tests import ALPHA, uniform_field_p_value
from tests.strategies import vectors

CONTEXT = Context(Digest(bytes(32)), 3, "c")


@given(vectors(33))
def test_shares_add_up(x: FieldVector) -> None:
    seed = Secret.fresh()
    a, b = sharing.share_a(x, seed, CONTEXT), sharing.share_b(seed, CONTEXT, x.size)
    assert field.is_canonical(a)
    assert np.array_equal(sharing.reconstruct(a, b), x)


def test_shares_of_sums_are_sums_of_shares() -> None:
    xs = [np.arange(k, k + 50, dtype=np.uint64) for k in range(5)]
    seeds = [Secret.fresh() for _ in xs]
    a = field.total((sharing.share_a(x, s, CONTEXT) for x, s in zip(xs, seeds, strict=True)), 50)
    b = field.total((sharing.share_b(s, CONTEXT, 50) for s in seeds), 50)
    assert np.array_equal(sharing.reconstruct(a, b), field.total(xs, 50))


@pytest.mark.parametrize("size", [1, sharing.BLOCK - 1, sharing.BLOCK, sharing.BLOCK + 1, 2 * sharing.BLOCK + 3])
def test_a_share_in_blocks_is_the_share(size: int) -> None:
    seed = Secret.fresh()
    blocks = [block.copy() for block in sharing.blocks_b(seed, CONTEXT, size)]
    assert np.array_equal(np.concatenate(blocks), sharing.share_b(seed, CONTEXT, size))


def test_the_input_is_left_alone() -> None:
    x = np.arange(10, dtype=np.uint64)
    sharing.share_a(x, Secret.fresh(), CONTEXT)
    assert np.array_equal(x, np.arange(10))


SIZE = 1 << 18
SPARSE = np.zeros(SIZE, np.uint64)
LARGE = np.full(SIZE, P - 1, np.uint64)
RAMP = np.arange(SIZE, dtype=np.uint64)


@pytest.mark.parametrize(("x", "y"), [(SPARSE, SPARSE), (SPARSE, LARGE), (RAMP, SPARSE)])
def test_shares_of_equal_and_different_vectors_are_indistinguishable(x: FieldVector, y: FieldVector) -> None:
    """Both of A's shares, both of B's, and A's difference are uniform. False alarm: 5·ALPHA per case."""
    s, t = Secret.fresh(), Secret.fresh()
    a_x, a_y = sharing.share_a(x, s, CONTEXT), sharing.share_a(y, t, CONTEXT)
    seen = [
        a_x,
        a_y,
        sharing.share_b(s, CONTEXT, SIZE),
        sharing.share_b(t, CONTEXT, SIZE),
        field.sub(a_x, a_y),
    ]
    for share in seen:
        assert uniform_field_p_value(share) > ALPHA


def test_the_test_sees_a_mask_used_twice() -> None:
    """Power: with one seed for two vectors the difference of A's shares is the difference of the vectors."""
    seed = Secret.fresh()
    difference = field.sub(sharing.share_a(RAMP, seed, CONTEXT), sharing.share_a(SPARSE, seed, CONTEXT))
    assert uniform_field_p_value(difference) < ALPHA
