"""Vectors over the field F_p, p = 2^61 − 1 (PROTOCOL §3).

A field vector is a one-dimensional, C-contiguous ``uint64`` array whose every entry is below p. Results
equal Python's own integers mod p. Nothing is converted or copied behind the caller's back: an array of
another dtype, shape or layout is a ``ValueError``. ``out`` may be one of the inputs.

Entries below p are a precondition here, checked once, where data enters (:func:`is_canonical`).
"""

import operator
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from precad.mpc.kernels import kernel, mul_add_wide, mul_wide

if sys.byteorder != "little":
    raise ImportError("precad runs on little-endian machines only: shares are little-endian words")

P = (1 << 61) - 1
"""The field's prime."""

FieldVector = NDArray[np.uint64]
_Scalar = TypeVar("_Scalar", bound=np.generic)

_P, _0, _3, _58, _61 = (np.uint64(value) for value in (P, 0, 3, 58, 61))
_2_43, _2_52 = np.uint64(1 << 43), np.uint64(1 << 52)
_HALF = np.uint64(P // 2)
_BLOCK = 64  # (p − 1)² < 2^122, so 64 products fit in 128 bits


def add(x: FieldVector, y: FieldVector, out: FieldVector | None = None) -> FieldVector:
    """x + y."""
    return _fill(out, _add, x, y)


def accumulate(total: FieldVector, x: FieldVector) -> None:
    """Add x to ``total``, which is another vector: faster than ``add`` into one of its inputs."""
    x = _input(x, _input(total).size)
    if not total.flags.writeable or np.may_share_memory(total, x):
        raise ValueError("the total is read-only, or overlaps what is added to it")
    _accumulate(total, x)


def sub(x: FieldVector, y: FieldVector, out: FieldVector | None = None) -> FieldVector:
    """x − y."""
    return _fill(out, _sub, x, y)


def mul(x: FieldVector, y: FieldVector, out: FieldVector | None = None) -> FieldVector:
    """x_i·y_i, entry by entry."""
    return _fill(out, _mul, x, y)


def axpy(a: int, x: FieldVector, y: FieldVector, out: FieldVector | None = None) -> FieldVector:
    """a·x + y for an integer a of any size and sign."""
    return _fill(out, _axpy, x, y, np.uint64(operator.index(a) % P))


def dot(x: FieldVector, y: FieldVector) -> int:
    """Σ x_i·y_i mod p."""
    x = _input(x)
    return int(_dot(x, _input(y, x.size)))


def outer(x: FieldVector, y: FieldVector) -> FieldVector:
    """x_i·y_j, flat: the products with x_1 first."""
    x, y = _input(x), _input(y)
    out = np.empty(x.size * y.size, np.uint64)
    _outer(x, y, out)
    return out


def dot_rows(rows: NDArray[np.uint64], x: FieldVector) -> FieldVector:
    """The product of each row of a matrix with x."""
    x = _input(x)
    out = np.empty(rows.shape[0], np.uint64)
    _dot_rows(_input(rows.ravel(), out.size * x.size), x, out)
    return out


def total(vectors: Iterable[FieldVector], size: int) -> FieldVector:
    """The sum of any number of vectors of ``size`` entries, taken one at a time; zeros if there are none."""
    result = np.zeros(size, np.uint64)
    for vector in vectors:
        accumulate(result, vector)
    return result


def embed(integers: NDArray[np.int64], out: FieldVector | None = None) -> FieldVector:
    """Signed integers, mod p."""
    values = _vector(integers, np.int64)
    out = _output(values, out)
    _embed(values, out)
    return out


def lift(x: FieldVector) -> NDArray[np.int64]:
    """The centred lift: the representative of each entry in [−(p−1)/2, (p−1)/2]."""
    values = _input(x)
    out = np.empty(values.size, np.int64)
    _lift(values, out)
    return out


def is_canonical(x: FieldVector) -> bool:
    """Whether every entry is below p.

    An entry v + k·p would pass arithmetic checks mod p and still decode to a huge number, so every vector
    from outside is checked by this before anything else is done with it (PROTOCOL §3).
    """
    return bool(_is_canonical(_input(x)))


@kernel
def reduce_once(s: np.uint64) -> np.uint64:
    """In a kernel: s mod p for s < 2p."""
    return min(s, s - _P)  # s − p wraps to a huge word when s < p


@kernel
def multiply(a: np.uint64, b: np.uint64) -> np.uint64:
    """In a kernel: a·b mod p for a, b < p. As 2^61 ≡ 1, the two 61-bit halves of the product are added."""
    high, low = mul_wide(a, b)
    return reduce_once((low & _P) + ((high << _3) | (low >> _61)))


@kernel
def fold(high: np.uint64, low: np.uint64) -> np.uint64:
    """In a kernel: any 128-bit number mod p."""
    s = (low & _P) + (((high << _3) | (low >> _61)) & _P) + (high >> _58)
    return reduce_once((s & _P) + (s >> _61))


@kernel
def fold_products(sums: NDArray[np.uint64]) -> np.uint64:
    """In a kernel: what ``add_products`` has added to the sums in up to 32 calls, mod p. The sums are 0 again.

    Eight sums of 32 calls add up to less than 8·32·12·2^52 < 2^64, and 2^104 ≡ 2^43.
    """
    ones, middle, high = _0, _0, _0
    for lane in range(8):
        ones, middle, high = ones + sums[lane], middle + sums[8 + lane], high + sums[16 + lane]
    sums[:] = _0
    result = reduce_once(fold(_0, ones) + fold(*mul_wide(middle, _2_52)))
    return reduce_once(result + fold(*mul_wide(high, _2_43)))


@kernel
def _add(x: FieldVector, y: FieldVector, out: FieldVector) -> None:
    for i in range(x.size):
        out[i] = reduce_once(x[i] + y[i])


@kernel
def _accumulate(total: FieldVector, x: FieldVector) -> None:
    for i in range(x.size):
        total[i] = reduce_once(total[i] + x[i])


@kernel
def _sub(x: FieldVector, y: FieldVector, out: FieldVector) -> None:
    for i in range(x.size):
        difference = x[i] - y[i]  # wraps to a huge word when x_i < y_i
        out[i] = min(difference, difference + _P)


@kernel
def _mul(x: FieldVector, y: FieldVector, out: FieldVector) -> None:
    for i in range(x.size):
        out[i] = multiply(x[i], y[i])


@kernel
def _axpy(a: np.uint64, x: FieldVector, y: FieldVector, out: FieldVector) -> None:
    for i in range(x.size):
        out[i] = reduce_once(multiply(a, x[i]) + y[i])


@kernel
def _dot(x: FieldVector, y: FieldVector) -> np.uint64:
    result = _0
    for start in range(0, x.size, _BLOCK):
        high, low = _0, _0
        for i in range(start, min(start + _BLOCK, x.size)):
            high, low = mul_add_wide(high, low, x[i], y[i])
        result = reduce_once(result + fold(high, low))
    return result


@kernel
def _dot_rows(rows: FieldVector, x: FieldVector, out: FieldVector) -> None:
    for i in range(out.size):
        out[i] = _dot(rows[i * x.size : (i + 1) * x.size], x)


@kernel
def _outer(x: FieldVector, y: FieldVector, out: FieldVector) -> None:
    for i in range(x.size):
        for j in range(y.size):
            out[i * y.size + j] = multiply(x[i], y[j])


@kernel
def _embed(integers: NDArray[np.int64], out: FieldVector) -> None:
    for i in range(integers.size):
        folded = (integers[i] & P) + (integers[i] >> 61)  # as 2^61 ≡ 1; in [−4, p + 3]
        out[i] = reduce_once(np.uint64(folded + (P if folded < 0 else 0)))


@kernel
def _lift(x: FieldVector, out: NDArray[np.int64]) -> None:
    for i in range(x.size):
        out[i] = np.int64(x[i]) - (P if x[i] > _HALF else 0)


@kernel
def _is_canonical(x: FieldVector) -> bool:
    largest = _0
    for i in range(x.size):
        largest = max(largest, x[i])
    return bool(largest < _P)


def _fill(
    out: FieldVector | None, loop: Callable[..., None], x: FieldVector, y: FieldVector, *scalars: np.uint64
) -> FieldVector:
    """Let ``loop`` fill ``out``, or a new vector if none is given, from two vectors of one length."""
    x = _input(x)
    y = _input(y, x.size)
    out = _output(y, _output(x, out))
    loop(*scalars, x, y, out)
    return out


def _input(x: FieldVector, size: int | None = None) -> FieldVector:
    return _vector(x, np.uint64, size)


def _output(x: NDArray[np.generic], out: FieldVector | None) -> FieldVector:
    if out is None:
        return np.empty(x.size, np.uint64)
    _input(out, x.size)
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    if np.may_share_memory(x, out) and x.ctypes.data != out.ctypes.data:
        raise ValueError("out overlaps an input without being it")
    return out


def _vector(x: NDArray[_Scalar], dtype: type[_Scalar], size: int | None = None) -> NDArray[_Scalar]:
    """A read-only view, so that each kernel is compiled once, for writable and read-only data alike."""
    if not isinstance(x, np.ndarray) or x.dtype != dtype or x.ndim != 1 or not x.flags.c_contiguous:
        raise ValueError(f"expected a contiguous {dtype.__name__} vector, got {_describe(x)}")
    if size is not None and x.size != size:
        raise ValueError(f"vectors must have equal lengths, got {size} and {x.size}")
    view = x.view()
    view.setflags(write=False)  # faster than through flags
    return view


def _describe(x: object) -> str:
    if not isinstance(x, np.ndarray):
        return type(x).__name__
    layout = "" if x.flags.c_contiguous else " not contiguous"
    return f"{x.dtype} of shape {x.shape}{layout}"
