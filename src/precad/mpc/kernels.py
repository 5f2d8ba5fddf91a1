"""How inner loops are compiled: cached machine code that holds no lock, and 64 × 64 → 128 bit products."""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

_I64, _I128 = ir.IntType(64), ir.IntType(128)
_PAIR = cast(Any, types).UniTuple(types.uint64, 2)


def kernel(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Compile ``function`` on its first call; later processes load the machine code from numba's cache.

    A kernel trusts its arguments: the public function that calls it checks them. It releases the
    interpreter lock, so the two servers of a simulation run on two cores.
    """
    return _compile(function)


def reassociating_kernel(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """A kernel in which float sums may be taken in any order, several at a time (and without BLAS threads)."""
    return _compile(function, fastmath={"reassoc"})


def _compile(function: Callable[_Args, _Result], **options: Any) -> Callable[_Args, _Result]:
    options |= {"nogil": True, "error_model": "numpy"}
    config = cast(Any, numba.config)
    before, config.CACHE_DIR = config.CACHE_DIR, _cache_dir(config.CACHE_DIR)
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written: compile at every start
        compiled = numba.njit(**options)(function)
    finally:
        config.CACHE_DIR = before
    return cast(Callable[_Args, _Result], compiled)


@cache
def _cache_dir(user_choice: str) -> str:
    """A folder named after the sources of all kernels.

    numba itself looks only at the file of the function it loads, and would run old machine code after a change
    to a kernel that was inlined from another file.
    """
    package = Path(__file__).parent.parent
    sources = [path.read_bytes() for path in sorted(package.rglob("*.py"))]
    name = hashlib.blake2b(b"".join(s for s in sources if b"kernel" in s), digest_size=8).hexdigest()
    bases = [Path(user_choice)] if user_choice else [package / "__pycache__", Path.home() / ".cache" / "precad"]
    for base in bases:
        folder = base / f"kernels-{name}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return user_choice


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
