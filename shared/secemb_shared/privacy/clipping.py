"""Vectors cut to a length, in whole steps of the ring: what one person can change in a sum, exactly.

A vector of numbers is shortened to the limit and then rounded towards zero. No element grows by that, so the length of
the whole steps is below the limit too, however many elements there are; rounding to the nearest step would add up to
√d/2 steps to the length, and a sensitivity that is wrong by that much is a promise that is not kept.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from secemb_shared.errors import NotFiniteError

Floats = npt.NDArray[np.floating]
Steps = npt.NDArray[np.int64]

LARGEST_LIMIT = 1 << 52  # steps that a float64 holds exactly
# The length is found in float64, to (d + 3) · 2^−53 of itself: for up to 2^30 elements that is well within this.
_SLACK = 1 - 2.0**-20


def clip_to_steps(parts: Sequence[Floats], *, limit: int, fraction_bits: int) -> list[Steps]:
    """Return the parts of one vector scaled by min{1, limit / length}, in whole steps: length ≤ limit, exactly."""
    scaled = [np.asarray(part, dtype=np.float64) * 2.0**fraction_bits for part in parts]
    length = float(np.sqrt(sum(float(np.dot(part.reshape(-1), part.reshape(-1))) for part in scaled)))
    if not np.isfinite(length):
        raise NotFiniteError("a vector with NaN or infinity has no length; drop the update")
    most = limit * _SLACK
    factor = 1.0 if length <= most else most / length
    return [(part * factor).astype(np.int64) for part in scaled]  # rounds towards zero


def squared_length(parts: Sequence[Steps]) -> int:
    """Return the exact squared length of a vector of whole steps."""
    return sum(int(value) ** 2 for part in parts for value in part.reshape(-1))
