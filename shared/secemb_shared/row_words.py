"""Rows as they are read: 32-bit words, from numbers in single or in half precision.

In a task with rows of 16 bits devices read rows whose numbers are all binary16. Everything else computes with them as
float32, which holds each of them exactly.
"""

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]  # (n, width)
Halves = npt.NDArray[np.float16]  # (n, width)
Words32 = npt.NDArray[np.uint32]

SINGLE, HALF = 32, 16  # bits of a number
ROW_BITS = (HALF, SINGLE)
LARGEST_HALF = np.float32(65504)


def to_half(rows: Rows) -> Halves:
    """Return the nearest binary16 numbers, ties to even, subnormal ones included; ±65,504 for anything beyond."""
    return np.clip(rows, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def published(rows: Rows, bits: int) -> Rows:
    """Return the rows that devices read: rounded to numbers of this many bits."""
    return to_half(rows).astype(np.float32) if bits == HALF else rows


def words_of(width: int, bits: int) -> int:
    """Return how many words a row of `width` numbers has."""
    return -(-width * bits // 32)


def as_words(rows: Rows, bits: int) -> Words32:
    """Return rows that have been published as words, (n, words): little-endian, and filled up with zero bytes."""
    if bits != HALF:
        return np.ascontiguousarray(rows).view(np.uint32)
    count, width = rows.shape
    halves = np.zeros((count, 2 * words_of(width, bits)), dtype="<f2")
    halves[:, :width] = to_half(rows)
    return halves.view("<u4").astype(np.uint32, copy=False)


def from_words(words: Words32, width: int, bits: int) -> Rows:
    """Return the numbers of rows, (n, width)."""
    plain = np.ascontiguousarray(words)
    if bits != HALF:
        return plain.view(np.float32)
    return plain.astype("<u4", copy=False).view("<f2")[:, :width].astype(np.float32)
