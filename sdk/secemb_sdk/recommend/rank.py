"""Scores of items: from the device's own copy of the table, or for candidates whose rows are read privately."""

from collections.abc import Callable

import numpy as np

from secemb_sdk.errors import CopyError
from secemb_sdk.models.interface import Floats, Model
from secemb_sdk.recommend.copy import TableCopy
from secemb_sdk.recommend.private_read import RowsRead, WaitSince, at_once, read_steps
from secemb_sdk.steps import Ask, Steps, work
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes

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


DenseOf = Callable[[RoundSpec], Steps[Floats | None]]  # the dense part that a round reads; None if the servers disagree


def rank_steps(
    task: TaskSpec,
    model: Model,
    candidates: Indices,
    *,
    private: Floats,
    dense_of: DenseOf,
    token: str | None,
    ask: Ask,
    wait_since: WaitSince = at_once,
    random_bytes: RandomBytes = secure_bytes,
) -> Steps[Scored]:
    """Return the candidates with their scores, best first, but for those that the catalogue does not have."""
    items = np.unique(candidates)
    items = items[(items >= 0) & (items < task.items)]
    found = yield from read_steps(task, items, token=token, ask=ask, wait_since=wait_since, random_bytes=random_bytes)
    if found.round is None:
        return []
    dense = yield from dense_of(found.round)
    found.check()
    if dense is None:
        raise CopyError("the two servers publish different dense parts; use neither, and tell both operators")
    return (yield from work(lambda: _rank(model, found, dense, private)))


def _rank(model: Model, found: RowsRead, dense: Floats, private: Floats) -> Scored:
    step = block_rows(found.rows.shape[1])
    scores = [
        score(model, found.items[first : first + step], found.rows[first : first + step], dense=dense, private=private)
        for first in range(0, found.items.size, step)
    ]
    return pairs(*best(found.items, np.concatenate(scores), found.items.size))
