"""Arrays that are mapped from files, which a process reads without keeping them in memory."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 20  # numbers


def release(values: npt.NDArray[Any]) -> None:
    """Let the system take back the memory of a mapped array; it is read from the file again when it is needed.

    Arrays in memory are left alone. Without this, a pass over a table would count as memory of the process, although
    the pages belong to the file.
    """
    owner: Any = values
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not values.size:
        return
    origin = np.frombuffer(owner, dtype=np.uint8, count=1).ctypes.data
    start = values.ctypes.data - origin
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + values.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if length > 0:
        owner.madvise(mmap.MADV_DONTNEED, first, length)


def in_blocks(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the numbers of an array in blocks, and release each of them after its use."""
    flat = values.reshape(-1)
    for first in range(0, flat.size, _BLOCK):
        block = flat[first : first + _BLOCK]
        yield block
        release(block)
