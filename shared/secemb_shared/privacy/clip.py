"""Vectors clipped to a length, in whole steps of the ring: an exact limit on what one person can change in a sum.

A vector is scaled down to the limit and then rounded towards zero. This increases no element, so the length in whole
steps does not exceed the limit either, however many elements there are. Rounding to the nearest step could add up to
√d/2 steps to the length, which would make the sensitivity wrong and break the guarantee.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import NotFiniteError

Floats = npt.NDArray[np.floating]
Steps = npt.NDArray[np.int64]

LARGEST_LIMIT = 1 << 52  # steps that a float64 represents exactly
# The length is computed in float64 with a relative error of (d + 3) · 2^−53: well below this for up to 2^30 elements.
_SLACK = 1 - 2.0**-20
_BLOCK = 1 << 13  # numbers: this many stay in cache, and BLAS multiplies them in the calling thread


def clip_to_steps(parts: Sequence[Floats], *, limit: int, fraction_bits: int) -> list[Steps]:
    """Return the parts of one vector scaled by min{1, limit / length}, in whole steps: length ≤ limit, exactly."""
    scale = 2.0**fraction_bits  # scaling is exact, so the other factors do not matter
    flat = [np.asarray(part).reshape(-1) for part in parts]
    scaled = (np.multiply(block, scale, dtype=np.float64) for part in flat for block in _blocks(part))
    length = float(np.sqrt(sum(float(np.dot(block, block)) for block in scaled)))
    if not np.isfinite(length):
        raise NotFiniteError("the vector contains NaN or infinity; drop the update")
    most = limit * _SLACK
    factor = scale if length <= most else most / length * scale
    steps = [np.empty(part.shape, dtype=np.int64) for part in flat]
    for part, own in zip(flat, steps, strict=True):
        for block, found in zip(_blocks(part), _blocks(own), strict=True):
            found[:] = np.multiply(block, factor, dtype=np.float64)  # rounds towards zero
    return [own.reshape(np.shape(part)) for part, own in zip(parts, steps, strict=True)]


def clip_each_to_steps(parts: Sequence[Floats], *, limit: int, fraction_bits: int) -> list[Steps]:
    """Return n vectors, each clipped as above; each part has one row per vector, shape (n, width)."""
    scaled = [np.multiply(part, 2.0**fraction_bits, dtype=np.float64) for part in parts]
    lengths = np.sqrt(sum(np.einsum("ij,ij->i", part, part) for part in scaled))
    if not np.isfinite(lengths).all():
        raise NotFiniteError("the vector contains NaN or infinity; drop the update")
    most = limit * _SLACK
    factors = most / np.maximum(lengths, most)  # exactly 1 for vectors that are short enough
    for part in scaled:
        np.multiply(part, factors[:, np.newaxis], out=part)
    return [part.astype(np.int64) for part in scaled]


def _blocks(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield views of the numbers in pieces, so that intermediate results stay in cache however long a dense part is."""
    return (values[first : first + _BLOCK] for first in range(0, values.size, _BLOCK))


def squared_length(parts: Sequence[Steps]) -> int:
    """Return the exact squared length of a vector of whole steps."""
    return sum(int(value) ** 2 for part in parts for value in part.reshape(-1))
