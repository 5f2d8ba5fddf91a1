"""How inner loops are compiled: cached machine code that holds no lock, and 64 × 64 → 128 bit products."""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from precad.elsewhere import elsewhere

with elsewhere():  # numba would read .numba_config.yaml of the working folder, which can name machine code to run
    import numba
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

_I64, _I128 = ir.IntType(64), ir.IntType(128)
_cgutils: Any = cgutils
cast(Any, numba.config)._config_fname = os.devnull  # read again whenever something is compiled
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


def _look_up_nibbles(_typing: Any, tables: Any, words: Any, start: Any, out: Any) -> Any:  # noqa: ARG001
    """Sixteen entries of a table are two vector registers: one instruction looks up a nibble of eight columns."""
    lanes = ir.VectorType(_I64, 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if "+avx512f" not in context.codegen().magic_tuple()[2]:
            return ir.IntType(1)(0)
        tables, words, out = (context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 1, 3))
        permute = builder.module.declare_intrinsic(
            "llvm.x86.avx512.vpermi2var.q.512", (), ir.FunctionType(lanes, [lanes] * 3)
        )

        def place(data: Any, index: Any) -> Any:
            return builder.bitcast(builder.gep(data, [index]), lanes.as_pointer())

        def load(data: Any, index: Any) -> Any:
            return builder.load(place(data, index), align=8)

        first, groups = builder.mul(args[2], _I64(2)), range(WEIGHTS // lanes.count)
        totals = [ir.Constant(lanes, None) for _ in groups]
        for half in range(2):
            every_second = ir.Constant(ir.VectorType(ir.IntType(32), 8), [2 * lane + half for lane in range(8)])
            nibbles = []
            for group in groups:
                pair = (load(words, builder.add(first, _I64(16 * group + 8 * k))) for k in range(2))
                nibbles.append(builder.shuffle_vector(*pair, every_second))
            for nibble in range(16):
                low, high = (load(tables, _I64(256 * half + 16 * nibble + 8 * k)) for k in range(2))
                for group in groups:
                    found = builder.call(permute, [low, nibbles[group], high])  # by the four lowest bits of each word
                    totals[group] = builder.add(totals[group], found)
                    nibbles[group] = builder.lshr(nibbles[group], ir.Constant(lanes, [4] * 8))
        low_bits, places = (ir.Constant(lanes, [value] * 8) for value in ((1 << 61) - 1, 61))
        for group, total in enumerate(totals):
            folded = builder.add(builder.and_(total, low_bits), builder.lshr(total, places))
            builder.store(folded, place(out, _I64(8 * group)), align=8)
        return ir.IntType(1)(1)

    return types.boolean(tables, words, types.int64, out), generate


def _add_products(_typing: Any, sums: Any, weights: Any, first: Any, x: Any, start: Any) -> Any:  # noqa: ARG001
    """Words are cut at 2^52: one instruction multiplies eight pairs of pieces and adds their low, or high, halves."""
    lanes = ir.VectorType(_I64, 8)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if "+avx512ifma" not in context.codegen().magic_tuple()[2]:
            return ir.IntType(1)(0)
        sums, weights, x = (context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 1, 3))
        low, high = (
            builder.module.declare_intrinsic(
                f"llvm.x86.avx512.vpmadd52{half}.uq.512", (), ir.FunctionType(lanes, [lanes] * 3)
            )
            for half in ("l", "h")
        )

        def place(data: Any, index: Any) -> Any:
            return builder.bitcast(builder.gep(data, [index]), lanes.as_pointer())

        places = [place(sums, _I64(8 * k)) for k in range(3)]
        totals = [builder.load(each, align=8) for each in places]
        cut = ir.Constant(lanes, [52] * 8)
        for group in range(0, WEIGHTS, lanes.count):
            pieces = []
            for data, begin in ((weights, args[2]), (x, args[4])):
                word = builder.load(place(data, builder.add(begin, _I64(group))), align=8)
                pieces.append((word, builder.lshr(word, cut)))
            for i, left in enumerate(pieces[0]):
                for j, right in enumerate(pieces[1]):
                    totals[i + j] = builder.call(low, [totals[i + j], left, right])
                    if i + j < len(totals) - 1:
                        totals[i + j + 1] = builder.call(high, [totals[i + j + 1], left, right])
        for where, total in zip(places, totals, strict=True):
            builder.store(total, where, align=8)
        return ir.IntType(1)(1)

    return types.boolean(sums, weights, types.int64, x, types.int64), generate


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

WEIGHTS = 32
"""How many weights :data:`look_up_nibbles` and :data:`add_products` take at once."""

SUMS = 24
"""How many sums :data:`add_products` adds to."""

CALLS = 32
"""How often :data:`add_products` may be called before the sums are folded."""

Word = np.uint64

mul_wide: Callable[[Word, Word], tuple[Word, Word]] = cast(Any, intrinsic(_mul_wide))
"""In a kernel: (high, low) words of a·b."""

mul_add_wide: Callable[[Word, Word, Word, Word], tuple[Word, Word]] = cast(Any, intrinsic(_mul_add_wide))
"""In a kernel: (high, low) words of (high·2^64 + low) + a·b mod 2^128, for arguments high, low, a, b."""

add_where: Callable[[NDArray[np.int32], NDArray[Word], NDArray[np.int64], int], None] = cast(Any, intrinsic(_add_where))
"""In a kernel: add x_i, for i = start..start + 7, to those of 128 sums whose bit is 1 in the words 2i and 2i + 1."""

look_up_nibbles: Callable[[NDArray[Word], NDArray[Word], int, NDArray[Word]], bool] = cast(
    Any, intrinsic(_look_up_nibbles)
)
"""In a kernel: fill ``out`` with the sums over 32 tables of 16 words, looked up by the nibbles of the words 2i and
2i + 1, for i = start..start + 31; each sum's three highest bits are added to the others, as 2^61 ≡ 1. False, and
nothing done, on a processor without AVX-512."""

add_products: Callable[[NDArray[Word], NDArray[Word], int, NDArray[Word], int], bool] = cast(
    Any, intrinsic(_add_products)
)
"""In a kernel: add the products of 32 words from ``weights[first]`` on with 32 from ``x[start]`` on to 24 sums: eight
for 2^0, eight for 2^52, eight for 2^104. A call adds less than 12·2^52 to each, if one factor is below 2^61. False,
and nothing done, on a processor without AVX-512 IFMA."""

select: Callable[[Any, _Result, _Result], _Result] = cast(Any, intrinsic(_select))
"""In a kernel: a if the condition holds, else b, of the same type, without a branch."""

sum_of_squares: Callable[[NDArray[np.floating], int, int], float] = cast(Any, intrinsic(_sum_of_squares))
"""In a kernel: Σ x_i² for i = start..stop − 1 of a contiguous vector, in float64, in an order that is the same for
float32 and float64 and on every machine; stop − start is a multiple of :data:`SQUARES`."""
