"""What hypothesis draws: field vectors with the entries that break arithmetic."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from precad.mpc.field import P

EDGES = [0, 1, 2, 3, P // 2, P // 2 + 1, P - 2, P - 1, 1 << 60, (1 << 32) - 1, 1 << 32, 1_518_500_250]

elements = st.one_of(st.sampled_from(EDGES), st.integers(0, P - 1))


def vectors(size: int) -> st.SearchStrategy[NDArray[np.uint64]]:
    return st.lists(elements, min_size=size, max_size=size).map(lambda xs: np.array(xs, np.uint64))


@st.composite
def equal_vectors(draw: st.DrawFn, count: int) -> list[NDArray[np.uint64]]:
    size = draw(st.sampled_from([0, 1, 2, 7, 8, 9, 63, 64, 65, 130]))
    return [draw(vectors(size)) for _ in range(count)]
