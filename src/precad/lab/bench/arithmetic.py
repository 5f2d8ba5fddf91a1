"""The lowest layer against numpy and the raw cipher, at the sizes of the paper's models and at a million."""

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from precad.lab.bench import medians
from precad.mpc import field, sharing
from precad.mpc.prg import Context, Purpose, Stream, digest
from precad.mpc.secret import Secret
from precad.privacy.noise import integer_gaussian

SIZES = (26_010, 122_570, 1_000_000)

TARGETS = {
    "dot": ("numpy_wrapping_dot", 3.0),
    "axpy": ("numpy_float_axpy", 4.0),
    "prg": ("aes_ctr", 2.0),
    "share": ("prg", 3.0),
    "noise": ("numpy_normal", 8.0),
}
"""Case → (what it is compared with, the largest ratio we accept)."""


def run(repeats: int = 31) -> list[dict[str, Any]]:
    """One row per size: milliseconds of every case, the ratios, and which are above their targets."""
    return [_row(size, repeats) for size in SIZES]


def _row(size: int, repeats: int) -> dict[str, Any]:
    context = Context(digest(b"precad bench"), 0, "bench")
    stream = Stream(Secret.fresh(), Purpose.NOISE, context)
    seed = Secret.fresh()
    generator = np.random.default_rng(0)
    x, y = stream.field(size), stream.field(size)
    u, v = generator.standard_normal(size), generator.standard_normal(size)
    zeros, scalar = bytes(8 * size), int(x[0])
    cases = {
        "dot": lambda: field.dot(x, y),
        "numpy_wrapping_dot": lambda: (x * y).sum(),
        "axpy": lambda: field.axpy(scalar, x, y),
        "numpy_float_axpy": lambda: 1.5 * u + v,
        "prg": lambda: stream.field(size),
        "aes_ctr": lambda: Cipher(algorithms.AES(seed.value[:16]), modes.CTR(bytes(16))).encryptor().update(zeros),
        "share": lambda: sharing.share_a(x, seed, context),
        "noise": lambda: integer_gaussian(131_072.0, size, stream),
        "numpy_normal": lambda: generator.standard_normal(size),
    }
    ms = medians(cases, repeats)
    ratios = {name: ms[name] / ms[base] for name, (base, _) in TARGETS.items()}
    return {
        "size": size,
        "ms": ms,
        "ratios": ratios,
        "targets": {name: target for name, (_, target) in TARGETS.items()},
        "missed": [name for name, (_, target) in TARGETS.items() if ratios[name] > target],
    }
