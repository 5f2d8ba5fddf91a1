"""How inner loops are compiled: cached machine code that holds no lock, and 64 × 64 → 128 bit products."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

P = ParamSpec("P")
T = TypeVar("T")

_I64, _I128 = ir.IntType(64), ir.IntType(128)
_PAIR = cast(Any, types).UniTuple(types.uint64, 2)


def kernel(function: Callable[P, T]) -> Callable[P, T]:
    """Compile ``function`` on its first call; later processes load the machine code from numba's cache.

    A kernel trusts its arguments: the public function that calls it checks them. It releases the
    interpreter lock, so the two servers of a simulation run on two cores. Where no folder can be written
    for the cache (numba then refuses to cache), the code is compiled at every start instead.
    """
    return _compile(function)


def reassociating_kernel(function: Callable[P, T]) -> Callable[P, T]:
    """A kernel in which float sums may be taken in any order, several at a time."""
    return _compile(function, fastmath={"reassoc"})


def _compile(function: Callable[P, T], **options: Any) -> Callable[P, T]:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        compiled = numba.njit(**options)(function)
    return cast(Callable[P, T], compiled)


def _halves(context: Any, builder: Any, wide: Any) -> Any:
    high = builder.trunc(builder.lshr(wide, ir.Constant(_I128, 64)), _I64)
    return context.make_tuple(builder, _PAIR, [high, builder.trunc(wide, _I64)])


def _product(builder: Any, a: Any, b: Any) -> Any:
    return builder.mul(builder.zext(a, _I128), builder.zext(b, _I128))


def _mul_wide(_typing: Any, a: Any, b: Any) -> Any:  # noqa: ARG001 - numba reads the names
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _halves(context, builder, _product(builder, args[0], args[1]))

    return _PAIR(types.uint64, types.uint64), generate


def _mul_add_wide(_typing: Any, high: Any, low: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        upper = builder.shl(builder.zext(args[0], _I128), ir.Constant(_I128, 64))
        total = builder.or_(upper, builder.zext(args[1], _I128))
        return _halves(context, builder, builder.add(total, _product(builder, args[2], args[3])))

    return _PAIR(types.uint64, types.uint64, types.uint64, types.uint64), generate


Word = np.uint64

mul_wide: Callable[[Word, Word], tuple[Word, Word]] = cast(Any, intrinsic(_mul_wide))
"""In a kernel: (high, low) words of a·b."""

mul_add_wide: Callable[[Word, Word, Word, Word], tuple[Word, Word]] = cast(Any, intrinsic(_mul_add_wide))
"""In a kernel: (high, low) words of (high·2^64 + low) + a·b mod 2^128, for arguments high, low, a, b."""
