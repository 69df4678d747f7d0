"""Scores of items, and the best of them.

A matrix product may round a row's score differently in matrices of different shapes. So that an item has one score
however it is asked for, a model always sees the same number of rows at once: short blocks are filled up.
"""

import numpy as np

from secemb_sdk.models.interface import Floats, Model
from secemb_shared.randomness import Indices

Scored = list[tuple[int, float]]  # items and their scores, best first

_MOST_NUMBERS = 2**18  # of a block: a megabyte
_MOST_ROWS = 4096


def block_rows(width: int) -> int:
    """Return how many rows a model sees at once."""
    return max(16, min(_MOST_ROWS, _MOST_NUMBERS // width))


def score(model: Model, items: Indices, rows: Floats, *, dense: Floats, private: Floats) -> Floats:
    """Return one number for each of at most `block_rows` items; `rows[i]` is the row of `items[i]`."""
    filled = np.resize(np.arange(items.size), block_rows(rows.shape[1]))
    return model.scores(rows[filled], dense, private, items[filled])[: items.size]


def best(items: Indices, scores: Floats, k: int) -> tuple[Indices, Floats]:
    """Return the k items of the highest scores, best first; of equal ones the lower number comes first."""
    scores = np.where(np.isnan(scores), np.float32(-np.inf), scores)  # a model that does not know says no
    if items.size > k:
        least = np.partition(scores, items.size - k)[items.size - k]
        items, scores = items[scores >= least], scores[scores >= least]
    order = np.lexsort((items, -scores))[:k]
    return items[order], scores[order]


def pairs(items: Indices, scores: Floats) -> Scored:
    """Return items and scores as an app reads them."""
    return list(zip(items.tolist(), scores.tolist(), strict=True))
