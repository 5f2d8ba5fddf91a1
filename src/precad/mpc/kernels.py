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
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

_I64, _I128 = ir.IntType(64), ir.IntType(128)
_cgutils: Any = cgutils
_PAIR = cast(Any, types).UniTuple(types.uint64, 2)


def kernel(function: Callable[_Args, _Result], **options: Any) -> Callable[_Args, _Result]:
    """Compile ``function`` on its first call; later processes load the machine code from numba's cache.

    A kernel trusts its arguments: the public function that calls it checks them. It releases the
    interpreter lock, so the two servers of a simulation run on two cores.
    """
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


def reassociating_kernel(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """A kernel in which float sums may be taken in any order, several at a time (and without BLAS threads)."""
    return kernel(function, fastmath={"reassoc"})


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


def _add_where(_typing: Any, sums: Any, words: Any, x: Any, start: Any) -> Any:  # noqa: ARG001
    lanes = ir.VectorType(ir.IntType(32), 16)
    bits, zero = ir.VectorType(ir.IntType(1), lanes.count), ir.Constant(lanes, None)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, words, x = (
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip(signature.args[:3], args[:3], strict=True)
        )
        masks = builder.bitcast(words, ir.IntType(lanes.count).as_pointer())
        groups = [builder.bitcast(builder.gep(sums, [_I64(16 * group)]), lanes.as_pointer()) for group in range(8)]
        totals = [builder.load(group, align=4) for group in groups]
        for column in range(COLUMNS):
            i = builder.add(args[3], _I64(column))
            entry = builder.trunc(builder.load(builder.gep(x, [i])), lanes.element)
            entry = builder.insert_element(zero, entry, ir.IntType(32)(0))
            entry = builder.shuffle_vector(entry, zero, zero)  # in all lanes
            for group in range(8):
                mask = builder.load(builder.gep(masks, [builder.add(builder.mul(i, _I64(8)), _I64(group))]))
                added = builder.select(builder.bitcast(mask, bits), entry, zero)
                totals[group] = builder.add(totals[group], added)
        for group, total in zip(groups, totals, strict=True):
            builder.store(total, group, align=4)
        return context.get_dummy_value()

    return types.void(sums, words, x, types.int64), generate


def _select(_typing: Any, condition: Any, a: Any, b: Any) -> Any:  # noqa: ARG001
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(*args)

    return a(types.boolean, a, a), generate


def _sum_of_squares(_typing: Any, x: Any, start: Any, stop: Any) -> Any:  # noqa: ARG001
    """Each lane of each vector of sums adds every 32nd square; in the end they are added up in pairs."""
    lanes = ir.VectorType(ir.DoubleType(), 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        entries = ir.VectorType(data.type.pointee, lanes.count)
        zero = ir.Constant(lanes, None)
        sums = [_cgutils.alloca_once_value(builder, zero) for _ in range(SQUARES // lanes.count)]
        with _cgutils.for_range_slice(builder, args[1], args[2], _I64(SQUARES), intp=_I64) as (i, _):
            for k, total in enumerate(sums):
                place = builder.gep(data, [builder.add(i, _I64(k * lanes.count))])
                values = builder.load(builder.bitcast(place, entries.as_pointer()), align=4)
                if entries != lanes:
                    values = builder.fpext(values, lanes)
                builder.store(builder.fadd(builder.load(total), builder.fmul(values, values)), total)
        vector = _added_in_pairs(builder, [builder.load(total) for total in sums])
        return _added_in_pairs(builder, [builder.extract_element(vector, _I64(k)) for k in range(lanes.count)])

    return types.float64(x, types.int64, types.int64), generate


def _added_in_pairs(builder: Any, terms: list[Any]) -> Any:
    while len(terms) > 1:
        terms = [builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


SQUARES = 32
"""How many squares :data:`sum_of_squares` adds at once."""

COLUMNS = 8
"""How many columns :data:`add_where` adds at once."""

Word = np.uint64

mul_wide: Callable[[Word, Word], tuple[Word, Word]] = cast(Any, intrinsic(_mul_wide))
"""In a kernel: (high, low) words of a·b."""

mul_add_wide: Callable[[Word, Word, Word, Word], tuple[Word, Word]] = cast(Any, intrinsic(_mul_add_wide))
"""In a kernel: (high, low) words of (high·2^64 + low) + a·b mod 2^128, for arguments high, low, a, b."""

add_where: Callable[[NDArray[np.int32], NDArray[Word], NDArray[np.int64], int], None] = cast(Any, intrinsic(_add_where))
"""In a kernel: add x_i, for i = start..start + 7, to those of 128 sums whose bit is 1 in the words 2i and 2i + 1."""

select: Callable[[Any, _Result, _Result], _Result] = cast(Any, intrinsic(_select))
"""In a kernel: a if the condition holds, else b, of the same type, without a branch."""

sum_of_squares: Callable[[NDArray[np.floating], int, int], float] = cast(Any, intrinsic(_sum_of_squares))
"""In a kernel: Σ x_i² for i = start..stop − 1 of a contiguous vector, in float64, in an order that is the same for
float32 and float64 and on every machine; stop − start is a multiple of :data:`SQUARES`."""
