"""The weights in a run's folder: the checkpoint, and whether the model's file holds the same.

Both files are archives that somebody else may have made. No pickle is loaded, nothing is unpacked, and no array is made
that is larger than its file.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.arrays import open_archive, parse_array, read_member
from precad.files import words_of
from precad.report.run import ReportError

Floats = NDArray[np.float64]
_MOST_WORK, _LEAST_WORK = 8, 1024
"""How often each tensor may be compared, on average; and bytes that are as much work as one more comparison."""


@dataclass(frozen=True)
class Checkpoint:
    """``checkpoint.npz``: where a run stood after some round."""

    theta: Floats
    first: Floats
    second: Floats
    steps: int
    round: int
    participations: NDArray[np.int64]


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file; what is none is a :class:`ReportError`."""
    try:
        with open_archive(path) as archive:
            stored = {
                name: parse_array(read_member(archive, f"{name}.npy")) for name in Checkpoint.__dataclass_fields__
            }
        steps, round_ = (_whole(stored.pop(name)) for name in ("steps", "round"))
        for name, array in stored.items():
            kind = np.int64 if name == "participations" else np.float64
            if array.dtype != kind or array.ndim != 1:
                raise ValueError(f"{name} is an array of {array.dtype} with {array.ndim} dimensions")
    except FileNotFoundError:
        raise
    except Exception as error:  # zipfile and numpy raise nearly anything on damaged files
        raise ReportError(f"{path} is damaged: {words_of(error)}") from None
    return Checkpoint(**stored, steps=steps, round=round_)


def holds(path: Path, theta: Floats) -> bool:
    """Whether a file of torch holds these parameters, in their order, with whatever else between them.

    Its tensors lie in the archive one by one, in the order of the model's ``state_dict``. Frozen parameters, buffers
    and a second copy of tied weights are not in θ. What is no such file is a :class:`ReportError`.
    """
    try:
        with open_archive(path) as archive:
            found = (re.fullmatch(r"[^/]+/data/(\d+)", name) for name in archive.namelist())
            names = [name for _, name in sorted((int(each[1]), each[0]) for each in found if each)]
            work = _MOST_WORK * sum(archive.getinfo(name).file_size + _LEAST_WORK for name in names)
            tried, to_try = set[tuple[int, int]](), [(0, 0)]  # (tensor, where θ goes on)
            while to_try:
                number, start = to_try.pop()
                if start == theta.size:
                    return True
                if number == len(names) or (number, start) in tried:
                    continue
                tried.add((number, start))
                tensor = read_member(archive, names[number])
                work -= len(tensor) + _LEAST_WORK
                if work < 0:
                    raise ValueError("its tensors can be the parameters in too many ways")
                to_try += [(number + 1, start), *((number + 1, end) for end in _ends(theta, start, tensor))]
    except Exception as error:  # zipfile raises nearly anything on damaged files
        raise ReportError(f"{path} is damaged: {words_of(error)}") from None
    return False


def _ends(theta: Floats, start: int, tensor: bytes) -> list[int]:
    """Where θ goes on if it has this tensor from ``start`` on, in the precision that it has in the model."""
    ends = []
    for width, bits in ((2, _half), (2, _bfloat16), (4, _single), (8, _double)):
        end = start + len(tensor) // width
        if tensor and len(tensor) % width == 0 and end <= theta.size and bits(theta[start:end]) == tensor:
            ends.append(end)
    return ends


def _double(values: Floats) -> bytes:
    return values.astype("<f8").tobytes()


def _single(values: Floats) -> bytes:
    return values.astype("<f4").tobytes()


def _half(values: Floats) -> bytes:
    with np.errstate(over="ignore"):
        return values.astype("<f2").tobytes()


def _bfloat16(values: Floats) -> bytes:
    """The upper half of a float32, rounded to the nearest, to even where two are."""
    words = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((words + 0x7FFF + (words >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype("<u2").tobytes()


def _whole(array: NDArray[Any]) -> int:
    if array.dtype != np.int64 or array.shape != ():
        raise ValueError(f"a count is an array of {array.dtype} with {array.ndim} dimensions")
    return int(array[()])
