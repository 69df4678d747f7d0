"""Recommendations from the device's own copy of the table: nobody is asked, so nobody learns anything."""

import numpy as np

from secemb_sdk.models.interface import Floats, Model
from secemb_sdk.ranking.scoring import Scored, best, block_rows, pairs, score
from secemb_sdk.ranking.table_copy import TableCopy
from secemb_shared.randomness import Indices

_NONE = np.empty(0, dtype=np.int64)


def recommend(
    model: Model, copy: TableCopy, *, private: Floats, dense: Floats, k: int, exclude: Indices = _NONE
) -> Scored:
    """Return the k best items of the whole catalogue with their scores, but for those to leave out.

    The table is looked at in blocks of rows, so that memory does not grow with the catalogue.
    """
    if k < 1:
        raise ValueError("k must be at least 1")
    items, scores = _NONE, np.empty(0, dtype=np.float32)
    step = block_rows(copy.shape.width)
    for first in range(0, copy.shape.items, step):
        block = np.arange(first, min(first + step, copy.shape.items), dtype=np.int64)
        found = score(model, block, copy.rows(block), dense=dense, private=private)
        wanted = ~np.isin(block, exclude)
        items, scores = best(np.append(items, block[wanted]), np.append(scores, found[wanted]), k)
    return pairs(items, scores)
