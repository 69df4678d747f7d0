"""Sampling of negative words by rank: frequent ones more often, each with a known probability."""

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices, RandomBytes

Doubles = npt.NDArray[np.float64]

SHIFT = 2.7  # Zipf's law with Mandelbrot's shift: the word of rank r makes up about 1 / (r + 2.7) of a text
_BYTES, _STEPS = 8, 2.0**64


def sample_by_rank(known: Indices, *, items: int, count: int, random_bytes: RandomBytes) -> tuple[Indices, Doubles]:
    """Return `count` items that are not known, in ascending order, and the probability of drawing each.

    Probabilities fall with the rank, which is the item's number, and are at most 1. Sampling is systematic: the
    probabilities are laid end to end, and steps of length 1 from a random start below 1 select the items. So their
    number is always exact without retries, and one divided by the probability is an unbiased weight.
    """
    chances = _chances(known, items, count)
    chosen = np.flatnonzero(chances)
    ends = np.cumsum(chances[chosen])
    first = int.from_bytes(random_bytes(_BYTES), "little") / _STEPS
    steps = first + np.arange(min(count, chosen.size))
    # The last end equals the number of steps, up to rounding.
    places = np.searchsorted(ends, steps * (ends[-1] / steps.size) if steps.size else steps, side="right")
    taken = chosen[np.minimum(places, chosen.size - 1)]
    return taken, chances[taken]


def _chances(known: Indices, items: int, count: int) -> Doubles:
    """Return the probability of each item: proportional to its weight, at most 1."""
    weights = 1 / (np.arange(items) + SHIFT)
    weights[known] = 0
    chances = np.zeros(items)
    open_ = weights > 0
    while open_.any():
        rest = count - np.count_nonzero(chances == 1)
        chances[open_] = weights[open_] * (rest / weights[open_].sum())
        certain = open_ & (chances >= 1)
        if not certain.any():
            break
        chances[certain] = 1
        open_ &= ~certain
    return np.minimum(chances, 1)
