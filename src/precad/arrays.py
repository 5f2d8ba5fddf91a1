"""Arrays in files that somebody else may have made: no pickle is loaded, and no array is larger than its file.

A header may say that 8 TB follow, and an archive of a few kB may hold them: both are compared with what is there before
anything is made of it.
"""

import io
import math
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.files import open_to_read, read_bytes

MOST_ARRAY_BYTES = 1 << 34
"""Of a file with one array, which is read as a whole: 16 GiB."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file. What is none is a ``ValueError``."""
    return parse_array(read_bytes(path, MOST_ARRAY_BYTES))


def parse_array(content: bytes) -> NDArray[Any]:
    """The array that these bytes of a .npy file are, to their end."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of numpy's format is not read")
        shape, in_columns, dtype = _HEADERS[version](stream)
        start = stream.tell()
        if dtype.hasobject:
            raise ValueError("Object arrays are not read: they may run code")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - start:
            raise ValueError(f"an array of {shape} times {dtype} does not have {len(content) - start:,} bytes")
        flat = np.frombuffer(content, dtype, offset=start)
        return flat.reshape(shape, order="F" if in_columns else "C").copy()
    except (ValueError, RecursionError, MemoryError, SyntaxError, OverflowError, TypeError) as error:
        raise ValueError(f"it is not an array that numpy wrote: {error}") from None


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive, of numpy or torch, to read: its members have names of their own, and bytes of their own."""
    with open_to_read(path) as file, zipfile.ZipFile(file) as archive:
        for name, times in Counter(archive.namelist()).items():
            if times > 1:
                raise ValueError(f"{name} is in it {times} times")
        if sum(info.compress_size for info in archive.infolist()) > os.fstat(file.fileno()).st_size:
            raise ValueError("its members are longer than it is")
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    """One member of an archive.

    Args:
        archive: The archive.
        name: The member.
        most: The bytes that it may have once it is unpacked. Without, it must lie in the archive as it is.
    """
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ValueError(f"{name} is not in it") from None
    if most is not None and info.file_size > most:
        raise ValueError(f"{name} has {info.file_size:,} bytes, and at most {most:,} are read")
    if most is None and (info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size):
        raise ValueError(f"{name} is packed")
    return archive.read(info)
