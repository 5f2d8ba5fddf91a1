"""Flower's arrays as the protocol's vector."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from precad.flower.wire import Layout, vector_of
from tests.flower import grids
from tests.messages import says


def test_there_and_back() -> None:
    vector = np.linspace(-1, 1, grids.DIM)
    layout = Layout.of(grids.arrays(vector))
    assert layout.size == grids.DIM
    assert np.array_equal(vector_of(layout.record(vector, np.float64)), vector)
    assert np.array_equal(vector_of(layout.record(vector, np.float32)), vector.astype(np.float32))
    assert Layout.of(layout.record(vector, np.float64)) == layout


def test_the_order_is_the_record_s() -> None:
    one, two = Array(np.ones(2, np.float32)), Array(np.zeros(2, np.float32))
    assert list(vector_of(ArrayRecord({"b": one, "a": two}))) == [1, 1, 0, 0]
    assert Layout.of(ArrayRecord({"b": one, "a": two})) != Layout.of(ArrayRecord({"a": two, "b": one}))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"norm.running_mean": Array(np.ones(2, np.float32))}, "BatchNorm"),
        ({"norm.num_batches_tracked": Array(np.array(3))}, "BatchNorm"),
        ({"steps": Array(np.array([3]))}, "steps.*int64"),
        ({"half": Array(np.ones(2, np.float16))}, "half.*float16"),
        ({"lie": Array("float32", (3,), "numpy.ndarray", Array(np.ones(2, np.float32)).data)}, "another shape or type"),
        ({"lie": Array("float32", (2,), "numpy.ndarray", Array(np.array([1, 2])).data)}, "another shape or type"),
        ({}, "there are no arrays"),
    ],
)
def test_what_is_not_a_model_is_refused(arrays: dict[str, Array], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        vector_of(ArrayRecord(arrays))


def test_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=says("131 parameters", "(3,)")):
        Layout.of(grids.arrays(np.ones(grids.DIM))).record(np.ones(3), np.float64)
