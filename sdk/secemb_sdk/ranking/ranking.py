"""Ranking of candidates whose rows are read privately: for catalogues that are too big to copy."""

from collections.abc import Callable

import numpy as np

from secemb_sdk.effects import Steps, work
from secemb_sdk.models.interface import Floats, Model
from secemb_sdk.ranking.asking import Ask
from secemb_sdk.ranking.errors import CopyError
from secemb_sdk.ranking.reading import RowsRead, WaitSince, at_once, read_steps
from secemb_sdk.ranking.scoring import Scored, best, block_rows, pairs, score
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes

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
